//! Listeners of every kind use the chosen path.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::scene::*;

/// Bytes of a session, enough for an estimate of the rate.
const SESSION_BYTES: u64 = 1 << 20;

/// Bytes of a response of which only the time counts.
const SMALL: usize = 30_000;

#[test]
fn path_is_chosen_for_connect_http_and_tcp_clients() {
    let Some(mut scene) = Scene::new("[[route]]\npath = \"auto\"\ndefault = \"b\"\n") else { return };
    scene.disconnect_server("home");
    let target = scene.target();
    let mut tunnel = scene.row["home"].connect(HOME.parse().unwrap());
    write!(tunnel, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    assert!(read_head(&mut tunnel).starts_with("HTTP/1.1 200"));
    request_bytes(&mut tunnel, 5000);
    let origin = origin(&scene, b"ok".to_vec());
    let mut client = scene.row["home"].connect(HOME.parse().unwrap());
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(read_exactly(&mut client, 2), b"ok");
    drop((client, tunnel));
    for _ in 0..2 {
        let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["target"].is_string());
        assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
    }
    let fixed = format!(
        "[[route]]\npath = \"auto\"\n[[listener]]\nname = \"tcp\"\nbind = \"127.0.0.1:2000\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    );
    scene.reload(&fixed);
    let mut client = scene.row["home"].connect("127.0.0.1:2000".parse().unwrap());
    request_bytes(&mut client, 5000);
    drop(client);
    let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "tcp");
    assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
}

/// An origin on the host `server` that answers each request with `body`. Returns its address.
fn origin(scene: &Scene, body: Vec<u8>) -> SocketAddr {
    let (listener, port) = scene.row["server"].listen();
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
    SocketAddr::new(scene.target().ip(), port)
}

/// A client may use one connection for many servers. The outcome of a small response is recorded before the path to the next
/// server is used: the relay retreats from paths that are slower than predicted.
#[test]
fn outcome_is_recorded_for_each_server_of_a_connection() {
    let Some(scene) = Scene::new("[[route]]\npath = \"auto\"\n") else { return };
    for (host, mbit) in [("server", 2), ("a", 4), ("b", 8), ("c", 2)] {
        scene.limit_rate(host, mbit);
    }
    let origins = [(); 2].map(|()| origin(&scene, vec![b'x'; SMALL]));
    let mut client = scene.row["home"].connect(HOME.parse().unwrap());
    let mut reasons = (0..60).map(|at| {
        let origin = origins[at % 2];
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK"));
        read_exactly(&mut client, SMALL);
        let sessions: Value = serde_json::from_str(&scene.home.relay.ask("/api/sessions")).unwrap();
        sessions["sessions"][0]["chosen"]["reason"].as_str().unwrap().to_owned()
    });
    assert!(reasons.any(|reason| reason == "retreats"), "no outcome was compared with its prediction");
}

/// A listener at home for clients on the host `c`, whose own relay is stopped in this test.
const INTERCEPTING_LISTENER: &str = "[[listener]]\nname = \"caught\"\nkind = \"tproxy\"\nbind = \"[::]:7001\"\ninterfaces = [\"to-c\"]\n\
                      keep_client_address = false\n";

/// The client's first packet waits until the path is connected, whether direct or by relays: the client sees the
/// server's own answer.
#[test]
fn intercepted_client_waits_for_the_chosen_path() {
    let Some(mut scene) = Scene::new(&format!("[[route]]\npath = \"auto\"\ndefault = \"b\"\n{INTERCEPTING_LISTENER}"))
    else {
        return;
    };
    drop(scene.relays[2].take().unwrap().kill());
    scene.row["c"].ip(&format!("route replace {SERVER}/32 via 10.1.3.1\n"));
    for host in ["server", "a"] {
        scene.limit_rate(host, 4);
    }
    let target = scene.target();
    let refused = |scene: &mut Scene| {
        let closed = SocketAddr::new(target.ip(), CLOSED_PORT);
        let error = scene.row["c"].try_connect(closed).expect_err("no listener on this port");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let event = scene.home.relay.next(|event| event["event"] == "closed" && event["end"] == "refused");
        assert!(event["chosen"]["reason"].is_string() && event["target"] == closed.to_string(), "{event}");
    };
    let download = |scene: &mut Scene| {
        request_bytes(&mut scene.row["c"].connect(target), SESSION_BYTES);
        let is_ours = |event: &Value| event["listener"] == "caught" && event["bytes_down"] == SESSION_BYTES;
        scene.home.relay.next(|event| event["event"] == "closed" && is_ours(event))
    };
    refused(&mut scene);
    assert_eq!(download(&mut scene)["chosen"]["reason"], "unmeasured");
    let is_settled = |closed: &Value| path(closed) == "b" && closed["chosen"]["predicted_seconds"].is_number();
    assert!((0..40).any(|_| is_settled(&download(&mut scene))), "no session used b with a prediction");
    refused(&mut scene);
    scene.disconnect_server("b");
    for _ in 0..3 {
        let closed = download(&mut scene);
        assert!(path(&closed) != "b" && closed["chosen"]["reason"].is_string(), "{closed}");
    }
}

/// With `connect = "early"` the client sends its bytes before a path is connected: only one path may carry them.
#[test]
fn early_bytes_are_sent_on_one_path_only() {
    let early = "[[listener]]\nname = \"early\"\nbind = \"127.0.0.1:2000\"\nconnect = \"early\"\n";
    let Some(mut scene) = Scene::new(&format!("[[route]]\npath = \"auto\"\ndefault = \"b\"\n{early}")) else { return };
    let (listener, port) = scene.row["server"].listen();
    let target = SocketAddr::new(scene.target().ip(), port);
    let open = |scene: &Scene| scene.row["home"].inside(|| socks5("127.0.0.1:2000".parse().unwrap(), target));
    scene.row["server"].nft(DROP_ALL_SYNS);
    let mut client = open(&scene).expect("success at once");
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    scene.row["server"].nft("delete table inet silence");
    let accepted = [accept(&listener), accept(&listener)];
    let mut received = accepted.map(|mut stream| read_remaining(&mut stream).0);
    received.sort();
    assert_eq!(received, [b"".to_vec(), b"question".to_vec()], "the direct path and the default race");
    drop(client);
    let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "early");
    assert_eq!((&closed["chosen"]["reason"], &closed["bytes_up"]), (&"unmeasured".into(), &8.into()), "{closed}");

    close(listener);
    let mut client = open(&scene).expect("success at once");
    assert_eq!(read_remaining(&mut client).1, Ending::Reset);
    let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "early");
    assert_eq!(closed["end"], "refused", "{closed}");
}
