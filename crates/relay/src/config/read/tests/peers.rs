//! The file of peers.

use ekiden_proto::addr::Target;

use super::*;
use crate::config::Peers;

/// A section listener with these peers, and the relays `osaka` and `kyoto` behind it.
fn with_peers(peers: &Scratch) -> Result<Config, ConfigErrors> {
    let (file, _) = Scratch::key("of-listener");
    let mut text = format!(
        "version = 1\n[[listener]]\nkind = \"section\"\nbind = \"0.0.0.0:7000\"\nkey = {:?}\npeers = {:?}\n",
        file.path(),
        peers.path()
    );
    for name in ["osaka", "kyoto"] {
        text += &format!(
            "[[relay]]\nname = {name:?}\naddress = \"{name}.example:7000\"\nkey = \"{}\"\n",
            random_public_key()
        );
    }
    from_text(&text)
}

#[test]
fn peer_options_limit_targets_and_next_hops() {
    let [alice, bob, carol] = [random_public_key(), random_public_key(), random_public_key()];
    let file = Scratch::new(
        "peers",
        &format!(
            "# who may come in\r\n\r\n{alice} alice\r\n  {bob}\tbob through=osaka,kyoto to=*.example.jp:443,10.0.0.0/8 # of Bob\n{carol} carol to=*"
        ),
    );
    let config = with_peers(&file).unwrap_or_else(|e| panic!("{e}"));
    let peers = only_listener(&config).section.as_ref().unwrap().peers.clone().unwrap();
    assert_eq!(peers.0.len(), 3);
    let peer = |key| &peers.0[key];
    assert_eq!((&*peer(&alice).name, &peer(&alice).next_hops), ("alice", &None));
    assert_eq!(peer(&bob).next_hops, Some(vec!["osaka".into(), "kyoto".into()]));
    for (key, target, permitted) in [
        (&alice, "127.0.0.1:22", true),
        (&alice, "example.com:443", true),
        (&bob, "www.example.jp:443", true),
        (&bob, "www.example.jp:80", false),
        (&bob, "10.1.2.3:22", true),
        (&bob, "192.0.2.1:443", false),
        (&carol, "192.168.0.1:22", true),
    ] {
        let target: Target = target.parse().unwrap();
        assert_eq!(peer(key).access.permits(&target.host, None, target.port), permitted, "{key} {target}");
    }
}

#[test]
fn from_option_accepts_networks_and_addresses() {
    let [alice, bob] = [random_public_key(), random_public_key()];
    let file =
        Scratch::new("from", &format!("{alice} alice\n{bob} bob from=192.168.2.0/24,2001:db8::/32,203.0.113.9 to=*\n"));
    let config = with_peers(&file).unwrap_or_else(|e| panic!("{e}"));
    let peers = only_listener(&config).section.as_ref().unwrap().peers.clone().unwrap();
    assert_eq!(peers.0[&alice].from, None);
    let from: Vec<_> = peers.0[&bob].from.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(from, ["192.168.2.0/24", "2001:db8::/32", "203.0.113.9/32"]);
}

#[test]
fn empty_peers_file_admits_no_relay() {
    let config = with_peers(&Scratch::new("no-peers", "# nobody yet\n")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(only_listener(&config).section.as_ref().unwrap().peers.as_deref(), Some(&Peers::default()));
}

#[test]
fn peers_file_errors_name_the_line_and_hide_secrets() {
    let [good, other] = [random_public_key(), random_public_key()];
    let secret = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LC";
    let lines = [
        (format!("{good} alice"), ""),
        (secret.to_owned(), "a line PUBLIC-KEY NAME"),
        (format!("{secret} bob"), "44 characters"),
        (format!("private-key: {secret}="), "44 characters"),
        (format!("{good} bob"), "each key once"),
        (format!("{other} alice"), "each name once; \"alice\" is on an earlier line"),
        (format!("{} c:d", random_public_key()), "a name of 1 to 64"),
        (format!("{} e {secret}", random_public_key()), "a line PUBLIC-KEY NAME"),
        (format!("{} f form=*", random_public_key()), "a line PUBLIC-KEY NAME"),
        (format!("{} g to=ex*mple.com", random_public_key()), "after to= targets like"),
        (format!("{} h to=", random_public_key()), "after to= targets like"),
        (format!("{} i to=a.example to=b.example", random_public_key()), "a line PUBLIC-KEY NAME"),
        (
            format!("{} j through=osako", random_public_key()),
            "after through= the name of a [[relay]]: \"osaka\", perhaps",
        ),
        (format!("{} k through=nagoya,", random_public_key()), "one of osaka, kyoto"),
        (format!("{} l from=site2.example", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (format!("{} m from=192.168.2.0/24:53", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (format!("{} n from=192.168.2.1/24", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (format!("{} o from=::ffff:192.0.2.0/120", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (format!("{} p from=*", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (format!("{} q from=", random_public_key()), "after from= networks like 192.168.2.0/24"),
        (
            format!("{} r from=10.0.0.0/8,10.1.0.0/16", random_public_key()),
            "networks that do not overlap: 10.1.0.0/16 overlaps an earlier network",
        ),
        (format!("{} s from=10.0.0.0/8 from=192.0.2.0/24", random_public_key()), "a line PUBLIC-KEY NAME"),
    ];
    let text: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let file = Scratch::new("bad-peers", &text);
    let mistakes = with_peers(&file).unwrap_err().0;
    let reported: std::collections::BTreeSet<_> = mistakes.iter().filter_map(|mistake| mistake.line).collect();
    assert_eq!(reported.into_iter().collect::<Vec<_>>(), (2..=lines.len()).collect::<Vec<_>>(), "{mistakes:#?}");
    for (number, (_, expected)) in (1..).zip(&lines).skip(1) {
        let of_line = |mistake: &&ConfigError| mistake.line == Some(number) && mistake.source == file.path();
        assert!(
            mistakes.iter().filter(of_line).any(|m| m.expected.contains(expected)),
            "{number} {expected}: {mistakes:#?}"
        );
    }
    assert!(mistakes.iter().all(|mistake| !mistake.to_string().contains(&secret[..8])), "{mistakes:#?}");
}

#[test]
fn own_key_is_refused_as_a_peer() {
    let (key, own) = Scratch::key("own-peer");
    let peers = Scratch::new("own-peers", &format!("{own} me\n"));
    let reported = flag_error(&listen(&[&format!("section://:1?key={}&peers={}", key.path(), peers.path())]));
    assert_eq!(reported, format!("{}:1: expected the key of another relay, not of this relay", peers.path()));
    let flags = Flags { key: Some(key.path()), ..listen(&[&format!("section://:1?peers={}", peers.path())]) };
    assert!(flag_error(&flags).contains("the key of another relay, not of this relay"));
}

#[test]
fn errors_in_a_shared_peers_file_are_reported_once() {
    let (key, _) = Scratch::key("two");
    let peers = Scratch::new("peers-of-two", "x\n");
    let urls = [1, 2].map(|port| format!("section://:{port}?key={}&peers={}", key.path(), peers.path()));
    let reported = flag_error(&listen(&[&urls[0], &urls[1]]));
    assert_eq!(reported.lines().count(), 1, "{reported}");
}
