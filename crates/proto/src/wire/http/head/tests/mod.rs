//! Heads that are accepted, and malformed heads that are refused.

mod framing;

use super::*;
use crate::addr::Target;
use crate::wire::Parsed;
use crate::wire::feeding::feed;

const LIMIT: usize = 16 * 1024;

fn request(bytes: &[u8]) -> Parsed<RequestHead> {
    RequestHead::parse(bytes, LIMIT)
}

fn assert_refused<T>(bytes: &[u8], parsed: Parsed<T>) {
    let shown = String::from_utf8_lossy(bytes);
    assert!(matches!(parsed, Err(WireError::Invalid(_))), "{shown:?} gave {:?}", parsed.map(|(_, used)| used));
}

fn absolute(text: &str, method: &str) -> (Scheme, String, String, Option<String>, String) {
    match RequestTarget::parse(method, text) {
        Ok(RequestTarget::Absolute { scheme, target, authority_text, userinfo, path_and_query }) => {
            (scheme, target.to_string(), authority_text, userinfo, path_and_query)
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn browser_request_is_parsed() {
    let head = feed(
        b"GET http://Example.com/a?b=c HTTP/1.1\r\nHost: Example.com\r\nAccept:*/*\r\nX-Empty:\r\n\
          Proxy-Connection: \tkeep-alive\t \r\n\r\n",
        request,
    );
    assert_eq!((head.method.as_str(), head.version, head.body), ("GET", Version::Http11, BodyFraming::Empty));
    let fields: Vec<_> = head.headers.iter().map(|(name, value)| (name, str::from_utf8(value).unwrap())).collect();
    let expected = [("Host", "Example.com"), ("Accept", "*/*"), ("X-Empty", ""), ("Proxy-Connection", "keep-alive")];
    assert_eq!(fields, expected);
}

#[test]
fn target_forms_are_distinguished() {
    let target: Target = "example.com:443".parse().unwrap();
    assert_eq!(RequestTarget::parse("CONNECT", "example.com:443"), Ok(RequestTarget::Authority(target)));
    assert_eq!(RequestTarget::parse("GET", "/a?b"), Ok(RequestTarget::Origin("/a?b".to_owned())));
    assert_eq!(RequestTarget::parse("OPTIONS", "*"), Ok(RequestTarget::Asterisk));
    let own = |scheme, target: &str, authority: &str, userinfo: Option<&str>, path: &str| {
        (scheme, target.to_owned(), authority.to_owned(), userinfo.map(str::to_owned), path.to_owned())
    };
    for (method, text, expected) in [
        ("GET", "http://A.example", own(Scheme::Http, "a.example:80", "A.example", None, "/")),
        ("GET", "HTTP://a:8080?q=/@x", own(Scheme::Http, "a:8080", "a:8080", None, "/?q=/@x")),
        ("OPTIONS", "http://a", own(Scheme::Http, "a:80", "a", None, "*")),
        ("OPTIONS", "http://a/", own(Scheme::Http, "a:80", "a", None, "/")),
        ("GET", "https://[2001:db8::1]/x", own(Scheme::Https, "[2001:db8::1]:443", "[2001:db8::1]", None, "/x")),
        ("GET", "ftp://me:p%40@w@a/d/;type=a", own(Scheme::Ftp, "a:21", "a", Some("me:p%40@w"), "/d/;type=a")),
    ] {
        assert_eq!(absolute(text, method), expected, "{text}");
    }
    let shown = format!("{:?}", RequestTarget::parse("GET", "ftp://me:secret@a/"));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn bad_request_targets_are_refused() {
    for (method, text) in [
        ("CONNECT", "example.com"),
        ("CONNECT", "example.com:0"),
        ("CONNECT", "example.com:65536"),
        ("CONNECT", "me@example.com:443"),
        ("CONNECT", "http://example.com:443/"),
        ("CONNECT", "/"),
        ("CONNECT", "::1:443"),
        ("connect", "example.com:443"),
        ("GET", "example.com:443"),
        ("GET", "*"),
        ("GET", "http://a/#b"),
        ("GET", "/#b"),
        ("GET", "http:///x"),
        ("GET", "http://?x"),
        ("GET", "http://a:0/"),
        ("GET", "http://a:/"),
        ("GET", "http://a:+80/"),
        ("GET", "http://me:pw@a/"),
        ("GET", "https://me@a/"),
        ("GET", "http://@a/"),
        ("GET", "http://a\\@b/"),
        ("GET", "http://a%2eb/"),
        ("GET", "http://::1/"),
        ("GET", "gopher://a/"),
        ("GET", "http:/a"),
        ("GET", ""),
    ] {
        assert!(RequestTarget::parse(method, text).is_err(), "{method} {text}");
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / a HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET / HTTP/1.1\rX: y",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/1",
        "GET / http/1.1",
        "GET / HTTPS/1.1",
        "GET /",
        "GET / ",
        "GET",
        "GET ",
        "",
        "G(T / HTTP/1.1",
        "GET: / HTTP/1.1",
        "PRI * HTTP/2.0",
    ] {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert_refused(text.as_bytes(), request(text.as_bytes()));
    }
}

#[test]
fn methods_are_tokens_of_bounded_length() {
    for method in ["get", "M-SEARCH", "x!#$%&'*+.^_`|~9", &"A".repeat(32)] {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(feed(text.as_bytes(), request).method, method);
    }
    assert_refused(b"", request("A".repeat(33).as_bytes()));
    assert_refused(b"", request(format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(33)).as_bytes()));
}

#[test]
fn one_empty_line_is_allowed_before_a_request() {
    let (head, used) = request(b"\r\nGET / HTTP/1.0\r\n\r\nrest").unwrap();
    assert_eq!((head.method.as_str(), used), ("GET", 20));
    feed(b"\r\nGET / HTTP/1.0\r\n\r\n", request);
    for text in ["\r\n\r\nGET / HTTP/1.0\r\n\r\n", "\nGET / HTTP/1.0\r\n\r\n", "\rGET / HTTP/1.0\r\n\r\n"] {
        assert_refused(text.as_bytes(), request(text.as_bytes()));
    }
    let response = b"\r\nHTTP/1.1 200 OK\r\n\r\n";
    assert_refused(response, ResponseHead::parse(response, LIMIT, "GET"));
}

#[test]
fn host_field_is_mandatory_unique_and_valid() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    ] {
        feed(text.as_bytes(), request);
    }
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    ] {
        assert_refused(text.as_bytes(), request(text.as_bytes()));
    }
}

#[test]
fn garbage_is_refused_before_a_head_could_end() {
    for bytes in [
        b"\x16\x03\x01\x02\x00".as_slice(),
        b"\x05\x01",
        b"\x00",
        b"\xff\xfb",
        b" ",
        b":",
        b"{",
        b"<html>",
        b"GET /\x00",
        b"GET / FTP",
        b"GET / HTTP/2",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n ",
        b"GET / HTTP/1.1\r\nHost: a\r\nb ",
        b"GET / HTTP/1.1\r\nHost: a\r\nb: \x01",
        &[b'A'; 33],
    ] {
        assert_refused(bytes, request(bytes));
    }
    for bytes in [
        b"SSH-2.0".as_slice(),
        b"HTTP/2",
        b"HTTP/1.1 2x",
        b"HTTP/1.1 0",
        b"HTTP/1.1 2000",
        b"220 ftp",
        b"\x05\x00",
        b"h",
    ] {
        assert_refused(bytes, ResponseHead::parse(bytes, LIMIT, "GET"));
    }
}

#[test]
fn heads_are_bounded_in_bytes_and_fields() {
    let head = b"GET / HTTP/1.0\r\nX: yyyy\r\n\r\n";
    assert!(RequestHead::parse(head, head.len()).is_ok());
    assert_eq!(RequestHead::parse(head, head.len() - 1), Err(WireError::TooLarge));
    assert_eq!(RequestHead::parse(&head[..10], 10), Err(WireError::TooLarge));
    assert_eq!(RequestHead::parse(&head[..9], 10), Err(WireError::Incomplete));
    let fields = |count| format!("GET / HTTP/1.0\r\n{}\r\n", "X: y\r\n".repeat(count));
    assert_eq!(feed(fields(100).as_bytes(), request).headers.len(), 100);
    assert_refused(b"101 fields", request(fields(101).as_bytes()));
}

#[test]
fn non_ascii_reasons_are_dropped_and_values_are_kept() {
    let head =
        feed(b"HTTP/1.0 200 \xe9t\xe9\r\nX: \xff\t\xfe\r\n\r\n", |bytes| ResponseHead::parse(bytes, LIMIT, "GET"));
    assert_eq!((head.reason.as_str(), head.version), ("", Version::Http10));
    assert_eq!(head.headers.get("x"), Some(b"\xff\t\xfe".as_slice()));
}

#[test]
fn headers_keep_their_order_and_stay_well_formed() {
    let mut headers = Headers::new();
    for (name, value) in
        [("A", "1"), ("B", "2, \"x,\\\"y\" ,, 3"), ("a", "4"), ("bad name", "5"), ("", "6"), ("C", " 7\r\nD: 8\0 ")]
    {
        headers.push(name, value);
    }
    assert_eq!(headers.get_all("a").collect::<Vec<_>>(), [b"1", b"4"]);
    assert_eq!(headers.list("b").collect::<Vec<_>>(), [b"2".as_slice(), b"\"x,\\\"y\"", b"3"]);
    assert_eq!(headers.get("C"), Some(b"7  D: 8".as_slice()));
    assert!(headers.has_token("A", "4") && !headers.has_token("A", "5"));
    headers.set("a", "9");
    headers.set("E", "0");
    headers.remove("B");
    assert_eq!(headers.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "C", "E"]);
    assert_eq!((headers.len(), headers.is_empty()), (3, false));
    headers.push("Proxy-Authorization", "Basic c2VjcmV0");
    assert!(!format!("{headers:?}").contains("c2Vj"));
}
