//! Rewrites a received head into the head to forward (RFC 9110, 7.6 and 7.8).
//!
//! Hop-by-hop fields are removed, and those of the next connection are written anew. The order of the calls: first
//! [`is_keep_alive`], [`upgrade_protocols`] and [`expects_continue`]; then [`strip_hop_by_hop`]; then [`set_host`],
//! [`add_via`] and [`set_framing`]; then [`write_request`] or [`write_response`]. The parsers of this crate accept the
//! written head, which has the framing of the received one.

use super::head::scan::{MAX_METHOD, is_text_byte, is_token_byte};
use super::head::{BodyFraming, Headers, Version};

/// Hop-by-hop fields. `Trailer` is not among them, because trailers are forwarded. `Proxy-Authenticate` is among them,
/// because it "applies only to the next outbound client" (RFC 9110, 11.7.1): the relay writes its own challenge to its
/// client.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Fields that a `Connection` field cannot remove: "a sender MUST NOT send a connection option corresponding to a field
/// that is intended for all recipients of the content" (RFC 9110, 7.6.1). Without such a field, the next server could
/// interpret the request differently from the request that was checked here.
const END_TO_END: [&str; 29] = [
    "accept-encoding",
    "age",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "last-modified",
    "location",
    "max-forwards",
    "origin",
    "range",
    "referer",
    "set-cookie",
    "trailer",
    "vary",
    "via",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
];

/// Removes hop-by-hop fields: the fixed list, and those that `Connection` names (RFC 9110, 7.6.1). As this removes
/// `Transfer-Encoding`, [`set_framing`] must follow.
pub fn strip_hop_by_hop(headers: &mut Headers) {
    let names: Vec<String> =
        headers.list("Connection").map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let is_hop_by_hop = |name: &&String| !END_TO_END.iter().any(|end_to_end| end_to_end.eq_ignore_ascii_case(name));
    names.iter().filter(is_hop_by_hop).for_each(|name| headers.remove(name));
    HOP_BY_HOP.iter().for_each(|name| headers.remove(name));
}

/// Appends this relay to `Via` (RFC 9110, 7.6.3): the version of the received message, and the relay's `name`.
pub fn add_via(headers: &mut Headers, received: Version, name: &str) {
    let mut via = Vec::new();
    for sender in headers.get_all("Via").filter(|value| !value.is_empty()) {
        via.extend([sender, b", "].concat());
    }
    let version = if received == Version::Http10 { "1.0 " } else { "1.1 " };
    via.extend(version.as_bytes());
    via.extend(name.as_bytes());
    headers.set("Via", via);
}

/// Sets `Host` as the first field. The client's value is discarded, because a URI in absolute form takes precedence
/// (RFC 9112, 3.2.2).
pub fn set_host(headers: &mut Headers, authority: &str) {
    headers.remove("Host");
    headers.insert(0, "Host".to_owned(), authority.into());
}

/// Writes the framing fields for `body`. With [`BodyFraming::Empty`] a `Content-Length` is kept, because the answer to
/// HEAD has one (RFC 9110, 8.6).
pub fn set_framing(headers: &mut Headers, body: BodyFraming) {
    headers.remove("Transfer-Encoding");
    match body {
        BodyFraming::Empty => {}
        BodyFraming::Length(length) => headers.set("Content-Length", length.to_string()),
        BodyFraming::Chunked => {
            headers.remove("Content-Length");
            headers.push("Transfer-Encoding", "chunked");
        }
        BodyFraming::UntilClose => headers.remove("Content-Length"),
    }
}

/// Returns the protocols that a client requests to switch to (RFC 9110, 7.8), as the value of `Upgrade` to write beside
/// `Connection: upgrade` after stripping; `None` if there are none. A server ignores them in HTTP/1.0, so they are
/// valid only in HTTP/1.1. `h2c` is excluded: RFC 9113, 3.1 deprecates it, and the relay would not see the requests
/// that follow it.
#[must_use]
pub fn upgrade_protocols(headers: &Headers) -> Option<String> {
    if !headers.has_token("Connection", "upgrade") {
        return None;
    }
    let is_valid = |protocol: &&[u8]| protocol.iter().all(|byte| is_token_byte(*byte) || *byte == b'/');
    let protocols = headers.list("Upgrade").filter(is_valid).filter(|protocol| !protocol.eq_ignore_ascii_case(b"h2c"));
    let protocols = protocols.collect::<Vec<_>>().join(b", ".as_slice());
    String::from_utf8(protocols).ok().filter(|protocols| !protocols.is_empty())
}

/// Whether a 101 answer names at least one protocol, and no protocol that is missing from `requested`, the result of
/// [`upgrade_protocols`] (RFC 9110, 7.8).
#[must_use]
pub fn can_switch(requested: &str, answer: &Headers) -> bool {
    let is_requested =
        |name: &[u8]| requested.split(", ").any(|requested| requested.as_bytes().eq_ignore_ascii_case(name));
    answer.list("Upgrade").next().is_some() && answer.list("Upgrade").all(is_requested)
}

/// Whether the sender keeps the connection open after this message (RFC 9112, 9.3; for HTTP/1.0 its appendix C.2.2, and
/// the `Proxy-Connection` of old clients).
#[must_use]
pub fn is_keep_alive(version: Version, headers: &Headers) -> bool {
    let has_option = |option| headers.has_token("Connection", option) || headers.has_token("Proxy-Connection", option);
    !has_option("close") && (version == Version::Http11 || has_option("keep-alive"))
}

/// Whether the client waits for `100 Continue` before it sends its body (RFC 9110, 10.1.1). A server ignores this in
/// HTTP/1.0.
#[must_use]
pub fn expects_continue(headers: &Headers) -> bool {
    headers.has_token("Expect", "100-continue")
}

/// Encodes a request head in HTTP/1.1. Bytes of `target` that a request line cannot contain are percent-encoded. A
/// `method` that is no token is written as `INVALID`, which servers refuse as unknown.
#[must_use]
pub fn write_request(method: &str, target: &str, headers: &Headers) -> Vec<u8> {
    let token = (1..=MAX_METHOD).contains(&method.len()) && method.bytes().all(is_token_byte);
    // No more memory is allocated than needed, because a proxy keeps the head until the answer arrives.
    let mut out =
        Vec::with_capacity(method.len() + target.len() + " HTTP/1.1\r\n".len() + 1 + headers.written_length());
    out.extend(if token { method } else { "INVALID" }.as_bytes());
    out.push(b' ');
    for byte in target.bytes() {
        match byte {
            b'#' => out.extend(b"%23"),
            b'!'..=b'~' => out.push(byte),
            _ => out.extend(format!("%{byte:02X}").bytes()),
        }
    }
    out.extend(b" HTTP/1.1\r\n");
    headers.write(&mut out);
    out
}

/// Encodes a response head in HTTP/1.1; control bytes in `reason` are replaced by SP.
#[must_use]
pub fn write_response(status: u16, reason: &str, headers: &Headers) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend(format!("HTTP/1.1 {} ", status.clamp(100, 999)).bytes());
    out.extend(reason.bytes().map(|byte| if is_text_byte(byte) { byte } else { b' ' }));
    out.extend(b"\r\n");
    headers.write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{RequestHead, ResponseHead};

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.push(*name, *value));
        headers
    }

    fn names(headers: &Headers) -> Vec<&str> {
        headers.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        let mut fields = headers(&[
            ("Host", "a"),
            ("Connection", "close, X-Mine, x-also"),
            ("Connection", "Keep-Alive"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Proxy-Authorization", "Basic x"),
            ("Proxy-Authenticate", "Basic"),
            ("TE", "trailers"),
            ("Trailer", "X-Sum"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AA"),
            ("X-Mine", "1"),
            ("X-Also", "1"),
            ("Accept", "*/*"),
        ]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(names(&fields), ["Host", "Trailer", "Accept"]);
    }

    #[test]
    fn connection_field_cannot_remove_essential_fields() {
        let essential =
            ["Host", "Content-Length", "Via", "Cookie", "Authorization", "Cache-Control", "X-Forwarded-For", "Expect"];
        let mut fields = headers(&[("Connection", &essential.join(",").to_lowercase())]);
        essential.iter().for_each(|name| fields.push(*name, "1"));
        strip_hop_by_hop(&mut fields);
        assert_eq!(names(&fields), essential);
    }

    #[test]
    fn via_is_merged_and_extended_at_the_end() {
        let mut fields = headers(&[("Via", "1.0 fred"), ("Accept", "*/*"), ("via", "1.1 p.example (x)")]);
        add_via(&mut fields, Version::Http10, "ekiden");
        assert_eq!(fields.get("Via"), Some(b"1.0 fred, 1.1 p.example (x), 1.0 ekiden".as_slice()));
        assert_eq!(names(&fields), ["Via", "Accept"]);
        let mut fields = Headers::new();
        add_via(&mut fields, Version::Http11, "ekiden");
        assert_eq!(fields.get("Via"), Some(b"1.1 ekiden".as_slice()));
    }

    #[test]
    fn upgrade_needs_the_connection_and_upgrade_fields() {
        for (fields, expected) in [
            ([("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")], Some("websocket")),
            ([("Connection", "upgrade"), ("Upgrade", "foo/2, h2c,websocket")], Some("foo/2, websocket")),
            ([("Connection", "upgrade"), ("Upgrade", "h2c")], None),
            ([("Connection", "upgrade"), ("Upgrade", "a b, \"c\"")], None),
            ([("Connection", "upgrade"), ("Upgrade", "")], None),
            ([("Connection", "keep-alive"), ("Upgrade", "websocket")], None),
            ([("Connection", "upgrade"), ("X", "websocket")], None),
        ] {
            assert_eq!(upgrade_protocols(&headers(&fields)).as_deref(), expected, "{fields:?}");
        }
    }

    #[test]
    fn keep_alive_and_expect_follow_version_and_fields() {
        use Version::{Http10, Http11};
        for (version, name, value, kept) in [
            (Http11, "X", "", true),
            (Http10, "X", "", false),
            (Http11, "Connection", "close", false),
            (Http11, "Connection", "x, CLOSE", false),
            (Http10, "Connection", "Keep-Alive", true),
            (Http10, "Proxy-Connection", "keep-alive", true),
            (Http10, "Connection", "keep-alive, close", false),
            (Http11, "Proxy-Connection", "close", false),
        ] {
            assert_eq!(is_keep_alive(version, &headers(&[(name, value)])), kept, "{version:?} {name}: {value}");
        }
        assert!(expects_continue(&headers(&[("expect", "100-Continue")])));
        assert!(!expects_continue(&headers(&[("expect", "200-ok")])));
    }

    #[test]
    fn heads_round_trip() {
        for body in [BodyFraming::Empty, BodyFraming::Length(5), BodyFraming::Chunked] {
            let mut fields =
                headers(&[("Accept", "*/*"), ("Content-Length", "9"), ("Host", "b"), ("Transfer-Encoding", "x")]);
            if body == BodyFraming::Empty {
                fields.remove("Content-Length");
            }
            set_host(&mut fields, "a");
            set_framing(&mut fields, body);
            let bytes = write_request("PUT", "/x", &fields);
            let (head, used) = RequestHead::parse(&bytes, 1024).unwrap();
            assert_eq!((head.body, &head.headers, used), (body, &fields, bytes.len()));
            assert_eq!(names(&fields)[0], "Host");
        }
        for body in [BodyFraming::Length(5), BodyFraming::Chunked, BodyFraming::UntilClose] {
            let mut fields = headers(&[("Content-Length", "9")]);
            set_framing(&mut fields, body);
            let bytes = write_response(404, "Not Found", &fields);
            let (head, used) = ResponseHead::parse(&bytes, 1024, "GET").unwrap();
            assert_eq!((head.status, head.reason.as_str(), head.body, used), (404, "Not Found", body, bytes.len()));
        }
    }

    #[test]
    fn written_heads_contain_no_injected_lines() {
        let fields = headers(&[("Host", "a"), ("X", "1\r\nContent-Length: 5"), ("Y\r\nZ", "2")]);
        for (method, target, line) in [
            ("GET", "/a b\r\n\u{e9}#", "GET /a%20b%0D%0A%C3%A9%23 HTTP/1.1"),
            ("GET /x HTTP/1.1\r\n", "/", "INVALID / HTTP/1.1"),
            ("", "/", "INVALID / HTTP/1.1"),
        ] {
            let bytes = write_request(method, target, &fields);
            let expected = format!("{line}\r\nHost: a\r\nX: 1  Content-Length: 5\r\n\r\n");
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
            assert_eq!(RequestHead::parse(&bytes, 1024).map(|(head, _)| head.body), Ok(BodyFraming::Empty));
        }
        let bytes = write_response(7, "a\r\nb", &Headers::new());
        assert_eq!(bytes, b"HTTP/1.1 100 a  b\r\n\r\n");
        assert!(ResponseHead::parse(&bytes, 1024, "GET").is_ok());
    }
}
