//! Connections that change to another protocol (RFC 9110, 7.8), as WebSocket does.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::exchange::*;
use crate::harness::*;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

fn upgrade_request(fixture: &Fixture) -> String {
    let fields = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\n";
    fixture.get("/chat").replace("\r\n\r\n", &format!("\r\n{fields}\r\n"))
}

#[test]
fn upgraded_connection_carries_the_new_protocol() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, upgrade_request(&fixture));
    let mut server = fixture.accept();
    let head = Head::read(&mut server);
    assert_eq!((head.all("Connection"), head.all("Upgrade")), (vec!["upgrade"], vec!["websocket"]));
    assert_eq!(head.get("Sec-WebSocket-Key"), Some("abc"));
    send(&mut server, SWITCH);
    let head = Head::read(&mut client);
    assert_eq!((head.status(), head.get("Connection"), head.get("Upgrade")), (101, Some("upgrade"), Some("websocket")));
    for round in 0..10_u8 {
        send(&mut client, [round; 3]);
        assert_eq!(read_exactly(&mut server, 3), [round; 3]);
        send(&mut server, [!round; 2]);
        assert_eq!(read_exactly(&mut client, 2), [!round; 2]);
    }
    let request = fixture.request();
    assert_eq!((&request["status"], &request["method"]), (&101.into(), &"GET".into()));

    let large = pattern(5_000_000);
    let writer = {
        let (mut server, large) = (server.try_clone().unwrap(), large.clone());
        std::thread::spawn(move || send(&mut server, large))
    };
    assert!(read_exactly(&mut client, large.len()) == large);
    join(writer);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"");
    send(&mut server, "last words");
    drop(server);
    assert_eq!(read_all(&mut client), b"last words");
    drop(client);
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["target"]), (&"finished".into(), &fixture.server.to_string().into()));
    assert!(closed["bytes_spliced"].as_u64().unwrap() > 0, "{closed}");
}

/// Both sides send bytes of the new protocol directly after their heads.
#[test]
fn bytes_behind_the_heads_are_not_lost() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let (up, down) = (pattern(20_000), pattern(30_000));
    send(&mut client, [upgrade_request(&fixture).as_bytes(), &up].concat());
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, [SWITCH.as_bytes(), &down].concat());
    assert!(read_exactly(&mut server, up.len()) == up);
    Head::read(&mut client);
    assert!(read_exactly(&mut client, down.len()) == down);
    reset(client);
    assert_closed(&mut server);
}

#[test]
fn declined_upgrade_continues_as_http() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, upgrade_request(&fixture));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, OK);
    expect_ok(&mut client);
    fixture.exchange(&mut client, &mut server, "/next");
}

/// Asserts that the client gets 502 and none of the bytes after the server's 101, and that both connections end.
fn check_not_switched(fixture: &mut Fixture, mut client: TcpStream, mut server: TcpStream, why: &str) {
    let (head, page) = expect_refusal(&mut client, 502, why);
    assert_eq!(head.get("Proxy-Status"), Some("ekiden; error=http_protocol_error"), "{why}");
    assert!(!page.contains("evil"), "{why}");
    assert_closed(&mut server);
    drop(client);
    assert_eq!(fixture.request()["status"], 502, "{why}");
}

#[test]
fn unrequested_101_returns_502() {
    let mut fixture = Fixture::new();
    let host = fixture.server;
    for (fields, why) in [
        ("", "no wish"),
        ("Upgrade: websocket\r\n", "not named by Connection"),
        ("Connection: upgrade\r\n", "without Upgrade"),
        ("Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", "h2c"),
    ] {
        let mut client = fixture.client();
        send(&mut client, format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        let mut server = fixture.accept();
        let head = Head::read(&mut server);
        let hop_by_hop = ["Upgrade", "Connection", "HTTP2-Settings"].map(|name| head.all(name).len());
        assert_eq!(hop_by_hop, [0; 3], "{why}: {}", head.0);
        send(&mut server, format!("{SWITCH}evil"));
        check_not_switched(&mut fixture, client, server, why);
        fixture.relay.closed();
    }
    let mut client = fixture.client();
    send(&mut client, format!("GET http://{host}/ HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"));
    let mut server = fixture.accept();
    assert_eq!(Head::read(&mut server).get("Upgrade"), None, "HTTP/1.0 has no upgrades");
    send(&mut server, SWITCH);
    expect_refusal(&mut client, 502, "HTTP/1.0");
}

/// "A server MUST NOT switch to a protocol that was not indicated by the client" (RFC 9110, 7.8), and must name the new
/// protocol. The relay discards the bytes of an unrequested protocol.
#[test]
fn switch_to_an_unrequested_protocol_returns_502() {
    let mut fixture = Fixture::new();
    for (answered, why) in [
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", "another protocol"),
        ("Connection: upgrade\r\nUpgrade: websocket, h2c\r\n", "another protocol on top"),
        ("Connection: upgrade\r\nUpgrade: websocket/99\r\n", "another version"),
        ("Connection: upgrade\r\nUpgrade: \r\n", "an empty name"),
        ("Connection: upgrade\r\n", "no protocol at all"),
    ] {
        let mut client = fixture.client();
        send(&mut client, upgrade_request(&fixture));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, format!("HTTP/1.1 101 Switching Protocols\r\n{answered}\r\nevil"));
        check_not_switched(&mut fixture, client, server, why);
        assert_eq!(fixture.relay.closed()["end"], "bad_answer", "{why}");
    }
}

/// Protocol names are case-insensitive.
#[test]
fn server_selects_one_of_the_requested_protocols() {
    for (asked, answered) in
        [("websocket", "WebSocket"), ("example/2, websocket", "websocket"), ("a/1, b/2", "b/2, A/1")]
    {
        let fixture = Fixture::new();
        let mut client = fixture.client();
        send(&mut client, upgrade_request(&fixture).replace("Upgrade: websocket", &format!("Upgrade: {asked}")));
        let mut server = fixture.accept();
        assert_eq!(Head::read(&mut server).all("Upgrade"), [asked]);
        send(&mut server, SWITCH.replace("websocket", answered));
        let head = Head::read(&mut client);
        assert_eq!((head.status(), head.get("Upgrade")), (101, Some(answered)));
        send(&mut client, "ping");
        assert_eq!(read_exactly(&mut server, 4), b"ping");
        send(&mut server, "pong");
        assert_eq!(read_exactly(&mut client, 4), b"pong");
    }
}

/// Regression: bytes of the request body that were in transit when the server switched protocols were lost. A server
/// must not switch before it has received the complete request, so the relay refuses the switch.
#[test]
fn switch_before_the_end_of_the_request_returns_502() {
    let mut fixture = Fixture::new();
    // More than the buffers between the client and the server hold.
    let body = pattern(30_000_000);
    let mut client = fixture.client();
    let fields = format!("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: {}\r\n", body.len());
    send(&mut client, fixture.post(&fields));
    let writer = {
        let mut client = client.try_clone().unwrap();
        // The relay may close the connection before it has read the complete body.
        std::thread::spawn(move || drop(client.write_all(&body)))
    };
    let mut server = fixture.accept();
    Head::read(&mut server);
    read_exactly(&mut server, 100_000);
    send(&mut server, SWITCH);
    let (head, _) = read_response(&mut client);
    assert_eq!((head.status(), head.get("Proxy-Status")), (502, Some("ekiden; error=http_protocol_error")));
    read_remaining(&mut server);
    drop(client);
    join(writer);
    assert_eq!(fixture.request()["status"], 502);
    assert_eq!(fixture.relay.closed()["end"], "bad_answer");
}
