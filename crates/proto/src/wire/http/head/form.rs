//! The target of a request in its four forms (RFC 9112, 3.2).
//!
//! Requests to a forward proxy have authority form (CONNECT) or absolute form; a request in origin form is for the
//! relay itself. No target is corrected and no percent-encoding is changed: an invalid target is refused, a valid one
//! is forwarded as received.

use std::fmt;

use crate::addr::Target;
use crate::wire::WireError;

/// The target of a request.
#[derive(Clone, PartialEq, Eq)]
pub enum RequestTarget {
    /// `HOST:PORT`, only of CONNECT.
    Authority(Target),
    /// The absolute form (RFC 9112 section 3.2.2).
    Absolute {
        /// The scheme before `://`.
        scheme: Scheme,
        /// Host and port; the default port of the scheme if the URI has none.
        target: Target,
        /// Host and port as sent by the client, without user: the value for a `Host` field.
        authority_text: String,
        /// The text before `@`, still percent-encoded; only with `ftp`, since RFC 9110, 4.2.4 forbids it with `http`.
        userinfo: Option<String>,
        /// Path and query, at least `/`; `*` for OPTIONS of a whole server (RFC 9112, 3.2.4).
        path_and_query: String,
    },
    /// Path and query only, for the relay itself.
    Origin(String),
    /// `*`, only of OPTIONS.
    Asterisk,
}

/// The URI schemes that a relay accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`, by default on port 80.
    Http,
    /// `https`, by default on port 443.
    Https,
    /// `ftp`, by default on port 21 (RFC 1738, 3.2).
    Ftp,
}

impl Scheme {
    /// The port of a URI without a port.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Ftp => 21,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let known = [("http", Self::Http), ("https", Self::Https), ("ftp", Self::Ftp)];
        known.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, scheme)| scheme)
    }
}

impl RequestTarget {
    /// Reads the target of a request line, whose bytes have been checked to be visible ASCII.
    pub(super) fn parse(method: &str, text: &str) -> Result<Self, WireError> {
        if text.contains('#') {
            return Err(WireError::Invalid("fragment in the request target"));
        }
        // Methods are case-sensitive (RFC 9110, 9.1), so `connect` is not CONNECT and is not tunnelled.
        if method == "CONNECT" {
            let target = Target::parse(text, None);
            return target.map(Self::Authority).map_err(|_| WireError::Invalid("CONNECT without HOST:PORT"));
        }
        if text.starts_with('/') {
            return Ok(Self::Origin(text.to_owned()));
        }
        if text == "*" && method == "OPTIONS" {
            return Ok(Self::Asterisk);
        }
        let (scheme, rest) = text.split_once("://").ok_or(WireError::Invalid("request target is not a URI"))?;
        let scheme = Scheme::parse(scheme).ok_or(WireError::Invalid("scheme is not http, https or ftp"))?;
        Self::parse_absolute(method, scheme, rest)
    }

    /// Reads the text after `://`.
    fn parse_absolute(method: &str, scheme: Scheme, rest: &str) -> Result<Self, WireError> {
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (userinfo, authority) = match authority.rsplit_once('@') {
            Some((userinfo, authority)) => (Some(userinfo.to_owned()), authority),
            None => (None, authority),
        };
        if userinfo.is_some() && scheme != Scheme::Ftp {
            return Err(WireError::Invalid("user in an http URI"));
        }
        let target = Target::parse(authority, Some(scheme.default_port()));
        let target = target.map_err(|_| WireError::Invalid("URI without a valid host and port"))?;
        let path_and_query = match path {
            "" if method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        Ok(Self::Absolute { scheme, target, authority_text: authority.to_owned(), userinfo, path_and_query })
    }
}

/// `Debug` does not print the user and password of a URI.
impl fmt::Debug for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority(target) => f.debug_tuple("Authority").field(target).finish(),
            Self::Absolute { scheme, target, authority_text: _, userinfo, path_and_query } => f
                .debug_struct("Absolute")
                .field("scheme", scheme)
                .field("target", target)
                .field("has_userinfo", &userinfo.is_some())
                .field("path_and_query", path_and_query)
                .finish(),
            Self::Origin(path) => f.debug_tuple("Origin").field(path).finish(),
            Self::Asterisk => f.write_str("Asterisk"),
        }
    }
}
