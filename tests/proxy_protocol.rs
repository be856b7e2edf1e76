//! The PROXY protocol: headers of load balancers in front of the relay, and headers of the relay to servers behind it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "clients/curl.rs"]
mod curl;
#[path = "harness/mod.rs"]
mod harness;
#[path = "clients/origin.rs"]
#[allow(dead_code, reason = "these tests use their own parts of it")]
mod origin;
#[path = "clients/programs.rs"]
mod programs;
#[path = "clients/servers.rs"]
mod servers;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use curl::{by, curl};
use harness::{Folder, Relay, accept, eventually, is_closed, read_exactly, server, socks5};
use programs::missing;
use servers::Haproxy;

/// A header of version 2 from 192.0.2.7:4660 to 198.51.100.1:443, with a TLV.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11\xc0\0\x02\x07\xc6\x33\x64\x01\x12\x34\x01\xbb\x04\0\x02ab";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A `tcp` listener that trusts loopback addresses, and its server.
fn trusting() -> (Relay, std::net::TcpListener) {
    let (listener, address) = server();
    (Relay::listen(&[&format!("tcp://127.0.0.1:0/{address}?proxy_protocol=127.0.0.0%2F8")]), listener)
}

fn send(relay: &Relay, bytes: &[u8]) -> TcpStream {
    let mut client = relay.connect();
    client.set_nodelay(true).unwrap();
    client.write_all(bytes).unwrap();
    client
}

#[test]
fn the_address_in_the_header_is_the_clients() {
    let (mut relay, listener) = trusting();
    for (header, client) in [
        (b"PROXY TCP4 203.0.113.9 198.51.100.1 5000 443\r\n".as_slice(), "203.0.113.9:5000"),
        (b"PROXY TCP6 2001:db8::9 2001:db8::1 5000 443\r\n", "[2001:db8::9]:5000"),
        (b"PROXY TCP6 ::ffff:203.0.113.9 ::1 5000 443\r\n", "203.0.113.9:5000"),
        (V2, "192.0.2.7:4660"),
    ] {
        let stream = send(&relay, &[header, b"hello"].concat());
        let mut at_server = accept(&listener);
        assert_eq!(read_exactly(&mut at_server, 5), b"hello", "{client}");
        assert_eq!(relay.sessions()[0]["client"], client);
        drop((stream, at_server));
        assert_eq!(relay.closed()["client"], client);
    }
}

/// The header of a health check, and of a balancer that does not know its client.
#[test]
fn headers_without_addresses_leave_the_address_of_the_connection() {
    let (mut relay, listener) = trusting();
    for header in [b"PROXY UNKNOWN\r\n".as_slice(), b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", V2_LOCAL] {
        let stream = send(&relay, &[header, b"hello"].concat());
        let own = stream.local_addr().unwrap().to_string();
        let mut at_server = accept(&listener);
        assert_eq!(read_exactly(&mut at_server, 5), b"hello");
        drop((stream, at_server));
        assert_eq!(relay.closed()["client"], own);
    }
}

#[test]
fn a_header_may_come_in_pieces() {
    let (mut relay, listener) = trusting();
    for (header, client) in
        [(b"PROXY TCP4 203.0.113.9 198.51.100.1 5000 443\r\n".as_slice(), "203.0.113.9:5000"), (V2, "192.0.2.7:4660")]
    {
        let mut stream = send(&relay, &header[..8]);
        wait_read(&stream);
        stream.write_all(&header[8..header.len() - 1]).unwrap();
        wait_read(&stream);
        stream.write_all(&[&header[header.len() - 1..], b"hello"].concat()).unwrap();
        let mut at_server = accept(&listener);
        assert_eq!(read_exactly(&mut at_server, 5), b"hello");
        drop((stream, at_server));
        assert_eq!(relay.closed()["client"], client);
    }
}

/// Waits until the relay has read all bytes of `stream`: its receive queue is empty (proc(5), /proc/net/tcp).
fn wait_read(stream: &TcpStream) {
    let hex = |address: SocketAddr| format!(":{:04X}", address.port());
    let (relay, own) = (hex(stream.peer_addr().unwrap()), hex(stream.local_addr().unwrap()));
    eventually("the relay to read", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut of_relay = fields.filter(|fields| fields[1].ends_with(&relay) && fields[2].ends_with(&own));
        of_relay.next().filter(|fields| fields[4].ends_with(":00000000")).map(|_| ())
    });
}

#[test]
fn connections_without_a_valid_header_are_closed() {
    let (mut relay, _listener) = trusting();
    for (bytes, detail) in [
        (b"\x05\x01\x00".as_slice(), "no PROXY header"),
        (b"GET / HTTP/1.1\r\n\r\n", "no PROXY header"),
        (b"PROXY TCP4 203.0.113.9 5000\r\n", "malformed PROXY header of version 1"),
        (&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat(), "too large"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04\xc0\0\x02\x07", "PROXY header too short for its addresses"),
    ] {
        let mut stream = send(&relay, bytes);
        assert!(is_closed(&mut stream), "{detail}");
        let event = relay.closed();
        let own = stream.local_addr().unwrap().to_string();
        assert_eq!(
            (&event["end"], &event["detail"], &event["client"]),
            (&"bad_handshake".into(), &detail.into(), &own.into())
        );
    }
}

#[test]
fn a_header_that_does_not_come_is_not_waited_for() {
    let folder = Folder::new();
    let file = folder.write(
        "ekiden.toml",
        "version = 1\n[timeouts]\nhandshake = \"300ms\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\nproxy_protocol = [\"127.0.0.1\"]\n",
    );
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let mut stream = send(&relay, b"PROXY TCP4 ");
    assert!(is_closed(&mut stream));
    let event = relay.closed();
    assert_eq!((&event["end"], &event["detail"]), (&"handshake_timeout".into(), &"no complete PROXY header".into()));
    drop(send(&relay, b"PROXY"));
    assert_eq!(relay.closed()["end"], "left_early");
}

#[test]
fn other_sources_are_ordinary_clients() {
    let (listener, address) = server();
    let mut relay = Relay::listen(&["socks://127.0.0.1:0?proxy_protocol=10.0.0.0%2F8&proxy_protocol=127.0.0.2"]);
    let client = socks5(relay.address(), address).expect("it is served without a header");
    drop((accept(&listener), client));
    assert_eq!(relay.closed()["end"], "finished");
    let mut stream = send(&relay, b"PROXY TCP4 203.0.113.9 198.51.100.1 5000 443\r\n\x05\x01\x00");
    assert!(is_closed(&mut stream));
    let event = relay.closed();
    assert_eq!(
        (&event["detail"], &event["client"]),
        (&"not SOCKS".into(), &stream.local_addr().unwrap().to_string().into())
    );
}

#[test]
fn limits_count_the_client_in_the_header() {
    let (listener, address) = server();
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[limits]\nsessions_per_client = 1\n\
         [[listener]]\nkind = \"tcp\"\nbind = \"127.0.0.1:0\"\ntarget = \"{address}\"\nproxy_protocol = [\"127.0.0.1\"]\n"
    );
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let open = |last: u8| send(&relay, format!("PROXY TCP4 203.0.113.{last} 198.51.100.1 5000 443\r\n").as_bytes());
    let (one, other) = (open(1), open(2));
    let at_server = [accept(&listener), accept(&listener)];
    let mut second = open(1);
    assert!(is_closed(&mut second));
    let event = relay.closed();
    assert_eq!((&event["end"], &event["client"]), (&"client_limit".into(), &"203.0.113.1:5000".into()));
    drop((one, other, at_server));
}

#[test]
fn haproxy_reports_its_clients() {
    if missing(&["haproxy", "curl"]) {
        return;
    }
    let url = format!("http://{}/", origin::start());
    for (kind, option) in [("http", "send-proxy"), ("auto", "send-proxy-v2"), ("socks", "send-proxy-v2")] {
        let mut relay = Relay::listen(&[&format!("{kind}://127.0.0.1:0?proxy_protocol=127.0.0.1")]);
        let balancer = Haproxy::start("", relay.address(), option);
        let protocol = if kind == "socks" { "socks5h" } else { "http" };
        curl(&["--interface", "127.0.0.9", &by(protocol, balancer.address), &url]).ended(0, 200);
        let is_client =
            |event: &serde_json::Value| event["client"].as_str().is_some_and(|client| client.starts_with("127.0.0.9:"));
        let event = relay.next(|event| event["event"] == "closed" && is_client(event));
        assert_eq!(event["end"], "finished", "{option}: {event}");
    }
}

#[test]
fn curl_sends_a_header() {
    if missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{}?proxy_protocol=127.0.0.1", origin::start())]);
    let url = format!("http://{}/", relay.address());
    curl(&["--haproxy-protocol", &url]).ended(0, 200);
    assert_eq!(relay.closed()["end"], "finished");
    // Without a header, the relay closes the connection.
    assert_ne!(curl(&[&url]).code, 0);
    assert_eq!(relay.closed()["detail"], "no PROXY header");
}
