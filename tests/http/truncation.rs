//! Connections that end too soon, on either side: no receiver may treat a partial message as complete.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::exchange::*;
use crate::harness::*;

const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nbegin";
const BETWEEN_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n";
const BEFORE_TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n0\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nbegin";

fn start_request(fixture: &Fixture, request: &str) -> (TcpStream, TcpStream) {
    let mut client = fixture.client();
    send(&mut client, request);
    let mut server = fixture.accept();
    Head::read(&mut server);
    (client, server)
}

#[test]
fn truncated_response_resets_the_client() {
    let mut fixture = Fixture::new();
    let host = fixture.server;
    let old = format!("GET http://{host}/ HTTP/1.0\r\n\r\n");
    for ask in [fixture.get("/"), old] {
        for begun in [LENGTH, CHUNKED, BETWEEN_CHUNKS, BEFORE_TRAILERS] {
            for (close, end) in [(drop::<TcpStream> as fn(TcpStream), "server_lost"), (reset, "reset_by_server")] {
                let (mut client, mut server) = start_request(&fixture, &ask);
                send(&mut server, begun);
                Head::read(&mut client);
                close(server);
                let (received, ending) = read_remaining(&mut client);
                assert_eq!(ending, Ending::Reset, "{begun:?}");
                assert!(!received.ends_with(b"0\r\n\r\n"), "{begun:?}: {:?}", String::from_utf8_lossy(&received));
                drop(client);
                assert_eq!(fixture.request()["status"], 200);
                assert_eq!(fixture.relay.closed()["end"], end, "{begun:?}");
            }
        }
    }
}

/// An HTTP/1.0 client detects the end of a body only by the end of the connection. Regression: the relay forwarded
/// chunks without their framing, the connection ended with FIN when the relay was killed, and half of a body looked
/// complete.
#[test]
fn killed_relay_resets_a_truncated_response() {
    for (version, begun) in [
        ("1.1", UNTIL_CLOSE),
        ("1.0", UNTIL_CLOSE),
        ("1.0", CHUNKED),
        ("1.0", BETWEEN_CHUNKS),
        ("1.0", BEFORE_TRAILERS),
    ] {
        let fixture = Fixture::new();
        let host = fixture.server;
        let ask = format!("GET http://{host}/ HTTP/{version}\r\nHost: {host}\r\n\r\n");
        let (mut client, mut server) = start_request(&fixture, &ask);
        send(&mut server, begun);
        Head::read(&mut client);
        assert_eq!(read_exactly(&mut client, 5), b"begin");
        fixture.relay.signal("KILL");
        assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Reset), "{begun:?} for HTTP/{version}");
    }
}

/// A head without its body is an incomplete response.
#[test]
fn killed_relay_resets_the_client_after_a_head_alone() {
    for head in ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let fixture = Fixture::new();
        let (mut client, mut server) =
            start_request(&fixture, &format!("GET http://{}/ HTTP/1.0\r\n\r\n", fixture.server));
        send(&mut server, head);
        Head::read(&mut client);
        fixture.relay.signal("KILL");
        assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Reset), "{head:?}");
    }
}

/// A FIN is the only valid end of a close-delimited body, so the relay must not replace the server's reset with a FIN.
#[test]
fn server_reset_of_a_close_delimited_body_resets_the_client() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
    send(&mut server, UNTIL_CLOSE);
    Head::read(&mut client);
    reset(server);
    assert_eq!(read_remaining(&mut client).1, Ending::Reset);
    assert_eq!(fixture.relay.closed()["end"], "reset_by_server");
}

/// Regression: the kernel reports a reset once (tcp(7): the error is pending, then cleared). If the upload got the
/// error, the read of the response body returned the end of the stream, and the body counted as complete. Either
/// direction may get the error, so the test has 16 rounds.
#[test]
fn server_reset_during_an_upload_also_ends_the_response() {
    let mut fixture = Fixture::new();
    for round in 0..16 {
        let (mut client, mut server) = start_request(&fixture, &fixture.post("Content-Length: 1000000000\r\n"));
        let writer = {
            let mut client = client.try_clone().unwrap();
            std::thread::spawn(move || while client.write_all(&[0; 65_536]).is_ok() {})
        };
        send(&mut server, UNTIL_CLOSE);
        Head::read(&mut client);
        read_exactly(&mut client, 5);
        read_exactly(&mut server, 200_000);
        reset(server);
        join(writer);
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "reset_by_server", "round {round}");
    }
}

/// The server stops in the middle of its response: the relay's error page must not become part of the response's body.
#[test]
fn stalled_response_body_gets_no_error_page() {
    let mut fixture = Fixture::with("[timeouts]\nidle = \"1500ms\"\n");
    for begun in [LENGTH, CHUNKED, UNTIL_CLOSE] {
        let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
        send(&mut server, begun);
        Head::read(&mut client);
        let (received, ending) = read_remaining(&mut client);
        let received = String::from_utf8_lossy(&received);
        assert!(received.ends_with("begin"), "{begun:?}: {received:?}");
        assert_eq!(ending, Ending::Reset, "{begun:?}");
        assert_closed(&mut server);
        drop(client);
        assert_eq!(fixture.request()["status"], 200, "{begun:?}");
        assert_eq!(fixture.relay.closed()["end"], "idle", "{begun:?}");
    }
}

#[test]
fn missing_response_returns_502_or_504() {
    let mut fixture = Fixture::new();
    for close in [drop::<TcpStream>, reset] {
        let (mut client, server) = start_request(&fixture, &fixture.get("/"));
        close(server);
        let (head, _) = expect_refusal(&mut client, 502, "no answer");
        assert_eq!(head.get("Proxy-Status"), Some("ekiden; error=connection_terminated"));
        drop(client);
        assert_eq!(fixture.request()["status"], 502);
        assert_eq!(fixture.relay.closed()["end"], "reset");
    }
    let mut fixture = Fixture::with("[timeouts]\nidle = \"300ms\"\n");
    let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
    let (head, _) = expect_refusal(&mut client, 504, "a silent server");
    assert!(head.get("Proxy-Status").is_some_and(|status| status.starts_with("ekiden; error=connection_")));
    assert_closed(&mut server);
    drop(client);
    assert_eq!(fixture.request()["status"], 504);
    assert_eq!(fixture.relay.closed()["end"], "timed_out");
}

#[test]
fn truncated_request_closes_the_server_connection() {
    let mut fixture = Fixture::new();
    for (framing, begun) in [
        ("Content-Length: 100", "begin"),
        ("Transfer-Encoding: chunked", "64\r\nbegin"),
        ("Transfer-Encoding: chunked", "5\r\nbegin\r\n"),
    ] {
        for by_reset in [false, true] {
            let (mut client, mut server) = start_request(&fixture, &fixture.post(&format!("{framing}\r\n")));
            send(&mut client, begun);
            assert_eq!(read_exactly(&mut server, begun.len()), begun.as_bytes());
            if by_reset {
                reset(client);
            } else {
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Reset));
            }
            // A FIN is sufficient here: the framing shows the server that the request is incomplete.
            assert_eq!(read_remaining(&mut server), (Vec::new(), Ending::Clean), "{framing} {begun:?}");
            assert_eq!(fixture.request()["status"], 0);
            let end = if by_reset { "reset_by_client" } else { "client_lost" };
            assert_eq!(fixture.relay.closed()["end"], end, "{framing} {begun:?}");
        }
    }
}

#[test]
fn client_reset_during_a_response_ends_the_server_connection() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
    send(&mut server, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    let writer = std::thread::spawn(move || while server.write_all(&[0; 65_536]).is_ok() {});
    read_exactly(&mut client, 300_000);
    reset(client);
    join(writer);
    assert_eq!(fixture.relay.closed()["end"], "reset_by_client");
    assert_eq!(fixture.request()["status"], 200);
}

/// The relay does not read from a client whose request is complete, and has nothing to write while the server is
/// silent. Regression: the relay did not detect the client's reset before the idle timeout of 1 h.
#[test]
fn client_reset_before_the_response_end_closes_the_server() {
    let mut fixture = Fixture::new();
    for begun in ["", LENGTH, CHUNKED, UNTIL_CLOSE] {
        let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
        send(&mut server, begun);
        if !begun.is_empty() {
            Head::read(&mut client);
        }
        reset(client);
        assert_closed(&mut server);
        assert_eq!(fixture.relay.closed()["end"], "reset_by_client", "{begun:?}");
    }
}

/// Regression: unread bytes of the next request hid the reset until the idle timeout.
#[test]
fn client_reset_behind_a_pipelined_request_closes_the_server() {
    let mut fixture = Fixture::new();
    let pipelined = fixture.get("/first") + &fixture.get(&format!("/{}", "x".repeat(20_000)));
    let (client, mut server) = start_request(&fixture, &pipelined);
    reset(client);
    assert_closed(&mut server);
    assert_eq!(fixture.relay.closed()["end"], "reset_by_client");
}

/// The half-close only means that the client sends no further request.
#[test]
fn half_closed_client_still_gets_its_response() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = start_request(&fixture, &fixture.get("/"));
    client.shutdown(Shutdown::Write).unwrap();
    send(&mut server, OK);
    expect_ok(&mut client);
    assert_closed(&mut client);
    assert_eq!(fixture.relay.closed()["end"], "finished");
}
