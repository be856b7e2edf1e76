use super::*;

#[test]
fn targets_read_and_write() {
    for (text, shown) in [
        ("Example.COM.:80", "example.com:80"),
        ("192.0.2.1:443", "192.0.2.1:443"),
        ("[2001:db8::1]:8080", "[2001:db8::1]:8080"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7:1"),
        ("under_score.test:65535", "under_score.test:65535"),
    ] {
        assert_eq!(Target::parse(text, None).unwrap().to_string(), shown, "{text}");
    }
    assert_eq!(Target::parse("example.com", Some(80)).unwrap().port, 80);
}

#[test]
fn bad_targets_are_refused() {
    for text in [
        "",
        ":80",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "host:-1",
        "::1:80",
        "a b:1",
        "a..b:1",
        "[::1:80",
        "[::1]80",
        "h/ost:1",
        "1.2.3:4",
        "999.1.1.1:4",
        "a\r\n:1",
        "[host]:1",
    ] {
        assert!(Target::parse(text, None).is_err(), "{text:?} was taken");
    }
    assert!(
        Host::parse(&"a.".repeat(127)).is_err()
            || Host::parse(&"a.".repeat(127)).is_ok_and(|h| h.to_string().len() == 253)
    );
    assert!(Host::parse(&"a".repeat(64)).is_err());
}

#[test]
fn networks_hold_what_they_should() {
    let net: Network = "203.0.113.0/24".parse().unwrap();
    assert!(net.contains("203.0.113.255".parse().unwrap()));
    assert!(net.contains("::ffff:203.0.113.9".parse().unwrap()));
    assert!(!net.contains("203.0.114.0".parse().unwrap()));
    let all: Network = "::/0".parse().unwrap();
    assert!(all.contains("2001:db8::1".parse().unwrap()));
    assert!(!all.contains("192.0.2.1".parse().unwrap()));
    for bad in ["203.0.113.1/24", "203.0.113.0/33", "x/8", "::1/129", "10.0.0.0/-1", "10.0.0.0/+8"] {
        assert!(bad.parse::<Network>().is_err(), "{bad}");
    }
}

#[test]
fn private_addresses_are_known_in_every_disguise() {
    for ip in [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.0.1",
        "198.18.0.1",
        "::1",
        "::",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b:1::1",
    ] {
        assert!(is_private(ip.parse().unwrap()), "{ip} passed as public");
    }
    for ip in ["192.0.2.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "2001:db8::1", "64:ff9b::8.8.8.8", "2002:808:808::"]
    {
        assert!(!is_private(ip.parse().unwrap()), "{ip} passed as private");
    }
}
