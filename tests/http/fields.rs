//! Header fields: hop-by-hop fields end at the relay, the others arrive unchanged.

use crate::exchange::*;
use crate::harness::*;

#[test]
fn hop_by_hop_fields_do_not_reach_the_server() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    send(
        &mut client,
        format!(
            "GET http://{host}/a?b=c%20d;e HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\n\
             Connection: keep-alive, X-Mine\r\nconnection: x-also\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\nX-ALSO: 1\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic c2VjcmV0\r\nTE: trailers\r\nUpgrade: x\r\n\
             Authorization: Basic b3du\r\nCookie: a=b\r\nX-Odd:   caf\u{e9}  \r\nX-Empty:\r\nUser-Agent: test\r\n\r\n"
        ),
    );
    let mut server = fixture.accept();
    let head = Head::read(&mut server);
    let expected = format!(
        "GET /a?b=c%20d;e HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nAuthorization: Basic b3du\r\nCookie: a=b\r\n\
         X-Odd: caf\u{e9}\r\nX-Empty: \r\nUser-Agent: test\r\nVia: 1.1 ekiden\r\n\r\n"
    );
    assert_eq!(head.0, expected);
}

#[test]
fn hop_by_hop_fields_do_not_reach_the_client() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(
        &mut server,
        "HTTP/1.1 404 Not There\r\nServer: test\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authenticate: Basic\r\nProxy-Authentication-Info: x\r\nUpgrade: h2c\r\n\
         Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nVia: 1.0 other\r\nContent-Length: 2\r\nWWW-Authenticate: Basic\r\n\r\nok",
    );
    let (head, body) = read_response(&mut client);
    let expected = "HTTP/1.1 404 Not There\r\nServer: test\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\
                    Via: 1.0 other, 1.1 ekiden\r\nContent-Length: 2\r\nWWW-Authenticate: Basic\r\n\r\n";
    assert_eq!((head.0.as_str(), body.as_slice()), (expected, b"ok".as_slice()));
}

/// `Connection` must not remove end-to-end fields: the server would get a different request than the relay has checked.
#[test]
fn connection_field_cannot_remove_end_to_end_fields() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let named = "Connection: Host, Content-Length, Cookie, Authorization, Via, X-Forwarded-For\r\n";
    let fields = format!("{named}Content-Length: 5\r\nCookie: a\r\nAuthorization: b\r\nX-Forwarded-For: c\r\n");
    send(&mut client, fixture.post(&fields) + "hello");
    let mut server = fixture.accept();
    let head = Head::read(&mut server);
    for name in ["Host", "Content-Length", "Cookie", "Authorization", "X-Forwarded-For", "Via"] {
        assert_eq!(head.all(name).len(), 1, "{name}: {}", head.0);
    }
    assert_eq!((head.get("Connection"), read_exactly(&mut server, 5).as_slice()), (None, b"hello".as_slice()));
}

/// In absolute form only the URI defines the host (RFC 9112, 3.2.2).
#[test]
fn host_field_is_taken_from_the_uri() {
    let fixture = Fixture::new();
    let port = fixture.server.port();
    for (uri, line, host) in [
        (format!("http://LocalHost:{port}"), "GET / HTTP/1.1", format!("LocalHost:{port}")),
        (format!("HTTP://localhost:{port}?q=1"), "GET /?q=1 HTTP/1.1", format!("localhost:{port}")),
    ] {
        let mut client = fixture.client();
        send(&mut client, format!("GET {uri} HTTP/1.1\r\nHost: other.example\r\nVia: 1.0 first\r\n\r\n"));
        let mut server = fixture.accept();
        let head = Head::read(&mut server);
        assert_eq!((head.line(), head.all("Host")), (line, vec![host.as_str()]));
        assert_eq!(head.all("Via"), ["1.0 first, 1.1 ekiden"]);
        send(&mut server, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        expect_ok(&mut client);
    }
}

#[test]
fn options_without_a_path_uses_the_asterisk_form() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    send(&mut client, format!("OPTIONS http://{host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let mut server = fixture.accept();
    assert_eq!(Head::read(&mut server).line(), "OPTIONS * HTTP/1.1");
    send(&mut server, OK);
    expect_ok(&mut client);
}

/// `Via` has the version of each received message, and the first line is always HTTP/1.1 (RFC 9110, 2.5 and 7.6.3).
#[test]
fn version_is_1_1_and_via_has_the_received_version() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    send(&mut client, format!("GET http://{host}/ HTTP/1.0\r\n\r\n"));
    let mut server = fixture.accept();
    let head = Head::read(&mut server);
    assert_eq!((head.line(), head.get("Via")), ("GET / HTTP/1.1", Some("1.0 ekiden")));
    send(&mut server, "HTTP/1.0 200\r\nContent-Length: 2\r\n\r\nok");
    let (head, _) = read_response(&mut client);
    assert_eq!((head.line().trim_end(), head.get("Via")), ("HTTP/1.1 200", Some("1.0 ekiden")));
}

/// `Max-Forwards` (RFC 9110, 7.6.2): each hop decrements it, and the request ends at 0.
#[test]
fn max_forwards_is_decremented_and_ends_at_zero() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    send(&mut client, format!("OPTIONS http://{host}/ HTTP/1.1\r\nMax-Forwards: 2\r\n\r\n"));
    let mut server = fixture.accept();
    assert_eq!(Head::read(&mut server).get("Max-Forwards"), Some("1"));
    send(&mut server, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(Head::read(&mut client).status(), 204);

    for (method, status) in [("OPTIONS", 200), ("TRACE", 405)] {
        let mut client = fixture.client();
        send(&mut client, format!("{method} http://{host}/ HTTP/1.1\r\nMax-Forwards: 0\r\n\r\n"));
        assert_eq!(Head::read(&mut client).status(), status);
    }
    fixture.assert_not_contacted("requests with no forwards left");
}
