//! Invalid responses of servers: the client gets an error, and the relay does not use the server's connection again.

use crate::exchange::*;
use crate::framing::{AMBIGUOUS_FIELDS, BAD_CHUNKS};
use crate::harness::*;

/// Asserts that the relay rejects this response with 502 and closes the server's connection.
fn assert_rejected(fixture: &mut Fixture, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, bytes);
    let (head, page) = expect_refusal(&mut client, 502, &shown);
    assert_eq!(head.get("Proxy-Status"), Some("ekiden; error=http_protocol_error"), "{shown:?}");
    assert!(!page.contains("evil"), "{shown:?}: {page}");
    drop(client);
    assert_closed(&mut server);
    assert_eq!(fixture.request()["status"], 502, "{shown:?}");
    assert_eq!(fixture.relay.closed()["end"], "bad_answer", "{shown:?}");
    fixture.assert_not_contacted(&shown);
}

#[test]
fn ambiguous_framing_in_responses_returns_502() {
    let mut fixture = Fixture::new();
    for trick in AMBIGUOUS_FIELDS {
        let evil = "5\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        assert_rejected(&mut fixture, format!("HTTP/1.1 200 OK\r\n{trick}\r\n\r\n{evil}").as_bytes());
    }
}

#[test]
fn invalid_responses_return_502() {
    let mut fixture = Fixture::new();
    let (many, long) = ("X: y\r\n".repeat(101), "y".repeat(70_000));
    for text in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "SSH-2.0-evil\r\n",
        "220 evil FTP\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 99 evil\r\n\r\n",
        "HTTP/1.1 2000 evil\r\n\r\n",
        "HTTP/1.1  200 evil\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "<html>evil</html>",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "\u{5}\u{1}",
        &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        &format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
    ] {
        assert_rejected(&mut fixture, text.as_bytes());
    }
}

/// The relay has dialled the server directly, so the error page must not blame a next relay.
#[test]
fn server_errors_do_not_mention_a_next_relay() {
    let fixture = Fixture::new();
    for evil in ["SSH-2.0-evil\r\n", "HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"] {
        let mut client = fixture.client();
        send(&mut client, fixture.get("/"));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, evil);
        let (_, page) = read_response(&mut client);
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("next relay"), "{evil:?}: {page}");
    }
}

/// The relay has already forwarded the head, so only a reset shows the client that the body is incomplete.
#[test]
fn invalid_chunks_in_a_response_reset_the_client() {
    let mut fixture = Fixture::new();
    for bad in BAD_CHUNKS {
        let mut client = fixture.client();
        send(&mut client, fixture.get("/"));
        let mut server = fixture.accept();
        Head::read(&mut server);
        let body = format!("3\r\nabc\r\n{bad}0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        send(&mut server, format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let (received, ending) = read_remaining(&mut client);
        let received = String::from_utf8_lossy(&received);
        assert_eq!(ending, Ending::Reset, "{bad:?}: {received:?}");
        assert!(!received.contains("\r\n0\r\n\r\n") && !received.contains("evil"), "{bad:?}: {received:?}");
        assert_closed(&mut server);
        assert_eq!(fixture.request()["status"], 200, "{bad:?}");
        assert_ne!(fixture.relay.closed()["end"], "finished", "{bad:?}");
        fixture.assert_not_contacted(bad);
    }
}

#[test]
fn response_chunk_extensions_and_forbidden_trailers_are_dropped() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
    send(
        &mut server,
        "5;a=b\r\nhello\r\n0006 ;c\r\n world\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a\r\nContent-Length: 1\r\n\r\n",
    );
    let head = Head::read(&mut client);
    assert_eq!((head.get("Transfer-Encoding"), head.get("Trailer")), (Some("chunked"), Some("X-Sum")));
    let expected = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(String::from_utf8(read_exactly(&mut client, expected.len())).unwrap(), expected);
    fixture.exchange(&mut client, &mut server, "/next");
}

/// Framing fields of a response without a body do not define its end (RFC 9112, 6.3), and must not reach a client.
#[test]
fn framing_fields_of_bodyless_responses_are_dropped() {
    let fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    for status in ["204 No Content", "304 Not Modified"] {
        send(&mut client, fixture.get("/empty"));
        Head::read(&mut server);
        send(&mut server, format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let head = Head::read(&mut client);
        assert_eq!((head.all("Transfer-Encoding").len(), head.get("Connection")), (0, None), "{}", head.0);
    }
    fixture.exchange(&mut client, &mut server, "/next");
}
