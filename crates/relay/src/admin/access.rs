//! Access control of the admin listener. A web page that a user of this host has open can send requests to any address
//! that the user's browser reaches. Such requests are recognised by their host name (DNS rebinding) or their origin,
//! and refused even with a token.

use std::time::Duration;

use ekiden_proto::addr::{Host, Target};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use serde::{Serialize, Serializer};
use tokio::time::sleep;

use crate::config::{AdminBind, AdminConfig, AdminToken};

/// Delay of the response to a wrong token. A connection that waits for this response can be evicted for a new one.
const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

/// The token that clients must send, and the host names that requests may contain.
pub(super) struct AdminAuth {
    token: Option<AdminToken>,
    hosts: Vec<String>,
}

/// Serializes whether there is a token, never the token itself.
impl Serialize for AdminAuth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("token", self.token.is_some())])
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminRefusal {
    /// The `Host` header names another host.
    UnknownHost,
    /// The request comes from a web page of another origin.
    CrossOrigin,
    /// A token is required.
    MissingToken,
    /// The token is wrong.
    WrongToken,
}

impl AdminAuth {
    /// Creates the access control configured in `admin`. Clients of a unix socket need no token.
    pub fn new(admin: &AdminConfig) -> Self {
        let token = admin.token.clone().filter(|_| matches!(admin.bind, AdminBind::Tcp(_)));
        Self { token, hosts: admin.hosts.clone() }
    }

    /// Checks a request for the files of the dashboard, which contain no data of this relay.
    pub fn check_page(&self, head: &HeaderMap) -> Result<(), AdminRefusal> {
        if !self.is_own_host(head) {
            return Err(AdminRefusal::UnknownHost);
        }
        if is_same_origin(head) { Ok(()) } else { Err(AdminRefusal::CrossOrigin) }
    }

    /// Checks a request for data. The response to a wrong token is delayed.
    pub async fn authorize(&self, head: &HeaderMap) -> Result<(), AdminRefusal> {
        self.check_page(head)?;
        let Some(token) = &self.token else { return Ok(()) };
        let authorization = head.get(AUTHORIZATION).ok_or(AdminRefusal::MissingToken)?;
        if bearer_token(authorization.as_bytes()).is_some_and(|candidate| token.matches(candidate)) {
            return Ok(());
        }
        sleep(WRONG_TOKEN_DELAY).await;
        Err(AdminRefusal::WrongToken)
    }

    /// Whether the `Host` header is a name of this listener. The requests of a web page carry the name of the page's
    /// own server (DNS rebinding). A literal address is safe from that; one that is not a loopback address requires a
    /// configured token.
    fn is_own_host(&self, head: &HeaderMap) -> bool {
        let mut names = head.get_all(HOST).iter();
        let (Some(name), None) = (names.next(), names.next()) else { return !head.contains_key(HOST) };
        match name.to_str().ok().and_then(|name| Target::parse(name, Some(80)).ok()).map(|target| target.host) {
            Some(Host::Ip(ip)) => ip.is_loopback() || self.token.is_some(),
            Some(Host::Name(name)) => name == "localhost" || self.hosts.contains(&name),
            None => false,
        }
    }
}

/// Whether a request comes from a page of this listener, according to the headers that browsers send (Fetch, section
/// 3.2; Fetch Metadata), or has no such header. Other programs send none; `none` stands for an address typed by the
/// user.
fn is_same_origin(head: &HeaderMap) -> bool {
    let site = head.get("sec-fetch-site").map(|site| site.as_bytes());
    let origin = head.get(ORIGIN).map(|origin| origin.as_bytes());
    let matches_host = |origin: &[u8]| {
        let name = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
        head.get(HOST).is_some_and(|host| name.is_some_and(|name| name.eq_ignore_ascii_case(host.as_bytes())))
    };
    matches!(site, None | Some(b"same-origin" | b"none")) && origin.is_none_or(matches_host)
}

/// Extracts the token from `Bearer TOKEN`, the value of `Authorization` (RFC 6750, section 2.1).
fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

impl AdminRefusal {
    /// The HTTP status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::UnknownHost | Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::MissingToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
        }
    }

    /// The text of the response: the reason and the remedy.
    pub const fn message(self) -> &'static str {
        match self {
            Self::UnknownHost => {
                "403: unknown host name. Use an address or localhost, or add the name to hosts in [admin] of the \
                 configuration.\n"
            }
            Self::CrossOrigin => {
                "403: request from a page of another origin. To see the dashboard, type its address instead of \
                 following a link.\n"
            }
            Self::MissingToken => {
                "401: a token is required. Send the content of the file that token_file in [admin] names, like\n    curl -H \"Authorization: Bearer $(cat FILE)\" URL\n"
            }
            Self::WrongToken => {
                "401: wrong token. The token is the content of the file that token_file in [admin] names, as of the start of the relay.\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn head(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut head = HeaderMap::new();
        lines.iter().map(pair).for_each(|(name, value)| _ = head.append(name, value));
        head
    }

    fn open() -> AdminAuth {
        AdminAuth { token: None, hosts: vec!["relay.example".into()] }
    }

    fn guarded() -> AdminAuth {
        AdminAuth { token: AdminToken::parse(TOKEN).ok(), ..open() }
    }

    #[test]
    fn unknown_host_headers_are_refused() {
        for (name, open_to, guarded_to) in [
            ("127.0.0.1:9090", true, true),
            ("[::1]:9090", true, true),
            ("localhost", true, true),
            ("LOCALHOST:1", true, true),
            ("relay.example:9090", true, true),
            ("192.0.2.1:9090", false, true),
            ("evil.example", false, false),
            ("relay.example.evil.example", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("localhost:1@evil.example", false, false),
            ("", false, false),
        ] {
            let head = head(&[("host", name)]);
            assert_eq!(
                (open().check_page(&head).is_ok(), guarded().check_page(&head).is_ok()),
                (open_to, guarded_to),
                "{name}"
            );
        }
        assert!(open().check_page(&head(&[])).is_ok(), "HTTP/1.0");
        assert_eq!(
            open().check_page(&head(&[("host", "localhost"), ("host", "evil.example")])),
            Err(AdminRefusal::UnknownHost)
        );
    }

    #[test]
    fn cross_origin_requests_are_refused() {
        let host = ("host", "127.0.0.1:9090");
        for (line, good) in [
            (("origin", "http://127.0.0.1:9090"), true),
            (("origin", "https://127.0.0.1:9090"), true),
            (("origin", "http://127.0.0.1:8000"), false),
            (("origin", "http://127.0.0.1"), false),
            (("origin", "http://evil.example"), false),
            (("origin", "null"), false),
            (("sec-fetch-site", "same-origin"), true),
            (("sec-fetch-site", "none"), true),
            (("sec-fetch-site", "same-site"), false),
            (("sec-fetch-site", "cross-site"), false),
            (("accept", "*/*"), true),
        ] {
            let expected = if good { Ok(()) } else { Err(AdminRefusal::CrossOrigin) };
            assert_eq!(open().check_page(&head(&[host, line])), expected, "{line:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_required_and_wrong_tokens_are_delayed() {
        let began = tokio::time::Instant::now();
        let (access, host) = (guarded(), ("host", "192.0.2.1"));
        assert_eq!(access.authorize(&head(&[host])).await, Err(AdminRefusal::MissingToken));
        for right in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef"] {
            assert_eq!(access.authorize(&head(&[host, ("authorization", right)])).await, Ok(()), "{right}");
        }
        assert!(began.elapsed().is_zero());
        for wrong in ["Bearer 0123456789abcdeF", "Bearer", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef", ""]
        {
            let head = head(&[host, ("authorization", wrong)]);
            assert_eq!(access.authorize(&head).await, Err(AdminRefusal::WrongToken), "{wrong}");
        }
        assert_eq!(began.elapsed(), 6 * WRONG_TOKEN_DELAY);
        let cross_origin =
            head(&[host, ("authorization", "Bearer 0123456789abcdef"), ("origin", "http://evil.example")]);
        assert_eq!(access.authorize(&cross_origin).await, Err(AdminRefusal::CrossOrigin));
        assert_eq!(open().authorize(&head(&[("host", "localhost")])).await, Ok(()));
    }
}
