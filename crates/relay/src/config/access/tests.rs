use super::*;

fn pattern(text: &str) -> TargetPattern {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn list(texts: &[&str]) -> Vec<TargetPattern> {
    texts.iter().map(|text| pattern(text)).collect()
}

#[test]
fn patterns_read_and_write() {
    for (text, shown) in [
        ("*", "*"),
        ("*:25", "*:25"),
        ("Example.COM", "example.com"),
        ("example.com:443", "example.com:443"),
        ("*.example.com", "*.example.com"),
        ("*.Example.com:8443", "*.example.com:8443"),
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("203.0.113.0/24:80", "203.0.113.0/24:80"),
        ("203.0.113.7", "203.0.113.7/32"),
        ("203.0.113.7:80", "203.0.113.7/32:80"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
        ("[2001:db8::/32]", "2001:db8::/32"),
        ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
        ("[::1]:443", "[::1/128]:443"),
    ] {
        assert_eq!(pattern(text).to_string(), shown);
        assert_eq!(pattern(shown), pattern(text));
    }
}

#[test]
fn broken_patterns_are_refused() {
    for text in [
        "",
        ":80",
        "*.",
        "**",
        "*:",
        "*:0",
        "*:65536",
        "*:+1",
        "a b",
        "*.1.2.3.4",
        "203.0.113.1/24",
        "203.0.113.0/33",
        "2001:db8::/32:443",
        "[2001:db8::/32]443",
        "[example.com]:1",
        "[1.2.3.4]:1",
        "[::1",
        "::ffff:10.0.0.0/104",
        "[::ffff:a00:1]:1",
        "http://x",
        "ex*mple.com",
    ] {
        assert!(text.parse::<TargetPattern>().is_err(), "{text:?} was taken");
    }
}

#[test]
fn patterns_match_names_networks_and_ports() {
    let name = |text| Host::parse(text).unwrap();
    for (text, host, address, port, fits) in [
        ("*", "example.com", None, 1, true),
        ("*:25", "example.com", None, 25, true),
        ("*:25", "example.com", None, 26, false),
        ("example.com", "example.com", None, 1, true),
        ("example.com", "www.example.com", None, 1, false),
        ("*.example.com", "www.example.com", None, 1, true),
        ("*.example.com", "example.com", None, 1, false),
        ("*.example.com", "badexample.com", None, 1, false),
        ("203.0.113.0/24", "example.com", Some("203.0.113.9"), 1, true),
        ("203.0.113.0/24", "example.com", Some("::ffff:203.0.113.9"), 1, true),
        ("203.0.113.0/24", "example.com", None, 1, false),
        ("203.0.113.0/24:80", "example.com", Some("203.0.113.9"), 81, false),
    ] {
        let address = address.map(|text: &str| text.parse().unwrap());
        assert_eq!(pattern(text).matches(&name(host), address, port), fits, "{text} {host} {address:?} {port}");
    }
}

#[test]
fn deny_beats_allow_and_allow_beats_private() {
    let open =
        |allow: &[&str], deny: &[&str]| AccessRules { allow: list(allow), deny: list(deny), ..AccessRules::default() };
    for (access, host, address, port, verdict) in [
        (open(&[], &[]), "example.com", "192.0.2.1", 80, Ok(())),
        (open(&[], &[]), "example.com", "127.0.0.1", 80, Err(Denied::Private)),
        (open(&[], &["*:80"]), "example.com", "192.0.2.1", 80, Err(Denied::Listed)),
        (open(&["example.com"], &["192.0.2.0/24"]), "example.com", "192.0.2.1", 80, Err(Denied::Listed)),
        (open(&["example.com"], &[]), "example.org", "192.0.2.1", 80, Err(Denied::Unlisted)),
        (open(&["example.com"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
        (open(&["10.0.0.0/8"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
        (open(&["*:80"], &[]), "example.com", "169.254.169.254", 80, Err(Denied::Private)),
        (open(&["0.0.0.0/0"], &[]), "example.com", "10.0.0.1", 80, Err(Denied::Private)),
        (open(&["::/0"], &[]), "example.com", "::1", 80, Err(Denied::Private)),
        (open(&["*", "10.0.0.0/8"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
    ] {
        let host = Host::parse(host).unwrap();
        assert_eq!(access.judge(&host, Some(address.parse().unwrap()), port), verdict, "{access:?} {host} {address}");
    }
    let literal = Host::parse("127.0.0.1").unwrap();
    assert_eq!(AccessRules::default().judge(&literal, None, 1), Err(Denied::Private));
    assert_eq!(AccessRules { allow_private: true, ..AccessRules::default() }.judge(&literal, None, 1), Ok(()));
}

#[test]
fn private_addresses_are_known_behind_a_configured_translator() {
    let access = AccessRules { nat64: ["2001:db8:64::/96".parse().unwrap()].into(), ..AccessRules::default() };
    for (ip, verdict) in [
        ("2001:db8:64::10.0.0.1", Err(Denied::Private)),
        ("2001:db8:64::192.0.2.1", Ok(())),
        ("2001:db8:65::10.0.0.1", Ok(())),
    ] {
        assert_eq!(access.judge(&Host::parse(ip).unwrap(), None, 80), verdict, "{ip}");
    }
}
