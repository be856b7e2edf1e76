//! Bytes, ends and resets of tunnels over TLS.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::certificate::{Certificate, Client, has_kernel_tls};
use crate::harness::{
    Ending, Relay, accept, eventually, join, pattern, read_all, read_exactly, read_remaining, reset, server,
};
use crate::origin;

/// A relay, a tunnel through it, and the server's end of the tunnel.
fn tunnel(certificate: &Certificate) -> (Relay, Client, TcpStream) {
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    let (listener, address) = server();
    let client = certificate.client(relay.address()).connect(address);
    let at_server = accept(&listener);
    (relay, client, at_server)
}

#[test]
fn large_streams_arrive_complete_over_tls_1_2_and_1_3() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    let bytes = pattern(20_000_000);
    for (version, client) in [("1.3", Certificate::client as fn(&_, _) -> _), ("1.2", Certificate::client_of_tls12)] {
        let (listener, address) = server();
        let mut client: Client = client(&certificate, relay.address()).connect(address);
        let at_server = accept(&listener);
        let (mut reading, mut writing) = (at_server.try_clone().unwrap(), at_server);
        let expected = bytes.clone();
        let reader = std::thread::spawn(move || assert!(read_all(&mut reading) == expected, "bytes to the server"));
        client.send(&bytes);
        client.end();
        join(reader);
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || writing.write_all(&sent).unwrap());
        let (received, ending) = client.read_remaining();
        join(writer);
        assert!(received == bytes && ending == Some(Ending::Clean), "{version}: {} bytes, {ending:?}", received.len());
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["tls"]), (&"finished".into(), &version.into()), "{closed}");
        assert_eq!((&closed["bytes_up"], &closed["bytes_down"]), (&bytes.len().into(), &bytes.len().into()));
        assert_eq!(closed["bytes_spliced"].as_u64().unwrap() > 30_000_000, has_kernel_tls(), "{closed}");
    }
}

#[test]
fn close_notify_ends_one_direction_only() {
    let Some(certificate) = Certificate::new() else { return };
    let (mut relay, mut client, mut at_server) = tunnel(&certificate);
    client.send(b"question");
    client.end();
    assert_eq!(read_all(&mut at_server), b"question");
    at_server.write_all(b"answer").unwrap();
    drop(at_server);
    assert_eq!(client.read_remaining(), (b"answer".to_vec(), Some(Ending::Clean)));
    assert_eq!(relay.closed()["end"], "finished");

    let (mut relay, mut client, mut at_server) = tunnel(&certificate);
    at_server.write_all(b"greeting").unwrap();
    at_server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_remaining(), (b"greeting".to_vec(), Some(Ending::Clean)));
    client.send(b"more");
    client.end();
    assert_eq!(read_all(&mut at_server), b"more");
    assert_eq!(relay.closed()["end"], "finished");
}

/// FIN without `close_notify` may be a truncation attack.
#[test]
fn truncated_tls_stream_resets_the_server_connection() {
    let Some(certificate) = Certificate::new() else { return };
    let (mut relay, mut client, mut at_server) = tunnel(&certificate);
    client.send(b"half");
    assert_eq!(read_exactly(&mut at_server, 4), b"half");
    client.0.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_remaining(&mut at_server), (Vec::new(), Ending::Reset));
    let closed = relay.closed();
    let detail = "the client closed TLS without close_notify";
    assert_eq!((&closed["end"], &closed["detail"]), (&"reset_by_client".into(), &detail.into()), "{closed}");
}

#[test]
fn resets_are_forwarded_in_both_directions() {
    let Some(certificate) = Certificate::new() else { return };
    let (mut relay, client, mut at_server) = tunnel(&certificate);
    reset(client.0.sock);
    assert_eq!(read_remaining(&mut at_server).1, Ending::Reset);
    assert_eq!(relay.closed()["end"], "reset_by_client");

    let (mut relay, mut client, at_server) = tunnel(&certificate);
    reset(at_server);
    assert_eq!(client.read_remaining().1, Some(Ending::Reset));
    assert_eq!(relay.closed()["end"], "reset_by_server");

    // After the end of the client's direction, the relay no longer reads from its socket.
    let (mut relay, mut client, mut at_server) = tunnel(&certificate);
    client.end();
    assert_eq!(read_all(&mut at_server), b"");
    reset(client.0.sock);
    assert_eq!(relay.closed()["end"], "reset_by_client");
    eventually("the reset", || at_server.take_error().unwrap());
}

#[test]
fn a_changed_record_resets_the_session() {
    let Some(certificate) = Certificate::new() else { return };
    let (mut relay, mut client, mut at_server) = tunnel(&certificate);
    client.0.sock.write_all(&[&[23, 3, 3, 0, 32][..], &[7; 32]].concat()).unwrap();
    assert_eq!(read_remaining(&mut at_server), (Vec::new(), Ending::Reset));
    assert_eq!(relay.closed()["end"], "altered");
}

/// Regression: a connection that waited for further requests ended without `close_notify`.
#[test]
fn idle_http_connection_ends_with_close_notify() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("http")]);
    let origin = origin::start();
    let mut client = certificate.client(relay.address());
    client.send(format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes());
    client.end();
    let (received, ending) = client.read_remaining();
    assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&received));
    assert_eq!((ending, relay.closed()["end"].as_str()), (Some(Ending::Clean), Some("finished")));
}

/// Bytes that the client sends with its request, in the same record, belong to the tunnel.
#[test]
fn early_bytes_are_carried() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("http")]);
    let (listener, address) = server();
    let mut client = certificate.client(relay.address());
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\nearly").as_bytes());
    let mut at_server = accept(&listener);
    assert_eq!(read_exactly(&mut at_server, 5), b"early");
    client.end();
    assert_eq!(read_all(&mut at_server), b"");
}
