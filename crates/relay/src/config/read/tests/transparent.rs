//! Transparent listeners, `[transparent]`, and `tun` listeners with their routes.

use super::*;
use crate::config::{ConnectMode, HostPattern, QuicPolicy, RuleManagement};
use crate::rules::Marks;

#[test]
fn transparent_listener_options_are_read() {
    let url = "tproxy://0.0.0.0:7001?interfaces=lan0&interfaces=lan1&clients=10.1.0.0/16&deny=*:25&profile=lossy";
    let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{e}"));
    let listener = only_listener(&config);
    assert_eq!(
        (listener.kind, listener.name.as_str(), listener.connect),
        (ListenerKind::Tproxy, "tproxy-7001", ConnectMode::Hold)
    );
    assert!(listener.keep_client_address && listener.access.allow_private && listener.users.is_none());
    let capture = listener.capture.as_ref().unwrap();
    assert_eq!(capture.interfaces, ["lan0", "lan1"]);
    assert_eq!(capture.clients, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!((capture.quic, capture.server_names), (QuicPolicy::Pass, false));
    assert_eq!(listener.profile.name, "lossy");

    let text = "version = 1\n[[listener]]\nkind = \"redirect\"\nbind = \"[::]:7002\"\ninterfaces = \"lo\"\n\
        connect = \"early\"\nserver_names = true\nquic = \"refuse\"\nkeep_client_address = true\n[transparent]\nrules = \"manual\"\ninstance = 3\n\
        [timeouts]\nhold = \"500ms\"\n";
    let config = valid_config(text);
    let listener = only_listener(&config);
    assert_eq!((listener.kind, listener.connect), (ListenerKind::Redirect, ConnectMode::Early));
    assert!(listener.keep_client_address);
    let capture = listener.capture.as_ref().unwrap();
    assert_eq!((&capture.clients[..], capture.quic, capture.server_names), (&[][..], QuicPolicy::Refuse, true));
    assert_eq!((config.transparent.rules, config.transparent.instance), (RuleManagement::Manual, 3));
    assert_eq!((config.timeouts.hold, config.marks()), (Duration::from_millis(500), Marks::new(3)));
}

#[test]
fn keep_client_address_follows_listener_kind_and_option() {
    for (url, kept) in [
        ("tproxy://0.0.0.0:1?interfaces=lan0", true),
        ("tproxy://0.0.0.0:1?interfaces=lan0&keep_client_address=false", false),
        ("redirect://0.0.0.0:1?interfaces=lan0", false),
        ("socks://:1", false),
        ("tcp://:1/h:2?keep_client_address=true", true),
    ] {
        let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(only_listener(&config).keep_client_address, kept, "{url}");
        assert_eq!(config.needed_marks().is_some(), url.contains("interfaces") || kept, "{url}");
    }
}

#[test]
fn invalid_transparent_listener_options_are_reported() {
    let tproxy = "tproxy://0.0.0.0:1?interfaces=lan0";
    for (url, expected) in [
        ("tproxy://0.0.0.0:1".to_owned(), "-L[1].interfaces is missing: expected at least one"),
        ("tproxy://0.0.0.0:0?interfaces=lan0".to_owned(), "expected a port above 0"),
        (
            "tproxy://0.0.0.0:1?interfaces=lo".to_owned(),
            "only redirect catches connections of this host's own programs",
        ),
        ("tproxy://0.0.0.0:1?interfaces=lan%20".to_owned(), "expected the name of a network interface"),
        (
            "redirect://127.0.0.1:1?interfaces=lan0".to_owned(),
            "redirected connections do not arrive at a loopback address",
        ),
        ("redirect://127.0.0.1:1?interfaces=lan0&interfaces=lo".to_owned(), "do not arrive at a loopback address"),
        (format!("{tproxy}&clients=client.example"), "-L[1].clients = \"client.example\": expected a network"),
        (format!("{tproxy}&deny=www.example"), "-L[1].deny = \"www.example\": expected networks and ports"),
        (format!("{tproxy}&allow=*.example"), "-L[1].allow = \"*.example\": expected networks and ports"),
        (format!("{tproxy}&users=x"), "expected no users: a transparent listener cannot ask for a user name"),
        (format!("{tproxy}&connect=soon"), "-L[1].connect = \"soon\": expected \"strict\" or \"early\""),
        ("auto://:1?interfaces=lan0".to_owned(), "-L[1].interfaces = \"lan0\": expected this key only with kind"),
        (format!("{tproxy}&quic=drop"), "-L[1].quic = \"drop\": expected \"pass\" or \"refuse\""),
        ("auto://:1?quic=refuse".to_owned(), "-L[1].quic = \"refuse\": expected this key only with kind"),
        (format!("{tproxy}&server_names=true"), "-L[1].server_names = \"true\": expected connect = \"strict\" or"),
        (
            format!("{tproxy}&server_names=true&connect=hold"),
            "expected connect = \"strict\" or \"early\" in the same listener",
        ),
        ("auto://:1?server_names=true".to_owned(), "-L[1].server_names = \"true\": expected this key only with kind"),
        ("auto://:1?clients=10.0.0.0/8".to_owned(), "-L[1].clients = \"10.0.0.0/8\": expected this key only with kind"),
        ("auto://:1?connect=hold".to_owned(), "only tproxy, redirect and tun see a client's first packet"),
    ] {
        let reported = flag_error(&listen(&[&url]));
        assert!(reported.contains(expected) && reported.lines().count() == 1, "{url}: {reported}");
    }
    let own = load(None, &listen(&["redirect://127.0.0.1:1?interfaces=lo"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(only_listener(&own).bind.port(), 1);
}

#[test]
fn at_most_sixteen_transparent_listeners_are_accepted() {
    let url = |port: usize| format!("tproxy://0.0.0.0:{port}?interfaces=lan0");
    let urls: Vec<_> = (1..=Marks::MOST_LISTENERS + 1).map(url).collect();
    let mut urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let reported = flag_error(&listen(&urls));
    assert!(
        reported.contains("-L[17].kind = \"tproxy\": expected at most 16 listeners of kind tproxy, redirect or tun"),
        "{reported}"
    );
    urls[16] = "auto://:1080";
    let config = load(None, &listen(&urls)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.transparent_listeners().count(), 16);
}

/// A tunnel listener whose sessions go through `hop`.
fn load_with_hop(url: &str, hop: &str) -> Result<Config, String> {
    let flags = Flags { forward: vec![hop.to_owned()], ..listen(&[url]) };
    load(None, &flags).map_err(|mistakes| mistakes.to_string())
}

fn load_tunnel(url: &str) -> Config {
    load_with_hop(url, "socks5://203.0.113.1:1080").unwrap_or_else(|e| panic!("{url}: {e}"))
}

#[test]
fn tunnel_device_and_networks_are_read() {
    let config = load_tunnel("tun://ekiden0?net=192.168.2.0/24,192.168.3.0/24&mtu=1400&source=192.168.1.1");
    let listener = only_listener(&config);
    assert_eq!(
        (listener.kind, listener.name.as_str(), listener.connect),
        (ListenerKind::Tun, "ekiden0", ConnectMode::Hold)
    );
    assert_eq!(listener.bind, "127.0.0.1:7100".parse().unwrap());
    assert!(listener.access.allow_private && !listener.keep_client_address && listener.users.is_none());
    assert_eq!(listener.capture.as_ref().unwrap().interfaces, ["ekiden0"]);
    let nets: Vec<_> = listener.access.allow.iter().map(|pattern| pattern.hosts.clone()).collect();
    let tun = listener.tun.as_ref().unwrap();
    assert_eq!(nets, tun.nets.iter().map(|net| HostPattern::Network(*net)).collect::<Vec<_>>());
    assert_eq!((tun.nets.len(), tun.mtu, tun.source), (2, 1400, Some("192.168.1.1".parse().unwrap())));
    assert!(config.needed_marks().is_some());
}

#[test]
fn tunnel_bind_address_has_the_family_of_its_networks() {
    for (url, bind) in [
        ("tun://t?net=10.1.0.0/16", "127.0.0.1:7100"),
        ("tun://t?net=fd00:1::/64", "[::1]:7100"),
        ("tun://t?net=fd00:1::/64&net=10.1.0.0/16", "[::]:7100"),
        ("tun://t?net=10.1.0.0/16&bind=:9", "127.0.0.1:9"),
        ("tun://t?net=10.1.0.0/16&bind=[::]:9", "[::]:9"),
    ] {
        assert_eq!(only_listener(&load_tunnel(url)).bind, bind.parse().unwrap(), "{url}");
    }
    let two = Flags {
        forward: vec!["socks5://203.0.113.1:1080".to_owned()],
        ..listen(&["tun://a?net=10.1.0.0/16", "tun://b?net=fd00:1::/64", "auto://:7101"])
    };
    let config = load(None, &two).unwrap_or_else(|e| panic!("{e}"));
    let ports: Vec<_> = config.listeners.iter().map(|listener| listener.bind.port()).collect();
    assert_eq!(ports, [7100, 7101, 7101], "a default port differs from those of earlier listeners only");
}

#[test]
fn invalid_tunnel_options_are_reported() {
    let net = "tun://t?net=10.1.0.0/16";
    for (url, expected) in [
        ("tun://t".to_owned(), "-L[1].net is missing: expected at least one"),
        ("tun://?net=10.1.0.0/16".to_owned(), "-L[1].device = \"\": expected the name of a network interface"),
        ("tun://t?net=10.1.0.1/16".to_owned(), "-L[1].net = \"10.1.0.1/16\": expected a network"),
        (format!("{net}&net=10.1.2.0/24"), "expected networks that do not overlap"),
        (format!("{net}&mtu=100"), "-L[1].mtu = \"100\": expected a number of bytes from 576"),
        ("tun://t?net=fd00::/8&mtu=1000".to_owned(), "-L[1].mtu = \"1000\": expected at least 1280"),
        (format!("{net}&bind=[::1]:7"), "-L[1].bind = \"[::1]:7\": expected an address of the family of net"),
        ("tun://t?net=fd00::/8,10.1.0.0/16&bind=[::1]:7".to_owned(), "expected an address of the family of net"),
        (format!("{net}&bind=:0"), "expected a port above 0"),
        (format!("{net}&allow=10.1.0.0/24"), "-L[1].allow = \"10.1.0.0/24\": expected no allow: net lists"),
        (
            format!("{net}&interfaces=lan0"),
            "-L[1].interfaces = \"lan0\": expected no interfaces: connections of a tunnel",
        ),
        (format!("{net}&users=x"), "expected no users"),
        (
            format!("{net}&quic=refuse"),
            "-L[1].quic = \"refuse\": expected this key only with kind = \"tproxy\" or \"redirect\"",
        ),
        (format!("{net}&source=here"), "-L[1].source = \"here\": expected an address of this host"),
        (
            "auto://:1?net=10.1.0.0/16".to_owned(),
            "-L[1].net = \"10.1.0.0/16\": expected this key only with kind = \"tun\"",
        ),
    ] {
        let reported = load_with_hop(&url, "socks5://203.0.113.1:1080").expect_err(&url);
        assert!(reported.contains(expected), "{url}: {reported}");
        assert_eq!(reported.lines().count(), 1, "{url}: {reported}");
    }
}

#[test]
fn tunnels_with_a_common_network_or_device_are_refused() {
    for (other, expected) in [
        ("tun://b?net=10.1.2.0/24", "networks that do not overlap those of a"),
        ("tun://b?net=10.0.0.0/8", "networks that do not overlap those of a"),
        ("tun://a?net=10.2.0.0/16", "a device that no other tunnel uses"),
    ] {
        let flags = Flags {
            forward: vec!["socks5://203.0.113.1:1080".to_owned()],
            ..listen(&["tun://a?net=10.1.0.0/16", other])
        };
        let reported = flag_error(&flags);
        assert!(reported.contains("-L[2]") && reported.contains(expected), "{other}: {reported}");
    }
}

#[test]
fn tunnel_networks_need_a_route_through_a_relay() {
    let reported = flag_error(&listen(&["tun://t?net=10.1.0.0/16"]));
    assert!(
        reported.contains("-L.net = \"10.1.0.0/16\": expected a path to 10.1.0.0/16 through another relay"),
        "{reported}"
    );
    let answer_only =
        load(None, &listen(&["tun://t?net=10.1.0.0/16&answer_only=true"])).unwrap_or_else(|e| panic!("{e}"));
    assert!(only_listener(&answer_only).tun.as_ref().unwrap().answer_only);
    let reported =
        load_with_hop("tun://t?net=10.1.0.0/16", "socks5://10.1.2.3:1080").expect_err("a hop in its own tunnel");
    assert!(
        reported.contains("socks5://10.1.2.3:1080 is at 10.1.2.3:1080, and its section would enter its own tunnel"),
        "{reported}"
    );

    let file = |routes: &str| {
        format!(
            "version = 1\n[[listener]]\nkind = \"tun\"\ndevice = \"t\"\nnet = [\"10.1.0.0/16\"]\n[[relay]]\n\
             name = \"far\"\nurl = \"socks5://203.0.113.1:1080\"\n[[path]]\nname = \"far\"\nrelays = [\"far\"]\n{routes}"
        )
    };
    let route = |to: &str, path: &str| format!("[[route]]\nto = [\"{to}\"]\npath = [\"{path}\"]\n");
    for (routes, good) in [
        (route("10.1.0.0/16", "far"), true),
        (route("10.0.0.0/8", "far"), true),
        ("[[route]]\npath = [\"far\", \"direct\"]\n".to_owned(), true),
        (route("10.1.0.0/17", "far") + &route("10.1.128.0/17", "far"), false), // the rest is assumed to go direct
        (route("10.1.0.0/24", "far"), false),
        (route("10.1.0.0/24", "direct") + &route("10.1.0.0/16", "far"), false),
        (route("10.2.0.0/16", "direct") + &route("10.1.0.0/16", "far"), true),
        (route("10.1.0.0/16:443", "far"), false),
        (route("10.1.0.0/16:443", "far") + &route("*", "far"), true),
        (String::new(), false),
    ] {
        assert_eq!(from_text(&file(&routes)).is_ok(), good, "{routes}");
    }
    let reported = errors_of(&file(""));
    assert_eq!((reported[0].key.as_str(), reported[0].line), ("listener.net", Some(2)));
}
