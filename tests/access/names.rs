//! Names that resolve to private addresses: the responses of an open listener must not reveal that such a name exists.

use std::io::Write;

use crate::curl::{curl, proxy_option};
use crate::harness::{Folder, Key, Relay, answer_from, connect, name_server, read_remaining};
use crate::programs::is_any_missing;

/// Names of the name server, and their addresses. The reserved top-level domain `test` (RFC 6761) keeps them out of the
/// hosts file.
const NAMES: [(&str, &str); 5] = [
    ("private.test", "10.9.8.7"),
    ("host.test", "127.0.0.1"),
    ("metadata.test", "169.254.169.254"),
    ("local.test", "fd00::1"),
    ("public.test", "192.0.2.1"),
];

/// A name that does not exist, of the same length as `private.test`.
const MISSING: &str = "nothere.test";

fn start(folder: &Folder, name: &str, listener: &str, key: Option<&Key>) -> Relay {
    let key = key.map_or_else(String::new, |key| format!("private_key = \"{}\"\n", key.file.display()));
    let text = format!("version = 1\n{key}{listener}\n[dns]\nservers = [\"{}\"]\n", name_server(answer_from(&NAMES)));
    let file = folder.write(name, text);
    Relay::run(&["-c", file.to_str().unwrap()], 1)
}

const OPEN: &str = "[[listener]]\nbind = \"127.0.0.1:0\"\nallow_private = false\n";

/// Starts a relay with the settings of an open listener; with `is_chain`, it forwards to a second relay, which resolves
/// the names.
fn relays(folder: &Folder, is_chain: bool) -> Vec<Relay> {
    if !is_chain {
        return vec![start(folder, "alone.toml", OPEN, None)];
    }
    let key = Key::new();
    let listener = format!("{OPEN}kind = \"section\"\n");
    let far = start(folder, "far.toml", &listener, Some(&key));
    let forward = format!("section://{}?key={}", far.address(), key.public.replace('+', "%2B").replace('/', "%2F"));
    let home = start(folder, "home.toml", &format!("forward = [\"{forward}\"]\n{OPEN}"), None);
    vec![home, far]
}

/// Requests port 8080 of `name` by each protocol. Returns the protocols and the bytes of the responses.
fn responses(relay: &Relay, name: &str) -> Vec<(String, Vec<u8>)> {
    let target = format!("{name}:8080");
    let length = u8::try_from(name.len()).unwrap();
    let socks5 = [&[5, 1, 0, 5, 1, 0, 3, length], name.as_bytes(), &8080_u16.to_be_bytes()].concat();
    let socks4 = [&[4, 1], &8080_u16.to_be_bytes()[..], &[0, 0, 0, 1, 0], name.as_bytes(), &[0]].concat();
    let requests = [
        ("CONNECT", format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()),
        ("GET", format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()),
        ("HEAD", format!("HEAD http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()),
        ("FTP", format!("GET ftp://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()),
        ("SOCKS5", socks5),
        ("SOCKS4a", socks4),
    ];
    let exchange = |(protocol, request): (&str, Vec<u8>)| {
        let mut client = connect(relay.address());
        client.write_all(&request).unwrap();
        (protocol.to_owned(), read_remaining(&mut client).0)
    };
    requests.into_iter().map(exchange).collect()
}

#[test]
fn names_with_private_addresses_look_nonexistent() {
    let folder = Folder::new();
    for is_chain in [false, true] {
        let mut relays = relays(&folder, is_chain);
        let missing = responses(&relays[0], MISSING);
        assert!(missing.iter().all(|(_, answer)| !answer.is_empty()), "{missing:?}");
        for _ in &missing {
            assert_eq!(relays[0].closed()["end"], "name_not_found");
        }
        for (name, _) in NAMES.iter().filter(|(name, _)| *name != "public.test") {
            for ((protocol, answer), (_, expected)) in responses(&relays[0], name).iter().zip(&missing) {
                let (answer, expected) = (String::from_utf8_lossy(answer), String::from_utf8_lossy(expected));
                assert_eq!(answer, expected, "{protocol} of {name}, chain: {is_chain}");
            }
        }
        // The relay that resolved the name logs the cause.
        let last = relays.last_mut().unwrap();
        let denied = last.next(|event| event["event"] == "closed" && event["end"] == "denied");
        assert!(denied["detail"].as_str().is_some_and(|detail| detail.contains("private")), "{denied}");
    }
}

/// A denied network in a list must not reveal that a name resolves to an address of the network.
#[test]
fn deny_and_allow_lists_do_not_reveal_private_addresses() {
    let folder = Folder::new();
    for (file, rules) in [
        ("denied.toml", "deny = [\"10.0.0.0/8\", \"127.0.0.0/8\", \"169.254.0.0/16\", \"fd00::/8\"]"),
        ("unlisted.toml", "allow = [\"*.example.com\", \"198.51.100.0/24\"]"),
    ] {
        let relay = start(&folder, file, &format!("{OPEN}{rules}\n"), None);
        let missing = responses(&relay, MISSING);
        for (name, _) in NAMES.iter().filter(|(name, _)| *name != "public.test") {
            assert_eq!(responses(&relay, name), missing, "{name}, {rules}");
        }
    }
}

/// Public addresses are no secret, so a name with a denied public address gets the status 403.
#[test]
fn forbidden_public_address_is_answered_as_not_allowed() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    let mut relay = start(&folder, "public.toml", &format!("{OPEN}deny = [\"192.0.2.0/24\"]\n"), None);
    curl(&[&proxy_option("http", relay.address()), "http://public.test:8080/"]).assert_ended(0, 403);
    assert_eq!(relay.closed()["end"], "denied");
    curl(&[&proxy_option("http", relay.address()), "http://private.test:8080/"]).assert_ended(0, 502);
    curl(&[&proxy_option("http", relay.address()), "http://10.9.8.7:8080/"]).assert_ended(0, 403);
}
