//! Path selection for each kind of listener.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use serde_json::Value;

use crate::fixture::*;
use crate::harness::*;
use crate::network::*;

/// Length of a response in bytes, in a test that uses only the completion time.
const SMALL: usize = 30_000;

#[test]
fn path_is_chosen_for_connect_http_and_tcp_clients() {
    let Some(mut fixture) = Fixture::new("[[route]]\npath = \"auto\"\ndefault = \"b\"\n") else { return };
    fixture.disconnect_server("home");
    let target = fixture.target();
    let mut tunnel = fixture.row["home"].connect(HOME.parse().unwrap());
    write!(tunnel, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    assert!(read_head(&mut tunnel).starts_with("HTTP/1.1 200"));
    request_bytes(&mut tunnel, 5000);
    let origin = origin(&fixture, b"ok".to_vec());
    let mut client = fixture.row["home"].connect(HOME.parse().unwrap());
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(read_exactly(&mut client, 2), b"ok");
    drop((client, tunnel));
    for _ in 0..2 {
        let closed = fixture.home.relay.next(|event| event["event"] == "closed" && event["target"].is_string());
        assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
    }
    let fixed = format!(
        "[[route]]\npath = \"auto\"\n[[listener]]\nname = \"tcp\"\nbind = \"127.0.0.1:2000\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    );
    fixture.reload(&fixed);
    let mut client = fixture.row["home"].connect("127.0.0.1:2000".parse().unwrap());
    request_bytes(&mut client, 5000);
    drop(client);
    let closed = fixture.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "tcp");
    assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
}

/// Starts an HTTP server on the host `server` that answers each request with `body`. Returns the address.
fn origin(fixture: &Fixture, body: Vec<u8>) -> SocketAddr {
    let (listener, port) = fixture.row["server"].listen();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let body = body.clone();
            std::thread::spawn(move || {
                let mut first = [0; 1];
                // The connection that loses a race carries no request.
                while stream.read_exact(&mut first).is_ok() {
                    read_head(&mut stream);
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
                    stream.write_all(&body).unwrap();
                }
            });
        }
    });
    SocketAddr::new(fixture.target().ip(), port)
}

/// A client may send requests to many servers on one connection. The relay must record the outcome of each response
/// before it chooses the path of the next request: only then can it retreat from a path that was slower than predicted.
#[test]
fn outcome_is_recorded_for_each_server_of_a_connection() {
    let Some(fixture) = Fixture::new(AUTO) else { return };
    for (host, mbit) in [("server", 2), ("a", 4), ("b", 8), ("c", 2)] {
        fixture.limit_rate(host, mbit);
    }
    let origins = [(); 2].map(|()| origin(&fixture, vec![b'x'; SMALL]));
    let mut client = fixture.row["home"].connect(HOME.parse().unwrap());
    let mut reasons = (0..60).map(|at| {
        let origin = origins[at % 2];
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK"));
        read_exactly(&mut client, SMALL);
        let sessions: Value = serde_json::from_str(&fixture.home.relay.ask("/api/sessions")).unwrap();
        sessions["sessions"][0]["chosen"]["reason"].as_str().unwrap().to_owned()
    });
    assert!(reasons.any(|reason| reason == "retreats"), "no outcome was compared with its prediction");
}

/// A listener at home for clients on the host `c`, whose own relay is stopped in this test.
const INTERCEPTING_LISTENER: &str = "[[listener]]\nname = \"caught\"\nkind = \"tproxy\"\nbind = \"[::]:7001\"\ninterfaces = [\"to-c\"]\n\
                      keep_client_address = false\n";

/// The relay holds the client's SYN until a path, direct or through relays, is connected to the server: the client gets
/// the server's own answer.
#[test]
fn intercepted_client_waits_for_the_chosen_path() {
    let Some(mut fixture) =
        Fixture::new(&format!("[[route]]\npath = \"auto\"\ndefault = \"b\"\n{INTERCEPTING_LISTENER}"))
    else {
        return;
    };
    drop(fixture.relays[2].take().unwrap().kill());
    fixture.row["c"].ip(&format!("route replace {SERVER}/32 via 10.1.3.1\n"));
    for host in ["server", "a"] {
        fixture.limit_rate(host, 4);
    }
    let target = fixture.target();
    let refused = |fixture: &mut Fixture| {
        let closed = SocketAddr::new(target.ip(), CLOSED_PORT);
        let error = fixture.row["c"].try_connect(closed).expect_err("no listener on this port");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let event = fixture.home.relay.next(|event| event["event"] == "closed" && event["end"] == "refused");
        assert!(event["chosen"]["reason"].is_string() && event["target"] == closed.to_string(), "{event}");
    };
    let download = |fixture: &mut Fixture| {
        request_bytes(&mut fixture.row["c"].connect(target), SESSION_BYTES);
        let is_ours = |event: &Value| event["listener"] == "caught" && event["bytes_down"] == SESSION_BYTES;
        fixture.home.relay.next(|event| event["event"] == "closed" && is_ours(event))
    };
    refused(&mut fixture);
    assert_eq!(download(&mut fixture)["chosen"]["reason"], "unmeasured");
    let is_settled = |closed: &Value| path(closed) == "b" && closed["chosen"]["predicted_seconds"].is_number();
    assert!((0..40).any(|_| is_settled(&download(&mut fixture))), "no session used b with a prediction");
    refused(&mut fixture);
    fixture.disconnect_server("b");
    for _ in 0..3 {
        let closed = download(&mut fixture);
        assert!(path(&closed) != "b" && closed["chosen"]["reason"].is_string(), "{closed}");
    }
}

/// With `connect = "early"` the client sends bytes before a path is connected: only one path may carry these bytes.
#[test]
fn early_bytes_are_sent_on_one_path_only() {
    let early = "[[listener]]\nname = \"early\"\nbind = \"127.0.0.1:2000\"\nconnect = \"early\"\n";
    let Some(mut fixture) = Fixture::new(&format!("[[route]]\npath = \"auto\"\ndefault = \"b\"\n{early}")) else {
        return;
    };
    let (listener, port) = fixture.row["server"].listen();
    let target = SocketAddr::new(fixture.target().ip(), port);
    let open = |fixture: &Fixture| fixture.row["home"].inside(|| socks5("127.0.0.1:2000".parse().unwrap(), target));
    fixture.row["server"].nft(DROP_ALL_SYNS);
    let mut client = open(&fixture).expect("success at once");
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    fixture.row["server"].nft("delete table inet silence");
    let accepted = [accept(&listener), accept(&listener)];
    let mut received = accepted.map(|mut stream| read_remaining(&mut stream).0);
    received.sort();
    assert_eq!(received, [b"".to_vec(), b"question".to_vec()], "the direct path and the default race");
    drop(client);
    let closed = fixture.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "early");
    assert_eq!((&closed["chosen"]["reason"], &closed["bytes_up"]), (&"unmeasured".into(), &8.into()), "{closed}");

    close(listener);
    let mut client = open(&fixture).expect("success at once");
    assert_eq!(read_remaining(&mut client).1, Ending::Reset);
    let closed = fixture.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "early");
    assert_eq!(closed["end"], "refused", "{closed}");
}
