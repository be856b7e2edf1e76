//! Several requests on one client connection: to several servers, in order, and over kept connections.

use std::net::TcpStream;

use crate::exchange::*;
use crate::harness::*;

#[test]
fn one_client_connection_reaches_several_servers() {
    let mut fixture = Fixture::new();
    let (other_listener, other) = server();
    let first = fixture.server;
    let mut client = fixture.client();
    let mut at_first: Option<TcpStream> = None;
    let mut at_other: Option<TcpStream> = None;
    for round in 0..3 {
        for (address, listener, stream) in
            [(first, &fixture.listener, &mut at_first), (other, &other_listener, &mut at_other)]
        {
            send(&mut client, get(address, &format!("/{round}?secret=1")));
            let stream = stream.get_or_insert_with(|| accept(listener));
            let head = Head::read(stream);
            assert_eq!(head.line(), format!("GET /{round}?secret=1 HTTP/1.1"));
            assert_eq!(head.all("Host"), [address.to_string()]);
            send(stream, OK);
            expect_ok(&mut client);
            let request = fixture.relay.next(|event| event["event"] == "request");
            assert_eq!(request["url"], format!("http://{address}/{round}"), "the query is not logged");
            assert_eq!((&request["method"], &request["status"]), (&"GET".into(), &200.into()));
            assert_eq!(request["reused"], round > 0);
        }
    }
    drop(client);
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["target"]), (&"finished".into(), &other.to_string().into()));
    assert_eq!(closed["up"]["start"], "cold", "the first request's connection");
    assert!(closed["up"]["segments_out"].as_u64().unwrap() >= 6, "segments of all requests: {}", closed["up"]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let fixture = Fixture::new();
    let (other_listener, other) = server();
    let mut client = fixture.client();
    let posted = fixture.post("Content-Length: 5\r\n") + "hello";
    send(&mut client, fixture.get("/1") + &get(other, "/2") + &posted + &get(other, "/4"));

    let mut first = fixture.accept();
    assert_eq!(Head::read(&mut first).line(), "GET /1 HTTP/1.1");
    assert!(!is_waiting(&other_listener), "the second request was sent before the response to the first");
    send(&mut first, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
    let mut second = accept(&other_listener);
    assert_eq!(Head::read(&mut second).line(), "GET /2 HTTP/1.1");
    send(&mut second, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n2\r\n0\r\n\r\n");
    let mut third = fixture.accept();
    assert_eq!(Head::read(&mut third).line(), "POST /form HTTP/1.1");
    assert_eq!(read_exactly(&mut third, 5), b"hello");
    send(&mut third, "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n3");
    assert_eq!(Head::read(&mut second).line(), "GET /4 HTTP/1.1");
    send(&mut second, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n4");
    drop(second);

    let answers: Vec<_> = (0..4).map(|_| read_response(&mut client)).collect();
    assert_eq!(answers.iter().map(|(head, _)| head.status()).collect::<Vec<_>>(), [200, 200, 404, 200]);
    assert_eq!(answers.into_iter().flat_map(|(_, body)| body).collect::<Vec<_>>(), b"1234");
    assert_closed(&mut client);
}

/// Asserts that the relay does not reuse the server's connection after `last_answer`. With `closes`, the server closes
/// its direction after the answer.
fn assert_not_reused(case: &str, last_answer: &str, closes: bool) {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/first"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, last_answer);
    if closes {
        server.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let (head, body) = read_response(&mut client);
    assert_eq!((head.status(), body.as_slice()), (200, b"ok".as_slice()), "{case}");
    if head.get("Connection") == Some("close") {
        assert_closed(&mut client);
        client = fixture.client();
    }
    send(&mut client, fixture.get("/second"));
    let mut second = fixture.accept();
    assert_eq!(Head::read(&mut second).line(), "GET /second HTTP/1.1", "{case}");
    send(&mut second, OK);
    expect_ok(&mut client);
    assert_closed(&mut server);
    for _ in 0..2 {
        let request = fixture.request();
        assert_eq!((&request["status"], &request["reused"]), (&200.into(), &false.into()), "{case}");
    }
}

#[test]
fn connections_that_end_with_the_response_are_not_reused() {
    assert_not_reused(
        "Connection: close",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        false,
    );
    assert_not_reused("HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false);
    assert_not_reused("a body until the end", "HTTP/1.1 200 OK\r\n\r\nok", true);
    assert_not_reused(
        "a body until the end that says it stays",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nok",
        true,
    );
    assert_not_reused("closed afterwards", OK, true);
}

/// Bytes after the response would become the response to the next request, perhaps of another client.
#[test]
fn connections_with_unexpected_bytes_are_not_reused() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    assert_not_reused("bytes behind a length", &format!("{OK}{evil}"), false);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_not_reused("bytes behind chunks", &format!("{chunked}{evil}"), false);
}

#[test]
fn connection_with_bytes_after_a_head_response_is_not_reused() {
    let fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    let host = fixture.server;
    send(&mut client, format!("HEAD http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    Head::read(&mut server);
    send(&mut server, OK);
    assert_eq!(Head::read(&mut client).get("Content-Length"), Some("2"));
    send(&mut client, fixture.get("/second"));
    let mut second = fixture.accept();
    assert_eq!(Head::read(&mut second).line(), "GET /second HTTP/1.1");
    send(&mut second, OK);
    expect_ok(&mut client);
    assert_closed(&mut server);
}

#[test]
fn http_1_0_keep_alive_connection_is_reused() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/first"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    expect_ok(&mut client);
    fixture.exchange(&mut client, &mut server, "/second");
}

#[test]
fn connection_close_of_the_client_keeps_the_server_connection() {
    let mut fixture = Fixture::with("threads = 4\n");
    for fields in ["Connection: close", "Proxy-Connection: close"] {
        let mut client = fixture.client();
        send(&mut client, fixture.get("/last").replace("\r\n\r\n", &format!("\r\n{fields}\r\n\r\n")));
        let mut server = fixture.accept();
        let head = Head::read(&mut server);
        assert_eq!((head.all("Connection").len(), head.all("Proxy-Connection").len()), (0, 0), "{}", head.0);
        send(&mut server, OK);
        let (head, body) = read_response(&mut client);
        assert_eq!((head.get("Connection"), body.as_slice()), (Some("close"), b"ok".as_slice()));
        assert_closed(&mut client);
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "finished");
        // A second client uses the kept connection to the server.
        let mut another = fixture.client();
        fixture.exchange(&mut another, &mut server, "/another");
        drop(server);
        drop(another);
        fixture.relay.closed();
    }
}
