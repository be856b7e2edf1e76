//! CONNECT to an upstream HTTP proxy (RFC 9110, 9.3.6), and the cause of a refusal.
//!
//! The answer is a [`ResponseHead`](super::head::ResponseHead). A status alone is not specific, so more specific fields
//! take precedence: first `Proxy-Status` (RFC 9209), then squid's `X-Squid-Error`, then the status.

use super::auth::write_basic;
use super::head::{Headers, split_list};
use super::rewrite::write_request;
use crate::addr::Target;
use crate::cause::Cause;
use crate::wire::socks5::Credentials;

/// Maximum length of a proxy's description of a failure, in bytes.
pub const MAX_DETAILS: usize = 200;

/// Encodes a request for a tunnel to `target`.
#[must_use]
pub fn connect_request(target: &Target, credentials: Option<&Credentials>) -> Vec<u8> {
    let authority = target.to_string();
    let mut headers = Headers::new();
    headers.push("Host", authority.as_str());
    if let Some(Credentials { user, password }) = credentials {
        headers.push("Proxy-Authorization", write_basic(user, password));
    }
    write_request("CONNECT", &authority, &headers)
}

/// Appends to `head` the bytes of `arrived` up to and including the next empty line, or all bytes if there is none.
/// Returns the number of bytes appended. Bytes after a head belong to the target, which may send first.
pub fn append_head(head: &mut Vec<u8>, arrived: &[u8]) -> usize {
    let old_length = head.len();
    head.extend_from_slice(arrived);
    let overlap = old_length.saturating_sub(3);
    let end = head[overlap..].windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| overlap + at + 4);
    head.truncate(end.unwrap_or(head.len()));
    head.len() - old_length
}

/// Returns the cause of a failure, from the proxy's answer.
#[must_use]
pub fn cause_of(status: u16, headers: &Headers) -> Cause {
    // "the first member of the list represents the intermediary closest to the origin server" (RFC 9209, 2).
    let proxy_cause = headers.list("Proxy-Status").find_map(proxy_status);
    proxy_cause.or_else(|| headers.get("X-Squid-Error").and_then(squid_error)).unwrap_or(match status {
        401 | 403 | 407 => Cause::DeniedByHop,
        504 => Cause::TimedOut,
        // The response of a web server that does not support CONNECT.
        405 | 501 => Cause::HopProtocol,
        _ => Cause::HopFailed,
    })
}

/// Returns the proxy's description of its failure: the parameter `details` of the member of `Proxy-Status` that has the
/// cause (RFC 9209, 2.1.5). Only printable ASCII, at most [`MAX_DETAILS`] bytes, without a full stop at the end.
#[must_use]
pub fn refusal_details(headers: &Headers) -> Option<String> {
    let member = headers.list("Proxy-Status").find(|member| proxy_status(member).is_some())?;
    let quoted = parameter(member, b"details")?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut text = String::new();
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        // RFC 8941, 3.3.3: a backslash precedes a quotation mark or a backslash.
        let byte = if *byte == b'\\' { bytes.next()? } else { byte };
        if matches!(byte, b' '..=b'~') && text.len() < MAX_DETAILS {
            text.push(char::from(*byte));
        }
    }
    let text = text.trim().trim_end_matches('.').trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value of a parameter of one member of `Proxy-Status`.
fn parameter<'a>(member: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    split_list(member, b';').skip(1).find_map(|part| part.strip_prefix(name)?.strip_prefix(b"="))
}

/// The cause in one member of `Proxy-Status`, such as `squid; error=dns_error; rcode="SERVFAIL"` (RFC 9209, 2.3).
fn proxy_status(member: &[u8]) -> Option<Cause> {
    Some(match parameter(member, b"error")? {
        b"connection_refused" => Cause::Refused,
        b"connection_timeout" | b"connection_read_timeout" | b"connection_write_timeout" => Cause::TimedOut,
        b"destination_ip_unroutable" => Cause::Unreachable,
        b"dns_error" => match parameter(member, b"rcode") {
            None | Some(br#""NXDOMAIN""#) => Cause::NameNotFound,
            Some(_) => Cause::NameServerFailed,
        },
        b"dns_timeout" => Cause::NameServerFailed,
        b"destination_ip_prohibited" | b"http_request_denied" => Cause::DeniedByHop,
        b"connection_terminated" => Cause::Reset,
        b"http_protocol_error" => Cause::HopProtocol,
        // Includes `connection_limit_reached`: the hop has reached a limit, not this relay.
        _ => Cause::HopFailed,
    })
}

/// The cause in squid's error, such as `ERR_CONNECT_FAIL 111`, where the number is a Linux errno.
fn squid_error(value: &[u8]) -> Option<Cause> {
    let (name, number) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    match (name, number) {
        ("ERR_CONNECT_FAIL", "111") => Some(Cause::Refused),
        ("ERR_CONNECT_FAIL", "110") => Some(Cause::TimedOut),
        ("ERR_CONNECT_FAIL", "101" | "113") => Some(Cause::Unreachable),
        ("ERR_DNS_FAIL", _) => Some(Cause::NameNotFound),
        ("ERR_ACCESS_DENIED" | "ERR_CACHE_ACCESS_DENIED" | "ERR_FORWARDING_DENIED", _) => Some(Cause::DeniedByHop),
        ("ERR_READ_TIMEOUT" | "ERR_LIFETIME_EXP", _) => Some(Cause::TimedOut),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::auth::parse_basic;
    use crate::wire::http::head::{BodyFraming, RequestHead, RequestTarget};

    #[test]
    fn connect_requests_carry_target_host_and_credentials() {
        let target: Target = "[2001:db8::1]:443".parse().unwrap();
        let credentials = Credentials { user: b"me".to_vec(), password: b"s:1".to_vec() };
        let plain = connect_request(&target, None);
        assert_eq!(plain, b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n");
        let bytes = connect_request(&target, Some(&credentials));
        let (head, used) = RequestHead::parse(&bytes, 1024).unwrap();
        assert_eq!((head.target, head.body, used), (RequestTarget::Authority(target), BodyFraming::Empty, bytes.len()));
        let sent = head.headers.get("proxy-authorization").and_then(parse_basic);
        assert_eq!(sent, Some((credentials.user, credentials.password)));
    }

    #[test]
    fn cause_follows_proxy_status_squid_error_or_status_code() {
        for (status, name, value, cause) in [
            (502, "Proxy-Status", "ekiden; error=connection_refused", Cause::Refused),
            (502, "Proxy-Status", "a;error=connection_timeout;details=\"x; error=dns_error, y\"", Cause::TimedOut),
            (
                502,
                "Proxy-Status",
                "near-the-origin; error=dns_error, near-us; error=connection_refused",
                Cause::NameNotFound,
            ),
            (
                502,
                "Proxy-Status",
                "ok-proxy; received-status=200, b; error=destination_ip_unroutable",
                Cause::Unreachable,
            ),
            (502, "Proxy-Status", "a; error=dns_error; rcode=\"SERVFAIL\"", Cause::NameServerFailed),
            (502, "Proxy-Status", "a; rcode=\"NXDOMAIN\"; error=dns_error", Cause::NameNotFound),
            (504, "Proxy-Status", "a; error=dns_timeout", Cause::NameServerFailed),
            (403, "Proxy-Status", "a; error=destination_ip_prohibited", Cause::DeniedByHop),
            (503, "Proxy-Status", "a; error=connection_limit_reached", Cause::HopFailed),
            (502, "Proxy-Status", "a; error=made_up", Cause::HopFailed),
            (503, "X-Squid-Error", "ERR_CONNECT_FAIL 111", Cause::Refused),
            (503, "X-Squid-Error", "ERR_CONNECT_FAIL 110", Cause::TimedOut),
            (503, "X-Squid-Error", "ERR_CONNECT_FAIL 101", Cause::Unreachable),
            (503, "X-Squid-Error", "ERR_CONNECT_FAIL 113", Cause::Unreachable),
            (503, "X-Squid-Error", "ERR_CONNECT_FAIL 99", Cause::HopFailed),
            (503, "X-Squid-Error", "ERR_DNS_FAIL 0", Cause::NameNotFound),
            (403, "X-Squid-Error", "ERR_ACCESS_DENIED 0", Cause::DeniedByHop),
            (407, "X-Squid-Error", "nonsense", Cause::DeniedByHop),
            (401, "X", "", Cause::DeniedByHop),
            (403, "Proxy-Status", "a", Cause::DeniedByHop),
            (504, "X", "", Cause::TimedOut),
            (405, "X", "", Cause::HopProtocol),
            (502, "X", "", Cause::HopFailed),
            (200, "X", "", Cause::HopFailed),
        ] {
            let mut headers = Headers::new();
            headers.push(name, value);
            assert_eq!(cause_of(status, &headers), cause, "{status} {name}: {value}");
        }
    }

    #[test]
    fn refusal_details_are_printable_and_bounded() {
        let long = format!("a; error=x; details=\"{}\"", "y".repeat(300));
        let short = "y".repeat(MAX_DETAILS);
        for (value, details) in [
            ("a; error=x; details=\"no; route, today.\"", Some("no; route, today")),
            ("ok; details=\"of another\", b; error=x", None),
            ("a; error=x; details=\"a \\\"b\\\" \\\\ \u{fc}\"", Some("a \"b\" \\")),
            ("a; error=x; details=token", None),
            ("a; error=x; details=\" . \"", None),
            ("a; error=x; details=\"", None),
            (long.as_str(), Some(short.as_str())),
        ] {
            let mut headers = Headers::new();
            headers.push("Proxy-Status", value);
            assert_eq!(refusal_details(&headers).as_deref(), details, "{value}");
        }
    }

    #[test]
    fn causes_round_trip_through_proxy_status() {
        for cause in [
            Cause::Refused,
            Cause::Unreachable,
            Cause::TimedOut,
            Cause::NameNotFound,
            Cause::Reset,
            Cause::DeniedByHop,
            Cause::HopFailed,
            Cause::HopProtocol,
        ] {
            let mut headers = Headers::new();
            headers.push("Proxy-Status", format!("ekiden; error={}", cause.proxy_status()));
            assert_eq!(cause_of(cause.http_status(), &headers), cause);
        }
    }
}
