use std::net::Ipv4Addr;

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
        // Teredo: the client 10.0.0.1, the server 10.0.0.1.
        "2001:0:808:808::f5ff:fffe",
        "2001:0:a00:1::f7f7:f7f7",
        // ISATAP.
        "2001:db8::5efe:10.0.0.1",
        "2001:db8::200:5efe:127.0.0.1",
        "2001:db8::300:5efe:192.168.1.1",
        // IPv4-translated.
        "::ffff:0:10.0.0.1",
    ] {
        assert!(is_private(ip.parse().unwrap(), &[]), "{ip} passed as public");
    }
    for ip in [
        "192.0.2.1",
        "8.8.8.8",
        "100.128.0.1",
        "172.32.0.1",
        "2001:db8::1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::",
        "2001:0:808:808::f7f7:f7f7",
        "2001:db8::5efe:8.8.8.8",
        "2001:db8::1000:5efe:10.0.0.1",
        "::ffff:0:8.8.8.8",
        "::8.8.8.8",
    ] {
        assert!(!is_private(ip.parse().unwrap(), &[]), "{ip} passed as private");
    }
}

/// The addresses of RFC 6052, 2.4, which all contain 192.0.2.33.
#[test]
fn a_nat64_prefix_leads_to_the_address_inside() {
    for (prefix, ip) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ] {
        let (nat64, ip): (Nat64Prefix, Ipv6Addr) = (prefix.parse().unwrap(), ip.parse().unwrap());
        assert_eq!(nat64.embedded_ipv4(ip), Some(Ipv4Addr::new(192, 0, 2, 33)), "{prefix}");
        assert_eq!(nat64.embedded_ipv4("2001:db9::1".parse().unwrap()), None, "{prefix}");
        assert_eq!(nat64.to_string(), prefix);
    }
    for text in ["64:ff9b::/95", "2001:db8::", "192.0.2.0/32", "2001:db8:0:0:ff00::/96", "2001:db8::1/96", "x"] {
        assert_eq!(text.parse::<Nat64Prefix>(), Err(AddrError::Network), "{text}");
    }
}

/// An address of a translator is as private as the IPv4 address in it, also when the prefix is that of a site.
#[test]
fn addresses_behind_a_translator_count_as_the_ones_inside() {
    let nat64 = ["2001:db8:64::/96", "fd00:64::/48", "64:ff9b:1::/96"].map(|text| text.parse().unwrap());
    for (ip, without, with) in [
        ("2001:db8:64::10.0.0.1", false, true),
        ("2001:db8:64::8.8.8.8", false, false),
        ("fd00:64:0:a00:0:100::", true, true),
        ("fd00:64:0:808:8:800::", true, false),
        ("64:ff9b:1::8.8.8.8", true, false),
        ("64:ff9b:1::127.0.0.1", true, true),
        ("64:ff9b:1:1::8.8.8.8", true, true),
    ] {
        let ip = ip.parse().unwrap();
        assert_eq!((is_private(ip, &[]), is_private(ip, &nat64)), (without, with), "{ip}");
    }
}

#[test]
fn a_network_of_one_client_is_one_source() {
    for (client, wanted) in
        [("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::")]
    {
        assert_eq!(source_prefix(client.parse().unwrap()), wanted.parse::<IpAddr>().unwrap(), "{client}");
    }
}
