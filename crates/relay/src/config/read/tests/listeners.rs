//! `[[listener]]`, `-L`, and listeners whose addresses conflict in bind(2).

use super::*;

#[test]
fn listener_urls_set_kind_address_and_name() {
    for (url, kind, bind, name, private) in [
        ("auto://127.0.0.1:1080", ListenerKind::Auto, "127.0.0.1:1080", "auto-1080", true),
        ("socks://:1080", ListenerKind::Socks, "127.0.0.1:1080", "socks-1080", true),
        ("http://localhost:3128/?name=web", ListenerKind::Http, "127.0.0.1:3128", "web", true),
        ("http://[::]:3128?allow_open=true", ListenerKind::Http, "[::]:3128", "http-3128", false),
        ("auto://0.0.0.0:0?allow_open=true&allow_private=true", ListenerKind::Auto, "0.0.0.0:0", "auto-0", true),
        ("tcp://:2222/server.example:22", ListenerKind::Tcp, "127.0.0.1:2222", "tcp-2222", true),
    ] {
        let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{e}"));
        let listener = only_listener(&config);
        assert_eq!(
            (listener.kind, listener.bind.to_string().as_str(), listener.name.as_str(), listener.access.allow_private),
            (kind, bind, name, private),
            "{url}"
        );
        assert_eq!(listener.target.is_some(), kind == ListenerKind::Tcp);
    }
    let config = load(None, &listen(&["auto://:1?deny=*:25&deny=10.0.0.0%2F8&allow=*&profile=lossy"])).unwrap();
    assert_eq!((only_listener(&config).access.deny.len(), only_listener(&config).access.allow.len()), (2, 1));
    assert_eq!(only_listener(&config).profile.name, "lossy");
    let config = load(None, &listen(&["auto://127.0.0.1:0", "auto://127.0.0.1:0"])).unwrap();
    assert_eq!(config.listeners[1].name, "auto-0-2");
}

#[test]
fn invalid_listener_flags_are_reported() {
    for (url, expected) in [
        ("127.0.0.1", "command line: -L[1] = \"127.0.0.1\": expected a listener like auto://"),
        ("auto://0.0.0.0:1080", "command line: -L[1].bind = \"0.0.0.0:1080\": expected a loopback address"),
        ("ftp://:21", "command line: -L[1].kind = \"ftp\": expected one of \"auto\""),
        ("tproxy://0.0.0.0:21", "-L[1].interfaces is missing"),
        ("auto://:1080?profil=lan", "-L[1].profil is not a key: expected \"profile\", perhaps"),
        ("auto://:1080?allow_open=yes", "-L[1].allow_open = \"yes\": expected true or false"),
        ("auto://:1080?bind=:1081", "-L[1].bind = [...]: expected an address"),
        ("auto://:1080/host:1", "-L[1].target = \"host:1\": expected no target"),
        ("tcp://:1080", "-L[1].target is missing: expected a host and port"),
    ] {
        let shown = flag_error(&listen(&[url]));
        assert!(shown.contains(expected), "{url}: {shown}");
    }
    let shown = flag_error(&Flags { log: Some("xml".into()), admin: Some("on".into()), ..listen(&["auto://:1"]) });
    assert!(shown.contains("--log = \"xml\"") && shown.contains("--admin = \"on\""), "{shown}");
}

#[test]
fn users_file_is_loaded_once_and_its_errors_name_lines() {
    let hash = bcrypt::hash("hunter2", 4).unwrap();
    let file = Scratch::new("users", &format!("alice:{hash}\n"));
    let urls = [9001, 9002].map(|port| format!("auto://0.0.0.0:{port}?users={}", file.0.display()));
    let config = load(None, &listen(&[&urls[0], &urls[1]])).unwrap_or_else(|e| panic!("{e}"));
    let [Some(first), Some(second)] = [0, 1].map(|n| config.listeners[n].users.clone()) else { panic!("no users") };
    assert!(Arc::ptr_eq(&first, &second), "the listeners share no verified passwords");
    assert!(!format!("{config:?}").contains(&hash));

    let file = Scratch::new("bad-users", "\nalice:plain-hunter2\nbob:$apr1$x$y\n");
    let text = format!("version = 1\n[[listener]]\nbind = \"0.0.0.0:1\"\nusers = {:?}\n", file.0.display().to_string());
    let shown = from_text(&text).unwrap_err().to_string();
    let name = file.0.display();
    assert!(shown.contains(&format!("{name}:2: expected a bcrypt hash")), "{shown}");
    assert!(shown.contains(&format!("{name}:3: expected a bcrypt hash")), "{shown}");
    assert!(shown.contains("htpasswd -B") && !shown.contains("hunter2") && shown.lines().count() == 2, "{shown}");
}

#[test]
fn a_tcp_listener_cannot_have_users() {
    let seen = flag_error(&listen(&["tcp://:1/h:1?users=/nonexistent"]));
    assert!(seen.contains("cannot ask for a user name"), "{seen}");
}

#[test]
fn proxy_protocol_accepts_networks_and_addresses() {
    let config = load(None, &listen(&["tcp://:1/h:1?proxy_protocol=10.0.0.0%2F8&proxy_protocol=2001:db8::1"])).unwrap();
    let is_balancer = |address: &str| only_listener(&config).is_load_balancer(address.parse().unwrap());
    for (address, expected) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8::1", true),
        ("2001:db8::2", false),
        ("11.0.0.1", false),
    ] {
        assert_eq!(is_balancer(address), expected, "{address}");
    }
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    for all in ["0.0.0.0%2F0", "::%2F0"] {
        let config = load(None, &listen(&[&format!("tcp://:1/h:1?proxy_protocol={all}")])).unwrap();
        assert!(config.warnings[0].to_string().contains("may claim any client address"), "{:?}", config.warnings);
    }
    for (url, expected) in [
        ("auto://:1?proxy_protocol=balancer", "-L[1].proxy_protocol = \"balancer\": expected a network"),
        (
            "tproxy://:1?interfaces=lan0&proxy_protocol=10.0.0.1",
            "-L[1].proxy_protocol = \"10.0.0.1\": expected this key only with kind",
        ),
        (
            "tun://ekiden0?net=10.9.0.0/16&proxy_protocol=10.0.0.1",
            "-L[1].proxy_protocol = \"10.0.0.1\": expected this key only with kind",
        ),
        (
            "section://:1?proxy_protocol=10.0.0.1",
            "-L[1].proxy_protocol = \"10.0.0.1\": expected this key only with kind",
        ),
        (
            "socks://:1?keep_client_address=true&proxy_protocol=10.0.0.1",
            "-L[1].proxy_protocol = \"10.0.0.1\": expected no proxy_protocol with keep_client_address",
        ),
    ] {
        let shown = flag_error(&listen(&[url]));
        assert!(shown.contains(expected), "{url}: {shown}");
    }
}

/// `:1080` is an address in `bind` of the file, and in `-L`.
#[test]
fn bare_address_is_an_auto_listener() {
    for (text, bind) in [
        (":1080", "127.0.0.1:1080"),
        ("127.0.0.1:1080", "127.0.0.1:1080"),
        ("localhost:1080", "127.0.0.1:1080"),
        ("[::1]:1080?profile=lossy", "[::1]:1080"),
    ] {
        let config = load(None, &listen(&[text])).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(
            (only_listener(&config).kind, only_listener(&config).bind.to_string().as_str()),
            (ListenerKind::Auto, bind),
            "{text}"
        );
    }
    let shown = flag_error(&listen(&["0.0.0.0:1080"]));
    assert!(shown.contains("-L[1].bind = \"0.0.0.0:1080\": expected a loopback address"), "{shown}");
}

#[test]
fn proxy_schemes_map_to_listener_kinds() {
    for (text, kind) in [
        ("socks5://:1080", ListenerKind::Socks),
        ("socks5h://:1080", ListenerKind::Socks),
        ("socks4://:1080", ListenerKind::Socks),
        ("socks4a://:1080", ListenerKind::Socks),
    ] {
        let config = load(None, &listen(&[text])).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((only_listener(&config).kind, only_listener(&config).name.as_str()), (kind, "socks-1080"), "{text}");
    }
    for (text, expected) in [
        ("https://:1080", "-L[1].kind = \"https\": expected one of \"auto\", \"socks\", \"http\""),
        ("https://:1080", "\"section\": write \"http\""),
        ("sock://:1080", "\"section\": write \"socks\""),
    ] {
        let shown = flag_error(&listen(&[text]));
        assert!(shown.contains(expected), "{text}: {shown}");
    }
    let config = valid_config("version = 1\n[[listener]]\nbind = \":1\"\nkind = \"socks5\"");
    assert_eq!(only_listener(&config).kind, ListenerKind::Socks);
}

/// Regression: bind(2) fails with EADDRINUSE for the second listener, and the error at the start blamed another
/// program.
#[test]
fn overlapping_listeners_are_reported() {
    for (one, other, overlap) in [
        ("127.0.0.1:1080", "0.0.0.0:1080", true),
        ("0.0.0.0:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "0.0.0.0:1080", true),
        ("[::]:1080", "[::1]:1080", true),
        ("[::ffff:127.0.0.1]:1080", "127.0.0.1:1080", true),
        ("[::1]:1080", "0.0.0.0:1080", false),
        ("[::1]:1080", "127.0.0.1:1080", false),
        ("127.0.0.2:1080", "127.0.0.1:1080", false),
        ("127.0.0.1:1080", "0.0.0.0:1081", false),
        ("127.0.0.1:0", "0.0.0.0:0", false),
    ] {
        let text = format!(
            "version = 1\n[[listener]]\nbind = \"{one}\"\nallow_open = true\n[[listener]]\nbind = \"{other}\"\nallow_open = true\n"
        );
        let reported = from_text(&text).err().map(|mistakes| mistakes.to_string());
        let expected = format!(
            "configuration:6: listener[2].bind = \"{other}\": expected an address that no other listener uses: \
             listener[1] uses {one}"
        );
        assert_eq!(reported, overlap.then_some(expected), "{one} {other}");
        let admin =
            format!("version = 1\n[[listener]]\nbind = \"{one}\"\nallow_open = true\n[admin]\nbind = \"{other}\"\n");
        let reported = from_text(&admin).err().map(|mistakes| mistakes.to_string()).unwrap_or_default();
        assert_eq!(reported.contains("an address that no listener uses"), overlap, "{one} {other}: {reported}");
    }
}
