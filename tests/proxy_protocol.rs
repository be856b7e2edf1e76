//! The PROXY protocol: headers that the relay receives from load balancers, and headers that it sends to targets.
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
use std::net::{Ipv6Addr, SocketAddr, TcpStream};

use curl::{curl, proxy_option};
use harness::{Folder, Key, Relay, accept, is_closed, read_exactly, server, socks5, wait_read};
use programs::is_any_missing;
use servers::{Haproxy, NginxBehindProxy};

/// A header of version 2 from 192.0.2.7:4660 to 198.51.100.1:443, with a TLV.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11\xc0\0\x02\x07\xc6\x33\x64\x01\x12\x34\x01\xbb\x04\0\x02ab";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Starts a relay whose `tcp` listener accepts headers from loopback addresses. Returns it with its target.
fn trusting_relay() -> (Relay, std::net::TcpListener) {
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
fn header_address_becomes_the_client_address() {
    let (mut relay, listener) = trusting_relay();
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

/// Load balancers send such headers for health checks, or if the address of the client is unknown.
#[test]
fn header_without_addresses_keeps_the_connection_address() {
    let (mut relay, listener) = trusting_relay();
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
fn fragmented_header_is_accepted() {
    let (mut relay, listener) = trusting_relay();
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

#[test]
fn connections_without_a_valid_header_are_closed() {
    let (mut relay, _listener) = trusting_relay();
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
fn incomplete_header_times_out() {
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

/// Connections without a complete header may use an eighth of the descriptors. At the limit, the oldest of them is
/// closed for a new connection.
#[test]
fn connections_without_header_are_limited_and_evicted() {
    let (listener, address) = server();
    let folder = Folder::new();
    // With one thread, connections are accepted in the order of arrival.
    let text = format!(
        "version = 1\nthreads = 1\n[[listener]]\nname = \"door\"\nkind = \"tcp\"\nbind = \"127.0.0.1:0\"\n\
         target = \"{address}\"\nproxy_protocol = [\"127.0.0.1\"]\n"
    );
    let file = folder.write("ekiden.toml", text);
    let relay = Relay::run_with_few_files(&file);
    let mut silent: Vec<TcpStream> = (0..40).map(|_| send(&relay, b"PROXY")).collect();
    assert!(is_closed(&mut silent[0]));
    let _client = send(&relay, b"PROXY UNKNOWN\r\nhello");
    assert_eq!(read_exactly(&mut accept(&listener), 5), b"hello");
    let count = relay.evictions("door");
    assert!(count >= 10, "{count}");
}

#[test]
fn header_is_not_parsed_from_untrusted_sources() {
    let (listener, address) = server();
    let mut relay = Relay::listen(&["socks://127.0.0.1:0?proxy_protocol=10.0.0.0%2F8&proxy_protocol=127.0.0.2"]);
    let client = socks5(relay.address(), address).expect("a tunnel without a header");
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
fn client_limit_applies_to_the_header_address() {
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
    if is_any_missing(&["haproxy", "curl"]) {
        return;
    }
    let url = format!("http://{}/", origin::start());
    for (kind, option) in [("http", "send-proxy"), ("auto", "send-proxy-v2"), ("socks", "send-proxy-v2")] {
        let mut relay = Relay::listen(&[&format!("{kind}://127.0.0.1:0?proxy_protocol=127.0.0.1")]);
        let balancer = Haproxy::start("", relay.address(), option);
        let protocol = if kind == "socks" { "socks5h" } else { "http" };
        curl(&["--interface", "127.0.0.9", &proxy_option(protocol, balancer.address), &url]).assert_ended(0, 200);
        let is_client =
            |event: &serde_json::Value| event["client"].as_str().is_some_and(|client| client.starts_with("127.0.0.9:"));
        let event = relay.next(|event| event["event"] == "closed" && is_client(event));
        assert_eq!(event["end"], "finished", "{option}: {event}");
    }
}

#[test]
fn header_of_curl_is_accepted() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{}?proxy_protocol=127.0.0.1", origin::start())]);
    let url = format!("http://{}/", relay.address());
    curl(&["--haproxy-protocol", &url]).assert_ended(0, 200);
    assert_eq!(relay.closed()["end"], "finished");
    // Without a header, the relay closes the connection.
    assert_ne!(curl(&[&url]).code, 0);
    assert_eq!(relay.closed()["detail"], "no PROXY header");
}

/// Starts a relay with this listener, which sends headers of `version` to all targets.
fn sending_relay(version: &str, listener: &str) -> Relay {
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = [\"direct\"]\nsend_proxy = \"{version}\"\n"
    );
    let file = folder.write("ekiden.toml", text);
    Relay::run(&["-c", file.to_str().unwrap()], 1)
}

/// Reads a header of version 1. Returns the line without its CRLF.
fn read_v1(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(read_exactly(stream, 1));
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Reads a header of version 2. Returns the bytes of command and family, the addresses, and the TLVs.
fn read_v2(stream: &mut TcpStream) -> ([u8; 2], Vec<u8>, Vec<u8>) {
    let fixed = read_exactly(stream, 16);
    assert!(fixed.starts_with(b"\r\n\r\n\0\r\nQUIT\n"), "{fixed:?}");
    let mut addresses = read_exactly(stream, usize::from(u16::from_be_bytes([fixed[14], fixed[15]])));
    let tlvs = addresses.split_off(if fixed[13] == 0x21 { 36 } else { 12 });
    ([fixed[12], fixed[13]], addresses, tlvs)
}

/// Returns the encoded addresses of a header of version 2 for TCP over IPv4.
fn addresses_v4(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (source, destination) else { panic!("IPv4 only") };
    let ports = [source.port(), destination.port()].map(u16::to_be_bytes);
    [source.ip().octets(), destination.ip().octets(), [ports[0][0], ports[0][1], ports[1][0], ports[1][1]]].concat()
}

#[test]
fn a_target_gets_the_addresses_of_the_client_and_the_listener() {
    let (listener, address) = server();
    let fixed = format!("kind = \"tcp\"\ntarget = \"{address}\"");
    let relay = sending_relay("v1", &fixed);
    let client = send(&relay, b"hello");
    let (own, to) = (client.local_addr().unwrap(), relay.address());
    let mut at_server = accept(&listener);
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}", own.port(), to.port());
    assert_eq!((read_v1(&mut at_server), read_exactly(&mut at_server, 5)), (expected, b"hello".to_vec()));

    let relay = sending_relay("v2", &fixed);
    let client = send(&relay, b"hello");
    let (own, to) = (client.local_addr().unwrap(), relay.address());
    let mut at_server = accept(&listener);
    // The session has no trace id, so there is no TLV.
    assert_eq!(read_v2(&mut at_server), ([0x21, 0x11], addresses_v4(own, to), Vec::new()));
    assert_eq!(read_exactly(&mut at_server, 5), b"hello");
}

#[test]
fn received_header_addresses_are_sent_to_the_target() {
    let (listener, address) = server();
    let relay =
        sending_relay("v1", &format!("kind = \"tcp\"\ntarget = \"{address}\"\nproxy_protocol = [\"127.0.0.1\"]"));
    for line in ["PROXY TCP4 203.0.113.9 198.51.100.1 5000 443", "PROXY TCP6 2001:db8::9 2001:db8::1 5000 443"] {
        let _client = send(&relay, format!("{line}\r\nhello").as_bytes());
        let mut at_server = accept(&listener);
        assert_eq!((read_v1(&mut at_server).as_str(), read_exactly(&mut at_server, 5)), (line, b"hello".to_vec()));
    }
}

/// For a client of a SOCKS listener, the destination address in the header is the target.
#[test]
fn sent_header_has_the_target_of_a_proxy_client_as_destination() {
    let (listener, address) = server();
    let relay = sending_relay("v2", "kind = \"socks\"");
    let client = socks5(relay.address(), address).unwrap();
    let (_, addresses, _) = read_v2(&mut accept(&listener));
    assert_eq!(addresses, addresses_v4(client.local_addr().unwrap(), address));
}

#[test]
fn mixed_address_families_are_unknown_in_v1_and_mapped_in_v2() {
    let (listener, address) = server();
    for version in ["v1", "v2"] {
        let relay = sending_relay(version, "kind = \"socks\"\nproxy_protocol = [\"127.0.0.1\"]");
        let SocketAddr::V4(target) = address else { panic!("an IPv4 server") };
        let port = target.port().to_be_bytes();
        let greeting = [b"PROXY TCP6 2001:db8::9 2001:db8::1 5000 443\r\n\x05\x01\0".as_slice(), &[5, 1, 0, 1]];
        let _client = send(&relay, &[&greeting.concat(), target.ip().octets().as_slice(), &port].concat());
        let mut at_server = accept(&listener);
        if version == "v1" {
            assert_eq!(read_v1(&mut at_server), "PROXY UNKNOWN");
            continue;
        }
        let mapped = target.ip().to_ipv6_mapped().octets();
        let source = "2001:db8::9".parse::<Ipv6Addr>().unwrap().octets();
        let (kind, addresses, _) = read_v2(&mut at_server);
        assert_eq!((kind, addresses), ([0x21, 0x21], [source.as_slice(), &mapped, &[0x13, 0x88], &port].concat()));
    }
}

/// A connection to the target begins with the header of one client, and must not carry requests of another client.
#[test]
fn upstream_http_connections_are_not_shared_between_clients() {
    if is_any_missing(&["nginx", "curl"]) {
        return;
    }
    let nginx = NginxBehindProxy::start();
    let url = format!("http://{}/", nginx.address);
    for version in ["v1", "v2"] {
        let mut relay = sending_relay(version, "kind = \"http\"");
        for client in ["127.0.0.9", "127.0.0.10", "127.0.0.9"] {
            // curl sends both requests on one connection.
            let fetched = curl(&["--interface", client, &proxy_option("http", relay.address()), &url, &url]);
            let port = relay.closed()["client"].as_str().unwrap().split_once(':').unwrap().1.to_owned();
            // nginx reports the client's address and the number of the request on its connection: each is the first.
            fetched.assert_success(200, format!("{client}:{port} 1").repeat(2).as_bytes());
        }
        curl(&["--interface", "127.0.0.9", &proxy_option("http", relay.address()), "-p", &url]).assert_ended(0, 200);
    }
}

#[test]
fn haproxy_accepts_the_header() {
    if is_any_missing(&["haproxy"]) {
        return;
    }
    let (listener, address) = server();
    let haproxy = Haproxy::start("accept-proxy", address, "send-proxy");
    for version in ["v1", "v2"] {
        let relay = sending_relay(version, &format!("kind = \"tcp\"\ntarget = \"{}\"", haproxy.address));
        let client = send(&relay, b"hello");
        let (own, to) = (client.local_addr().unwrap(), relay.address());
        let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}", own.port(), to.port());
        let mut at_server = accept(&listener);
        assert_eq!((read_v1(&mut at_server), read_exactly(&mut at_server, 5)), (expected, b"hello".to_vec()));
    }
}

/// The header has the client's address as the first relay reports it, and the trace ID of the session as a TLV.
#[test]
fn last_relay_of_a_path_sends_the_header() {
    let (listener, address) = server();
    let key = Key::new();
    let section = format!("kind = \"section\"\nallow_open = true\nallow_private = true\nkey = {:?}", key.file);
    let mut last = sending_relay("v2", &section);
    let hop = format!("section://{}?key={}", last.address(), key.public);
    let first = Relay::run(&["-L", "socks://127.0.0.1:0", "-F", &hop], 1);
    let client = socks5(first.address(), address).unwrap();
    let mut at_server = accept(&listener);
    let (_, addresses, tlvs) = read_v2(&mut at_server);
    assert_eq!(addresses, addresses_v4(client.local_addr().unwrap(), address));
    drop((client, at_server));
    let trace = last.closed()["trace"].as_str().unwrap().to_owned();
    assert_eq!(tlvs, [&[5, 0, 32], trace.as_bytes()].concat());
}
