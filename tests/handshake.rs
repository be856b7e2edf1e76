//! SOCKS handshakes of correct and faulty clients, reply codes, and permitted targets.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use harness::*;

fn v4(address: SocketAddr) -> [u8; 6] {
    let SocketAddr::V4(v4) = address else { panic!("IPv4 only") };
    let ([a, b, c, d], [high, low]) = (v4.ip().octets(), v4.port().to_be_bytes());
    [a, b, c, d, high, low]
}

/// Checks that a connection to `greeter("hello")` carries bytes in both directions.
fn assert_greeting_and_echo(mut stream: TcpStream) {
    assert_eq!(read_exactly(&mut stream, 5), b"hello");
    assert_echo(&mut stream);
}

#[test]
fn every_socks_version_reaches_the_target() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let target = greeter("hello");
    assert_greeting_and_echo(socks5(relay.address(), target).unwrap());
    assert_eq!(relay.closed()["target"], target.to_string());

    let [a, b, c, d, high, low] = v4(target);
    let mut socks4 = relay.connect();
    socks4.write_all(&[4, 1, high, low, a, b, c, d, b'm', b'e', 0]).unwrap();
    assert_eq!(read_exactly(&mut socks4, 8)[..2], [0, 90]);
    assert_greeting_and_echo(socks4);

    let mut socks4a = relay.connect();
    socks4a.write_all(&[4, 1, high, low, 0, 0, 0, 1, 0]).unwrap();
    socks4a.write_all(b"localhost\0").unwrap();
    assert_eq!(read_exactly(&mut socks4a, 8)[..2], [0, 90]);
    assert_greeting_and_echo(socks4a);
}

#[test]
fn handshakes_work_byte_by_byte_and_in_one_segment() {
    let relay = Relay::listen(&["socks://127.0.0.1:0"]);
    let target = greeter("hello");
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(v4(target));

    let mut slow = relay.connect();
    slow.set_nodelay(true).unwrap();
    for byte in &request {
        slow.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_exactly(&mut slow, 12)[..4], [5, 0, 5, 0]);
    assert_greeting_and_echo(slow);

    // This client sends its payload directly behind the request, before it receives a reply.
    let mut optimistic = relay.connect();
    request.extend(b"early");
    optimistic.write_all(&request).unwrap();
    assert_eq!(read_exactly(&mut optimistic, 12)[..4], [5, 0, 5, 0]);
    assert_eq!(read_exactly(&mut optimistic, 10), b"helloearly");
}

#[test]
fn reply_codes_match_the_cause() {
    let relay = Relay::listen(&["auto://127.0.0.1:0?deny=*.forbidden.test&deny=198.51.100.0/24"]);
    let reply = |request: &[u8]| socks5_request(relay.address(), request).map(|_| ()).unwrap_err();
    let named = |name: &str| [&[5, 1, 0, 3, name.len() as u8], name.as_bytes(), &[0, 80]].concat();

    assert_eq!(socks5(relay.address(), unused_address()).map(|_| ()), Err(5), "refused");
    assert_eq!(reply(&named("nosuch.invalid")), 4, "name not found");
    assert_eq!(reply(&named("a.forbidden.test")), 2, "forbidden by name");
    assert_eq!(reply(&[5, 1, 0, 1, 198, 51, 100, 7, 0, 80]), 2, "forbidden by network");
    assert_eq!(reply(&[5, 2, 0, 1, 127, 0, 0, 1, 0, 80]), 7, "BIND");
    assert_eq!(reply(&[5, 9, 0, 1, 127, 0, 0, 1, 0, 80]), 7, "unknown command");
    assert_eq!(reply(&[5, 1, 0, 9, 127, 0, 0, 1, 0, 80]), 8, "unknown address type");
}

#[test]
fn names_of_forbidden_addresses_are_denied() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0?deny=127.0.0.0/8&deny=::1/128"]);
    let request = [&[5, 1, 0, 3, 9][..], b"localhost", &[0, 80]].concat();
    assert_eq!(socks5_request(relay.address(), &request).map(|_| ()), Err(2));
    assert_eq!(relay.closed()["end"], "denied");
}

/// Clients of an open listener reach private addresses, such as those of the relay's own host, only with
/// `allow_private`.
#[test]
fn open_listeners_deny_private_targets_by_default() {
    let relay =
        Relay::listen(&["auto://0.0.0.0:0?allow_open=true", "auto://0.0.0.0:0?allow_open=true&allow_private=true"]);
    let target = greeter("hello");
    let at = |index: usize| SocketAddr::from(([127, 0, 0, 1], relay.address_of(index).port()));
    for private in
        [[127, 0, 0, 1], [10, 0, 0, 1], [169, 254, 169, 254], [100, 64, 0, 1], [192, 168, 0, 1], [0, 0, 0, 0]]
    {
        let refused = socks5(at(0), SocketAddr::from((private, target.port())));
        assert_eq!(refused.map(|_| ()), Err(2), "{private:?}");
    }
    assert_greeting_and_echo(socks5(at(1), target).unwrap());
}

#[test]
fn garbage_ends_the_session_and_not_the_relay() {
    let mut relay = Relay::listen(&["socks://127.0.0.1:0"]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], &[5, 0]] {
        let mut client = relay.connect();
        client.write_all(garbage).unwrap();
        assert!(is_closed(&mut client), "{garbage:?}");
        assert_eq!(relay.closed()["end"], "bad_handshake", "{garbage:?}");
    }
    assert_greeting_and_echo(socks5(relay.address(), greeter("hello")).unwrap());
}

#[test]
fn invalid_targets_get_an_answer() {
    let mut relay = Relay::listen(&["socks://127.0.0.1:0"]);
    let mut socks4 = relay.connect();
    socks4.write_all(&[4, 1, 0, 0, 192, 0, 2, 1, 0]).unwrap();
    assert_eq!(read_exactly(&mut socks4, 2), [0, 91], "port 0");
    assert_eq!(relay.closed()["end"], "bad_handshake");
    let long_label = [&[3, 64][..], &[b'a'; 64], &[0, 80]].concat();
    for target in [&[1, 192, 0, 2, 1, 0, 0][..], &[3, 2, 0xc3, 0xa9, 0, 80], &long_label] {
        let mut client = relay.connect();
        client.write_all(&[&[5, 1, 0, 5, 1, 0][..], target].concat()).unwrap();
        assert_eq!(read_exactly(&mut client, 4), [5, 0, 5, 1], "a general failure (RFC 1928, 6): {target:?}");
        assert_eq!(relay.closed()["end"], "bad_handshake", "{target:?}");
    }
}

#[test]
fn only_users_with_the_right_password_get_access() {
    let folder = Folder::new();
    // The bcrypt hash of the password "baton" at cost 4, created with crypt(3).
    let users = folder.write("users", "runner:$2b$04$viMzP/EMi/LpemU8Fzw1qeBk.G4z/ZJbDd71mBZVhESZ9/hS5tBz2\n");
    let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0?users={}", users.display())]);
    let address = relay.address();
    let log_in = |password: &[u8]| {
        let mut client = connect(address);
        client.write_all(&[5, 2, 0, 2]).unwrap();
        assert_eq!(read_exactly(&mut client, 2), [5, 2]);
        client.write_all(&[&[1, 6][..], b"runner", &[password.len() as u8], password].concat()).unwrap();
        (read_exactly(&mut client, 2)[1], client)
    };
    let target = greeter("hello");
    let (verdict, mut client) = log_in(b"baton");
    assert_eq!(verdict, 0);
    client.write_all(&[&[5, 1, 0, 1][..], &v4(target)].concat()).unwrap();
    assert_eq!(read_exactly(&mut client, 10)[1], 0);
    assert_greeting_and_echo(client);
    assert_eq!(relay.closed()["user"], "runner");

    assert_ne!(log_in(b"wrong").0, 0);
    assert_eq!(relay.closed()["end"], "unauthenticated");

    let mut without = relay.connect();
    without.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_exactly(&mut without, 2), [5, 0xff]);
    assert!(is_closed(&mut without));

    let mut old = relay.connect();
    old.write_all(&[4, 1, 0, 80, 127, 0, 0, 1, 0]).unwrap();
    assert_eq!(read_exactly(&mut old, 2), [0, 91], "SOCKS4 has no passwords");
}
