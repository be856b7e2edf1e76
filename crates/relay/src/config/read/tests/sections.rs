//! Own keys, section listeners, and the connect modes of listeners.

use ekiden_proto::profile::{Profile, Setting};

use super::*;
use crate::config::ConnectMode;

fn section(keys: &str) -> String {
    format!("version = 1\n[[listener]]\nkind = \"section\"\nbind = \"127.0.0.1:7000\"\n{keys}\n")
}

/// The public key with which the relay dials its next hops.
fn dialing_key(config: &Config) -> PublicKey {
    default_hops(config)[0].peering().unwrap().own_key.public_key()
}

#[test]
fn listener_key_overrides_key_flag_and_flag_overrides_the_file() {
    let ((first, one), (second, two), (third, three)) =
        (Scratch::key("key-1"), Scratch::key("key-2"), Scratch::key("key-3"));
    let hop = format!("section://osaka.example:7000?key={}", random_public_key());
    let text = |keys| format!("private_key = {:?}\nforward = [{hop:?}]\n{}", first.path(), section(keys));
    let file = Scratch::new(
        "keys.toml",
        &text("").replacen("version = 1", "", 1).replacen("private", "version = 1\nprivate", 1),
    );
    let listening_key = |config: &Config| only_listener(config).section.as_ref().unwrap().private_key.public_key();
    let config = load([&*file.0], &Flags::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((dialing_key(&config), listening_key(&config)), (one, one));
    let flags = Flags { key: Some(second.path()), ..Flags::default() };
    let config = load([&*file.0], &flags).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((dialing_key(&config), listening_key(&config)), (two, two));
    let flags = Flags { listen: vec![format!("section://:1?key={}", third.path())], ..flags };
    let config = load([&*file.0], &flags).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((dialing_key(&config), listening_key(&config)), (two, three));
}

/// A new key would close every ready connection at a reload.
#[test]
fn generated_key_is_kept_across_reloads() {
    let flags = forwarding(&[&format!("section://osaka.example:7000?key={}", random_public_key())]);
    let [one, two] = [load(None, &flags).unwrap(), load(None, &flags).unwrap()];
    assert_eq!(dialing_key(&one), dialing_key(&two));
    assert_eq!(default_hops(&one), default_hops(&two));
}

#[test]
fn key_file_errors_hide_the_key() {
    let private = PrivateKey::generate().to_base64();
    let secret = private.as_str();
    let of = |name, content: String, mode| {
        let file = Scratch::new(name, &content);
        file.allow(mode);
        file
    };
    let open = of("open-key", secret.to_owned(), 0o640);
    let everyone = of("everyones-key", secret.to_owned(), 0o604);
    let twice = of("two-keys", format!("{secret}\n{secret}"), 0o600);
    let longer = of("long-key", format!("{secret}{secret}"), 0o600);
    let chmod = |file: &Scratch| format!("only its owner can read: chmod 600 {}", file.path());
    for (path, expected) in [
        (open.path(), chmod(&open)),
        (everyone.path(), chmod(&everyone)),
        (twice.path(), format!("44 characters, as `ekiden keygen` prints it, in {}", twice.path())),
        (longer.path(), format!("in {}", longer.path())),
        (secret.to_owned(), "a readable file with a private key".to_owned()),
        ("/nonexistent".to_owned(), "a readable file with a private key".to_owned()),
    ] {
        for reported in [
            from_text(&format!("private_key = {path:?}\n{}", with_listener(""))).unwrap_err().to_string(),
            from_text(&format!("private_key = {path:?}\n{}", section(""))).unwrap_err().to_string(),
            from_text(&section(&format!("key = {path:?}"))).unwrap_err().to_string(),
            flag_error(&Flags { key: Some(path.clone()), ..listen(&["auto://:1"]) }),
            flag_error(&listen(&[&format!("section://:1?key={path}")])),
        ] {
            assert!(reported.contains(&expected) && !reported.contains(secret), "{reported}");
            assert_eq!(reported.lines().count(), 1, "{reported}");
        }
    }
    // A key where no key is expected.
    for reported in [
        from_text(&with_listener("").replace("bind", &format!("key = {secret:?}\nbind"))).unwrap_err().to_string(),
        from_text(&format!("{}key = [{secret:?}]", with_listener(""))).unwrap_err().to_string(),
        from_text(&format!("privat_key = {secret:?}\n{}", with_listener(""))).unwrap_err().to_string(),
        flag_error(&listen(&[&format!("auto://:1?key={secret}")])),
    ] {
        assert!(reported.contains("key") && !reported.contains(secret), "{reported}");
    }
}

#[test]
fn section_listeners_have_keys_and_peers() {
    let (file, key) = Scratch::key("listens");
    let peers = Scratch::new("listens-peers", &format!("{} alice\n", random_public_key()));
    let (path, peers) = (file.path(), peers.path());
    for (url, name, encrypt, closed) in [
        (format!("section://:7000?key={path}"), "section-7000", false, false),
        (format!("section://0.0.0.0:7000?key={path}&allow_open=true&encrypt=true"), "section-7000", true, false),
        (format!("section://[::]:7000?key={path}&name=in"), "in", false, true),
    ] {
        let url = if closed { format!("{url}&peers={peers}") } else { url };
        let config = load(None, &listen(&[&url])).unwrap_or_else(|e| panic!("{url}: {e}"));
        let listener = only_listener(&config);
        assert_eq!(
            (listener.kind, listener.name.as_str(), listener.connect),
            (ListenerKind::Section, name, ConnectMode::Strict)
        );
        let section = listener.section.as_ref().unwrap();
        assert_eq!(
            (section.private_key.public_key(), section.encrypt, section.peers.is_some()),
            (key, encrypt, closed),
            "{url}"
        );
    }
}

/// Nagle's algorithm would hold the first bytes of a session until OPEN is acknowledged.
#[test]
fn sections_set_nodelay_unless_the_profile_disables_nodelay() {
    let (file, _) = Scratch::key("nagle");
    let listener = section(&format!("key = {:?}\nprofile = \"own\"", file.path()));
    let hop = |scheme: &str, key: &str| format!("forward = [\"{scheme}://far.example:7000?profile=own{key}\"]");
    let key = format!("&key={}", random_public_key());
    for (scheme, key, settings, expected) in [
        ("section", key.as_str(), "mss = 1400", Some(true)),
        ("section", key.as_str(), "nodelay = false", Some(false)),
        ("socks5", "", "mss = 1400", None),
    ] {
        let text = listener.replace("version = 1\n", &format!("version = 1\n{}\n", hop(scheme, key)));
        let config = from_text(&format!("{text}[profile.own]\n{settings}\n")).unwrap_or_else(|error| panic!("{error}"));
        let nodelay = |profile: &Profile| {
            profile.settings().iter().find_map(|setting| match setting {
                Setting::Nodelay(on) => Some(*on),
                _ => None,
            })
        };
        assert_eq!(nodelay(&default_hops(&config)[0].profile), expected, "{scheme}, {settings}");
        let of_listener = Some(settings != "nodelay = false");
        assert_eq!(nodelay(&only_listener(&config).profile), of_listener, "section listener, {settings}");
    }
}

#[test]
fn options_of_other_listener_kinds_are_reported() {
    let (file, _) = Scratch::key("kinds");
    let path = file.path();
    for (url, expected) in [
        ("section://:1".to_owned(), "-L[1].key is missing: expected a file with this relay's private key"),
        (format!("section://0.0.0.0:1?key={path}"), "-L[1].bind = \"0.0.0.0:1\": expected a loopback address"),
        (format!("section://0.0.0.0:1?key={path}&users=x"), "set peers = FILE, or fleet = true, or allow_open = true"),
        (
            format!("section://:1?key={path}&users=x"),
            "-L[1].users = \"x\": expected no users: relays authenticate with keys",
        ),
        (format!("section://:1?key={path}&connect=early"), "-L[1].connect = \"early\": expected no connect"),
        (format!("section://:1/host:1?key={path}"), "-L[1].target = \"host:1\": expected no target"),
        (format!("section://:1?key={path}&encrypt=1"), "-L[1].encrypt = \"1\": expected true or false"),
        (
            format!("section://:1?key={path}&peers=/nonexistent"),
            "-L[1].peers = \"/nonexistent\": expected a readable file",
        ),
        (format!("socks://:1?key={path}"), "-kinds\": expected this key only with kind = \"section\""),
        ("http://:1?peers=x".to_owned(), "-L[1].peers = \"x\": expected this key only with kind = \"section\""),
        (
            "tcp://:1/h:1?encrypt=true".to_owned(),
            "-L[1].encrypt = \"true\": expected this key only with kind = \"section\"",
        ),
        ("auto://:1?connect=eager".to_owned(), "-L[1].connect = \"eager\": expected \"strict\" or \"early\""),
    ] {
        let reported = flag_error(&listen(&[&url]));
        assert!(reported.contains(expected), "{url}: {reported}");
    }
}

#[test]
fn connect_mode_follows_listener_kind_and_option() {
    for (url, connect) in [
        ("auto://:1", ConnectMode::Strict),
        ("auto://:1?connect=strict", ConnectMode::Strict),
        ("auto://:1?connect=early", ConnectMode::Early),
        ("socks://:1?connect=early", ConnectMode::Early),
        ("http://:1?connect=early", ConnectMode::Early),
        ("tcp://:1/h:2?connect=early", ConnectMode::Early),
        ("tproxy://:1?interfaces=eth0", ConnectMode::Hold),
        ("redirect://0.0.0.0:1?interfaces=eth0&connect=strict", ConnectMode::Strict),
    ] {
        let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(only_listener(&config).connect, connect, "{url}");
    }
}

/// Paths and public keys are no secrets; only values that look like a private key are hidden.
#[test]
fn only_possible_private_keys_are_hidden() {
    let (file, own) = Scratch::key("shown");
    let private = PrivateKey::generate().to_base64();
    let secret = private.as_str();
    let public = own.to_string();
    let cut = &public[..43];
    for (flags, expected) in [
        (
            listen(&["section://:1?key=/nonexistent"]),
            "-L[1].key = \"/nonexistent\": expected a readable file".to_owned(),
        ),
        (Flags { key: Some("/nonexistent".into()), ..listen(&["auto://:1"]) }, "--key = \"/nonexistent\"".to_owned()),
        (
            listen(&["socks://:1?key=relay.key"]),
            "-L[1].key = \"relay.key\": expected this key only with kind".to_owned(),
        ),
        (Flags { key: Some(secret.to_owned()), ..listen(&["auto://:1"]) }, "--key (value not shown)".to_owned()),
        (
            Flags { key: Some(file.path()), ..forwarding(&[&format!("section://far.example:1?key={own}")]) },
            "-F[1] = \"section://far.example:1\": expected the key of another relay".to_owned(),
        ),
        (
            forwarding(&[&format!("section://far.example:1?key={cut}")]),
            format!("-F[1].key = \"{}...\" (43 characters): expected a public key of 44 characters", &cut[..6]),
        ),
        (
            forwarding(&["section://far.example:1?key=osaka.pub"]),
            "-F[1].key = \"osaka.pub\": expected a public".to_owned(),
        ),
    ] {
        let reported = flag_error(&flags);
        assert!(reported.contains(&expected) && !reported.contains(secret) && !reported.contains(cut), "{reported}");
    }
}
