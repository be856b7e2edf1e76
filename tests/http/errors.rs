//! Error responses of the relay itself: the status, the explanation, and the cause in `Proxy-Status` (RFC 9209).

use std::net::SocketAddr;

use crate::exchange::*;
use crate::harness::*;

/// Asserts that a GET, a POST and a CONNECT fail with this status and cause.
fn assert_failure(fixture: &mut Fixture, target: &str, status: u16, error: &str, end: &str) {
    let get = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
    let post = format!("POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Length: 100\r\n\r\npart");
    let connect = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    for (request, logged) in [(get, true), (post, true), (connect, false)] {
        let mut client = fixture.client();
        send(&mut client, &request);
        let (head, page) = expect_refusal(&mut client, status, &request);
        assert_eq!(head.get("Proxy-Status"), Some(format!("ekiden; error={error}").as_str()));
        assert!(page.trim_end().ends_with('.') && page.len() > 20, "{page:?} explains nothing");
        drop(client);
        if logged {
            let request = fixture.request();
            assert_eq!((&request["status"], &request["reused"]), (&status.into(), &false.into()));
            assert_eq!(request["url"], format!("http://{target}/"));
        }
        let closed = fixture.relay.closed();
        assert_eq!((&closed["end"], &closed["target"]), (&end.into(), &target.into()), "{request}");
    }
}

#[test]
fn refused_connection_returns_502() {
    assert_failure(&mut Fixture::new(), &unused_address().to_string(), 502, "connection_refused", "refused");
}

#[test]
fn forbidden_target_returns_403() {
    let mut fixture = Fixture::with_listener("", "kind = \"http\"\ndeny = [\"127.0.0.0/8\", \"::1\"]\n");
    let target = fixture.server.to_string();
    assert_failure(&mut fixture, &target, 403, "destination_ip_prohibited", "denied");
    fixture.assert_not_contacted("a forbidden target");
    // The rules also apply to a name that resolves to these addresses.
    let target = format!("localhost:{}", fixture.server.port());
    assert_failure(&mut fixture, &target, 403, "destination_ip_prohibited", "denied");
    fixture.assert_not_contacted("a forbidden target by its name");
}

/// Returns the response of a name server to a query for a nonexistent name (RFC 1035, 4.1.1): QR, RD and RA are set,
/// RCODE is 3 (name error), and there is only the question section.
fn no_such_name(query: &[u8]) -> Vec<u8> {
    let question_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let mut answer = query[..question_end].to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x83]);
    answer[6..12].fill(0);
    answer
}

#[test]
fn nonexistent_name_returns_502() {
    let mut fixture = Fixture::with(&format!("[dns]\nservers = [\"{}\"]\n", name_server(no_such_name)));
    assert_failure(&mut fixture, "no-such-name.example:80", 502, "dns_error", "name_not_found");
}

#[test]
fn silent_target_returns_504() {
    let mut fixture = Fixture::with("[timeouts]\nconnect = \"300ms\"\n");
    // A listener with a full accept queue does not answer further SYNs.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _first = connect(address);
    assert_failure(&mut fixture, &address.to_string(), 504, "connection_timeout", "timed_out");
}

/// A user may open the relay's own address in a browser.
#[test]
fn requests_for_the_relay_itself_return_400_with_an_explanation() {
    let mut fixture = Fixture::new();
    for line in ["GET / HTTP/1.1", "GET /favicon.ico HTTP/1.0", "OPTIONS * HTTP/1.1"] {
        let mut client = fixture.client();
        send(&mut client, format!("{line}\r\nHost: {}\r\n\r\n", fixture.relay.address()));
        let (_, page) = expect_refusal(&mut client, 400, line);
        assert!(page.contains("ekiden") && page.contains("proxy"), "{page:?} does not help");
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "bad_handshake");
    }
}

#[test]
fn https_url_without_connect_returns_501() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/").replacen("http://", "https://", 1));
    let (_, page) = expect_refusal(&mut client, 501, "https");
    assert!(page.contains("CONNECT"), "{page:?} does not help");
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "bad_handshake");
    fixture.assert_not_contacted("https");
}

/// The response to HEAD has no content, even when it is the relay's own (RFC 9110, 9.3.2).
#[test]
fn error_response_to_head_has_no_body() {
    let fixture = Fixture::new();
    let unused = unused_address();
    let mut client = fixture.client();
    send(&mut client, format!("HEAD http://{unused}/ HTTP/1.1\r\nHost: {unused}\r\n\r\n"));
    assert_eq!(Head::read(&mut client).status(), 502);
    assert_eq!(String::from_utf8(read_all(&mut client)).unwrap(), "");
}

/// A proxy challenge of the origin server must not reach the client: the client would send its password for the relay.
#[test]
fn proxy_challenge_of_a_server_returns_502() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n");
    let (head, _) = expect_refusal(&mut client, 502, "407 of a server");
    assert_eq!(head.get("Proxy-Authenticate"), None);
    assert_closed(&mut server);
    assert_eq!(fixture.request()["status"], 502);
}
