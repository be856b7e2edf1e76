//! Framing of bodies, and messages whose end two parsers could see in different places (request smuggling).

use super::*;

#[test]
fn request_framing_follows_method_and_fields() {
    for (fields, body) in [
        ("", BodyFraming::Empty),
        ("Content-Length: 0\r\n", BodyFraming::Length(0)),
        ("content-length:5\r\n", BodyFraming::Length(5)),
        ("Content-Length: \t 0012 \r\n", BodyFraming::Length(12)),
        ("Content-Length: 9223372036854775807\r\n", BodyFraming::Length(i64::MAX as u64)),
        ("Transfer-Encoding: chunked\r\n", BodyFraming::Chunked),
        ("transfer-encoding:\tCHUNKED\r\n", BodyFraming::Chunked),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(feed(text.as_bytes(), request).body, body, "{fields:?}");
    }
    let connect = feed(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n", request);
    assert_eq!(connect.body, BodyFraming::Empty);
}

/// Field lines that make a message whose end two parsers could see in different places, or that hide a field.
const AMBIGUOUS_FIELDS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Content-Length: 5\r\nContent-Length: 5\r\n",
    "Content-Length: 5\r\ncontent-length: 6\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 5,6\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 5 5\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5.0\r\n",
    "Content-Length: five\r\n",
    "Content-Length:\r\n",
    "Content-Length: 9223372036854775808\r\n",
    "Content-Length: 18446744073709551617\r\n",
    "Content-Length: 00000000000000000005\r\n",
    "Content-Length: \u{0665}\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
    "Transfer-Encoding: chunked;q=1\r\n",
    "Transfer-Encoding: chunked,\r\n",
    "Transfer-Encoding:\r\n",
    "Transfer-Encoding: chun\tked\r\n",
    "Transfer-Encoding: chunked\u{b}\r\n",
    "X: a\r\n folded\r\n",
    "X: a\r\n\tfolded\r\n",
    " X: a\r\n",
    "\tX: a\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "X: a\rContent-Length: 5\r\n",
    "X: a\r\r\n",
    "X: a\nContent-Length: 5\r\n",
    "X: a\n",
    "\nX: a\r\n",
    "X: a\0\r\n",
    "X\0: a\r\n",
    "X: a\u{1}b\r\n",
    "X: a\u{7f}\r\n",
    "Content-Length : 5\r\n",
    "Content-Length\t: 5\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Content Length: 5\r\n",
    ": a\r\n",
    "X\r\n",
    "X a\r\n",
    "X(y): a\r\n",
    "X\u{e9}: a\r\n",
    "X\"y\": a\r\n",
    "[X]: a\r\n",
    "\u{b}X: a\r\n",
];

#[test]
fn ambiguous_framing_is_refused_in_requests() {
    for trick in AMBIGUOUS_FIELDS {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{trick}\r\n");
        assert_refused(text.as_bytes(), request(text.as_bytes()));
    }
    for text in [
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert_refused(text.as_bytes(), request(text.as_bytes()));
    }
}

#[test]
fn ambiguous_framing_is_refused_in_responses() {
    for trick in AMBIGUOUS_FIELDS {
        let text = format!("HTTP/1.1 200 OK\r\n{trick}\r\n");
        assert_refused(text.as_bytes(), ResponseHead::parse(text.as_bytes(), LIMIT, "GET"));
    }
    let old = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_refused(old, ResponseHead::parse(old, LIMIT, "GET"));
}

#[test]
fn refusals_name_their_reason() {
    for (text, reason) in [
        ("GET / HTTP/1.1\r\nX: a\r\n b\r\n", "folded header line"),
        ("GET / HTTP/1.1\r\nX : a\r\n", "header name is not a token"),
        ("GET / HTTP/1.1\r\nX: a\n", "LF without CR"),
        ("GET / HTTP/1.1\r\nX: a\rb", "CR without LF"),
        ("GET / HTTP/1.1\r\nX: a\0", "control byte"),
        ("GET / HTTP/1.1\r\nX\r\n", "header line without a colon"),
    ] {
        assert_eq!(request(text.as_bytes()), Err(WireError::Invalid(reason)), "{text:?}");
    }
}

#[test]
fn response_framing_follows_status_method_and_fields() {
    const LENGTH: &str = "Content-Length: 5\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    for (method, status, fields, body, framing_left) in [
        ("GET", "200 OK", LENGTH, BodyFraming::Length(5), true),
        ("GET", "200 OK", CHUNKED, BodyFraming::Chunked, true),
        ("GET", "200 OK", "", BodyFraming::UntilClose, false),
        ("GET", "200", "", BodyFraming::UntilClose, false),
        ("GET", "404 ", "", BodyFraming::UntilClose, false),
        ("HEAD", "200 OK", LENGTH, BodyFraming::Empty, true),
        ("HEAD", "200 OK", "", BodyFraming::Empty, false),
        ("GET", "304 Not Modified", LENGTH, BodyFraming::Empty, true),
        ("GET", "204 No Content", LENGTH, BodyFraming::Empty, false),
        ("GET", "100 Continue", CHUNKED, BodyFraming::Empty, false),
        ("GET", "101 Switching Protocols", LENGTH, BodyFraming::Empty, false),
        ("CONNECT", "200 Connection established", LENGTH, BodyFraming::Empty, false),
        ("CONNECT", "200 OK", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", BodyFraming::Empty, false),
        ("CONNECT", "407 No", LENGTH, BodyFraming::Length(5), true),
        ("get", "200 OK", "", BodyFraming::UntilClose, false),
    ] {
        let text = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        let head = feed(text.as_bytes(), |bytes| ResponseHead::parse(bytes, LIMIT, method));
        assert_eq!(head.body, body, "{method} {status} {fields}");
        let left = head.headers.get("Content-Length").or(head.headers.get("Transfer-Encoding"));
        assert_eq!(left.is_some(), framing_left, "{method} {status} {fields}");
    }
}
