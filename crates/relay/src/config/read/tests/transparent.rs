//! Transparent listeners, and `[transparent]`.

use super::*;
use crate::config::{ConnectMode, RuleManagement};
use crate::rules::Marks;

#[test]
fn a_transparent_listener_catches_at_interfaces() {
    let url = "tproxy://0.0.0.0:7001?interfaces=lan0&interfaces=lan1&clients=10.1.0.0/16&deny=*:25&profile=lossy";
    let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{e}"));
    let listener = only(&config);
    assert_eq!(
        (listener.kind, listener.name.as_str(), listener.connect),
        (ListenerKind::Tproxy, "tproxy-7001", ConnectMode::Hold)
    );
    assert!(listener.keep_client_address && listener.access.allow_private && listener.users.is_none());
    let capture = listener.capture.as_ref().unwrap();
    assert_eq!(capture.interfaces, ["lan0", "lan1"]);
    assert_eq!(capture.clients, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!(listener.profile.name, "lossy");

    let text = "version = 1\n[[listener]]\nkind = \"redirect\"\nbind = \"[::]:7002\"\ninterfaces = \"lo\"\n\
        connect = \"early\"\nkeep_client_address = true\n[transparent]\nrules = \"manual\"\ninstance = 3\n\
        [timeouts]\nhold = \"500ms\"\n";
    let config = good(text);
    let listener = only(&config);
    assert_eq!((listener.kind, listener.connect), (ListenerKind::Redirect, ConnectMode::Early));
    assert!(listener.keep_client_address);
    assert_eq!(listener.capture.as_ref().unwrap().clients, []);
    assert_eq!((config.transparent.rules, config.transparent.instance), (RuleManagement::Manual, 3));
    assert_eq!((config.timeouts.hold, config.marks()), (Duration::from_millis(500), Marks::new(3)));
}

#[test]
fn addresses_are_kept_where_that_is_wanted() {
    for (url, kept) in [
        ("tproxy://0.0.0.0:1?interfaces=lan0", true),
        ("tproxy://0.0.0.0:1?interfaces=lan0&keep_client_address=false", false),
        ("redirect://0.0.0.0:1?interfaces=lan0", false),
        ("socks://:1", false),
        ("tcp://:1/h:2?keep_client_address=true", true),
    ] {
        let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(only(&config).keep_client_address, kept, "{url}");
        assert_eq!(config.needed_marks().is_some(), url.contains("interfaces") || kept, "{url}");
    }
}

#[test]
fn what_packets_cannot_have_is_told() {
    let tproxy = "tproxy://0.0.0.0:1?interfaces=lan0";
    for (url, says) in [
        ("tproxy://0.0.0.0:1".to_owned(), "-L[1].interfaces is missing: expected at least one"),
        ("tproxy://0.0.0.0:0?interfaces=lan0".to_owned(), "expected a port that does not change"),
        (
            "tproxy://0.0.0.0:1?interfaces=lo".to_owned(),
            "only redirect catches connections of this host's own programs",
        ),
        ("tproxy://0.0.0.0:1?interfaces=lan%20".to_owned(), "expected the name of a network interface"),
        ("redirect://127.0.0.1:1?interfaces=lan0".to_owned(), "redirected connections do not come to loopback"),
        ("redirect://127.0.0.1:1?interfaces=lan0&interfaces=lo".to_owned(), "do not come to loopback"),
        (format!("{tproxy}&clients=client.example"), "-L[1].clients = \"client.example\": expected a network"),
        (format!("{tproxy}&deny=www.example"), "-L[1].deny = \"www.example\": expected networks and ports"),
        (format!("{tproxy}&allow=*.example"), "-L[1].allow = \"*.example\": expected networks and ports"),
        (format!("{tproxy}&users=x"), "expected no users: clients do not know of this listener"),
        (format!("{tproxy}&connect=soon"), "-L[1].connect = \"soon\": expected \"strict\" or \"early\""),
        ("auto://:1?interfaces=lan0".to_owned(), "-L[1].interfaces = \"lan0\": expected nothing"),
        ("auto://:1?clients=10.0.0.0/8".to_owned(), "-L[1].clients = \"10.0.0.0/8\": expected nothing"),
        ("auto://:1?connect=hold".to_owned(), "only tproxy, redirect and tun see a client's first packet"),
    ] {
        let told = flag_mistake(&listen(&[&url]));
        assert!(told.contains(says) && told.lines().count() == 1, "{url}: {told}");
    }
    let own = load(None, &listen(&["redirect://127.0.0.1:1?interfaces=lo"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(only(&own).bind.port(), 1);
}

#[test]
fn there_are_marks_for_sixteen_listeners() {
    let url = |port: usize| format!("tproxy://0.0.0.0:{port}?interfaces=lan0");
    let urls: Vec<_> = (1..=Marks::MOST_LISTENERS + 1).map(url).collect();
    let mut urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let told = flag_mistake(&listen(&urls));
    assert!(told.contains("-L[17].kind = \"tproxy\": expected at most 16 that are tproxy, redirect or tun"), "{told}");
    urls[16] = "auto://:1080";
    let config = load(None, &listen(&urls)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.transparent_listeners().count(), 16);
}
