//! Kept connections to servers: which requests may use them, dead connections, and the lifetime.

use std::io::Read;
use std::net::TcpStream;

use crate::exchange::*;
use crate::harness::*;

/// All threads share one pool: with one pool for each thread, most requests would not find the kept connection.
#[test]
fn clients_of_all_threads_share_a_kept_connection() {
    const REQUESTS: usize = 24;
    let mut fixture = Fixture::with("threads = 4\n");
    let (client, mut server) = fixture.keep_alive_pair();
    drop(client);
    fixture.relay.closed();
    for number in 1..REQUESTS {
        let mut client = fixture.client();
        fixture.exchange(&mut client, &mut server, &format!("/{number}"));
        drop(client);
        let up = &fixture.relay.closed()["up"];
        assert_eq!((&up["start"], &up["earlier_sessions"]), (&"reused".into(), &number.into()));
        assert!(up["segments_out"].as_u64().unwrap() < 10, "segments of one request: {up}");
    }
    fixture.assert_not_contacted("a request on a second connection");
    let reused: Vec<_> = (0..REQUESTS).map(|_| fixture.request()["reused"] == true).collect();
    assert_eq!(reused, [vec![false], vec![true; REQUESTS - 1]].concat());
    let lookups = ["hit", "miss", "stale"].map(|result| fixture.lookups(result));
    assert_eq!(lookups, [REQUESTS - 1, 1, 0]);
}

/// A kept connection is used by one session at a time, even if all threads need a connection.
#[test]
fn kept_connection_serves_a_single_client_at_a_time() {
    const CLIENTS: usize = 8;
    let mut fixture = Fixture::with("threads = 4\n");
    for round in 0..4 {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| fixture.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            send(client, fixture.get(&format!("/{round}/{number}")));
        }
        if round == 0 {
            // The pool is empty until the first responses, so each client gets a new connection.
            let servers: Vec<_> = (0..CLIENTS).map(|_| fixture.accept()).collect();
            servers.into_iter().for_each(|server| drop(std::thread::spawn(move || echo_paths(server))));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(read_response(client).1, format!("/{round}/{number}").as_bytes());
        }
        (0..CLIENTS).for_each(|_| drop(fixture.request()));
    }
    fixture.assert_not_contacted("a request on another connection");
}

/// Answers each request with its path, until the relay closes the connection.
fn echo_paths(mut server: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while let Ok(1) = server.read(&mut byte) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().to_owned();
        send(&mut server, format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()));
        head.clear();
    }
}

/// The server closes between two requests: the relay must detect this before it sends the second request.
#[test]
fn kept_connection_closed_by_the_server_is_not_used() {
    let mut fixture = Fixture::new();
    for close in [drop::<TcpStream>, reset] {
        let (mut client, server) = fixture.keep_alive_pair();
        close(server);
        send(&mut client, fixture.get("/second"));
        let mut server = fixture.accept();
        assert_eq!(Head::read(&mut server).line(), "GET /second HTTP/1.1");
        send(&mut server, OK);
        expect_ok(&mut client);
        let requests = [fixture.request(), fixture.request()].map(|request| request["reused"].clone());
        assert_eq!(requests, [false, false]);
        drop(client);
        fixture.relay.closed();
    }
}

/// The server closes when the request arrives, after the relay has checked the connection.
#[test]
fn safe_request_is_retried_on_a_fresh_connection() {
    let mut fixture = Fixture::new();
    for close in [drop::<TcpStream>, reset] {
        let (mut client, mut server) = fixture.keep_alive_pair();
        fixture.request();
        send(&mut client, fixture.get("/second"));
        assert_eq!(Head::read(&mut server).line(), "GET /second HTTP/1.1");
        close(server);
        let mut server = fixture.accept();
        assert_eq!(Head::read(&mut server).line(), "GET /second HTTP/1.1");
        send(&mut server, OK);
        expect_ok(&mut client);
        let request = fixture.request();
        assert_eq!((&request["status"], &request["reused"]), (&200.into(), &false.into()));
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "finished");
    }
}

/// A partial response proves that the server has received the request, so the relay must not repeat the request.
#[test]
fn request_is_not_retried_after_the_response_has_begun() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    fixture.request();
    send(&mut client, fixture.get("/second"));
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 2");
    drop(server);
    expect_refusal(&mut client, 502, "half a head");
    drop(client);
    assert_eq!(fixture.request()["status"], 502);
    assert_eq!(fixture.relay.closed()["end"], "reset");
    fixture.assert_not_contacted("a repeated request");
}

#[test]
fn unsafe_requests_do_not_use_kept_connections() {
    let mut fixture = Fixture::new();
    let (mut client, mut kept) = fixture.keep_alive_pair();
    fixture.request();
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let request = fixture.post("Content-Length: 5\r\n").replacen("POST", method, 1);
        send(&mut client, request + "hello");
        let mut fresh = fixture.accept();
        assert_eq!(Head::read(&mut fresh).line(), format!("{method} /form HTTP/1.1"));
        assert_eq!(read_exactly(&mut fresh, 5), b"hello");
        send(&mut fresh, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        expect_ok(&mut client);
        let request = fixture.request();
        assert_eq!((&request["method"], &request["reused"]), (&method.into(), &false.into()));
    }
    // The kept connection is still in the pool, for requests with a safe method.
    fixture.exchange(&mut client, &mut kept, "/again");
    assert_eq!(fixture.request()["reused"], true);
}

/// A request that fails on a fresh connection is not repeated, because the server may have processed it.
#[test]
fn failed_request_on_a_fresh_connection_is_not_retried() {
    let mut fixture = Fixture::new();
    for request in [fixture.get("/"), fixture.post("Content-Length: 0\r\n")] {
        let mut client = fixture.client();
        send(&mut client, request);
        let mut server = fixture.accept();
        Head::read(&mut server);
        drop(server);
        expect_refusal(&mut client, 502, "no answer");
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "reset");
        fixture.assert_not_contacted("a repeated request");
    }
}

#[test]
fn kept_connections_expire() {
    let fixture = Fixture::with("[timeouts]\nkept_idle = \"100ms\"\n");
    let (mut client, mut server) = fixture.keep_alive_pair();
    assert_closed(&mut server);
    send(&mut client, fixture.get("/second"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, OK);
    expect_ok(&mut client);
}

/// The limit applies to the process; a limit for each thread would keep four times as many connections.
#[test]
fn number_of_kept_connections_is_limited() {
    let mut fixture = Fixture::with("threads = 4\n[limits]\nkept_connections = 1\n");
    let mut pairs = Vec::new();
    for _ in 0..8 {
        let mut client = fixture.client();
        send(&mut client, fixture.get("/"));
        let mut server = fixture.accept();
        Head::read(&mut server);
        pairs.push((client, server));
    }
    for (client, server) in &mut pairs {
        send(server, OK);
        expect_ok(client);
        fixture.request();
    }
    pairs[1..].iter_mut().for_each(|(_, server)| assert_closed(server));
    // The relay has kept the first connection, and uses it again.
    let (client, server) = &mut pairs[0];
    fixture.exchange(client, server, "/again");
    assert_eq!(fixture.request()["reused"], true);

    let fixture = Fixture::with("[limits]\nkept_connections = 0\n");
    let (_client, mut server) = fixture.keep_alive_pair();
    assert_closed(&mut server);
}

#[test]
fn idle_client_is_closed_after_keep_alive() {
    let mut fixture = Fixture::with("[timeouts]\nkeep_alive = \"300ms\"\n");
    let (mut client, _server) = fixture.keep_alive_pair();
    assert_closed(&mut client);
    assert_eq!(fixture.relay.closed()["end"], "idle");
}

/// A listener that denies a server must not use a kept connection to this server that another listener has dialled.
/// With `resolve = "here"` the rules apply to the address of the name, which the relay has passed on to the hop.
#[test]
fn kept_connection_does_not_bypass_a_deny_rule() {
    const LISTENERS: &str = "kind = \"http\"\n\
        [[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"http\"\ndeny = [\"127.0.0.1\", \"::1\"]\n";
    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let hop = format!("[[relay]]\nname = \"proxy\"\nurl = \"socks5://{}\"\n", proxy.address());
    let by_proxy = format!("threads = 4\n{hop}[[route]]\npath = \"proxy\"\nresolve = \"here\"\n");
    for (settings, host) in [("threads = 4\n", "127.0.0.1"), (by_proxy.as_str(), "localhost")] {
        let mut fixture = Fixture::with_listener(settings, LISTENERS);
        let (address, mut client) = (fixture.server, fixture.client());
        let request = |path| get(address, path).replace("127.0.0.1", host);
        send(&mut client, request("/first"));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, OK);
        expect_ok(&mut client);
        fixture.request();
        let mut banned = connect(fixture.relay.address_of(1));
        send(&mut banned, request("/secret"));
        let reached = eventually("an answer to the forbidden request", || {
            is_readable(&banned).then_some("no").or(is_readable(&server).then_some("yes"))
        });
        assert_eq!(reached, "no", "the forbidden server {host} got the request");
        banned.set_nonblocking(false).unwrap();
        server.set_nonblocking(false).unwrap();
        let (head, _) = expect_refusal(&mut banned, 403, "a forbidden server");
        assert_eq!(head.get("Proxy-Status"), Some("ekiden; error=destination_ip_prohibited"));
        drop(banned);
        assert_eq!(fixture.relay.closed()["end"], "denied");
        // Permitted clients can still use the connection.
        let mut other = fixture.client();
        send(&mut other, request("/second"));
        assert_eq!(Head::read(&mut server).line(), "GET /second HTTP/1.1");
        send(&mut server, OK);
        expect_ok(&mut other);
    }
}

/// NTLM and Negotiate (RFC 4559) authenticate the connection, not the request: the next client on the connection would
/// act as the authenticated user.
#[test]
fn connection_with_ntlm_or_negotiate_is_not_shared() {
    for (asked, answered) in [
        ("Authorization: Negotiate YII=\r\n", ""),
        ("Authorization: NTLM TlRM\r\n", ""),
        ("", "WWW-Authenticate: Negotiate\r\n"),
        ("", "WWW-Authenticate: Basic realm=\"x\", NTLM TlRM\r\n"),
    ] {
        let mut fixture = Fixture::with("threads = 4\n");
        let mut client = fixture.client();
        send(&mut client, fixture.get("/mine").replace("\r\n\r\n", &format!("\r\n{asked}\r\n")));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, OK.replace("\r\n\r\n", &format!("\r\n{answered}\r\n")));
        expect_ok(&mut client);
        fixture.request();
        let mut other = fixture.client();
        send(&mut other, fixture.get("/theirs"));
        let mut own = eventually("the other client's request", || {
            assert!(!is_readable(&server), "{asked}{answered}: the other client uses the first client's connection");
            fixture.listener.accept().ok()
        })
        .0;
        own.set_nonblocking(false).unwrap();
        assert_eq!(Head::read(&mut own).line(), "GET /theirs HTTP/1.1");
        send(&mut own, OK);
        expect_ok(&mut other);
    }
}

/// Returns whether a byte can be read. Leaves the stream non-blocking.
fn is_readable(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.peek(&mut [0]), Ok(1))
}
