//! What is to be tried: `HOST[:PORT]`, or the URL of a file.

use std::fmt;
use std::str::FromStr;

use ekiden_proto::addr::Target;

use crate::config::Hop;
use crate::path::PathChoice;

/// A target, and the file to fetch from it where that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// Where to connect to.
    pub target: Target,
    /// What to download.
    pub url: Option<FileUrl>,
}

/// A file on a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUrl {
    /// Whether it is fetched by TLS.
    pub tls: bool,
    /// The server, as the URL writes it.
    pub authority: String,
    /// From the first slash on.
    pub path: String,
}

impl ProbeTarget {
    /// The HTTP proxy at the end of a way that is asked for the file itself, as a session by that way would: a tunnel to
    /// port 80 is what proxies refuse.
    pub(super) fn http_proxy<'w>(&self, way: &'w PathChoice) -> Option<&'w Hop> {
        let plain = self.url.as_ref().is_some_and(|url| !url.tls);
        way.path.http_hop().filter(|_| plain).map(|hop| &**hop)
    }
}

/// What is expected of a target.
const EXPECTED: &str = "HOST[:PORT], or a URL like http://HOST/FILE or https://HOST/FILE";

impl FromStr for ProbeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {EXPECTED}");
        let Some((scheme, rest)) = text.split_once("://") else {
            let target = Target::parse(text, Some(443)).map_err(|_| wrong())?;
            return Ok(Self { target, url: None });
        };
        let (tls, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(wrong()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if authority.contains('@') {
            return Err("expected a URL without a password: the probe logs in nowhere".to_owned());
        }
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("expected a URL with everything but printable ASCII percent-encoded".to_owned());
        }
        let target = Target::parse(authority, Some(port)).map_err(|_| wrong())?;
        Ok(Self { target, url: Some(FileUrl { tls, authority: authority.to_owned(), path }) })
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            None => self.target.fmt(f),
            Some(FileUrl { tls, authority, path }) => {
                write!(f, "http{}://{authority}{path}", if *tls { "s" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_urls_are_told_apart() {
        for (text, target, url) in [
            ("server.example", "server.example:443", None),
            ("server.example:80", "server.example:80", None),
            ("[::1]:5201", "[::1]:5201", None),
            ("http://server.example", "server.example:80", Some("/")),
            ("https://server.example/a?b#c", "server.example:443", Some("/a?b")),
            ("http://127.0.0.1:8080?x", "127.0.0.1:8080", Some("/?x")),
        ] {
            let wanted: ProbeTarget = text.parse().unwrap();
            assert_eq!(wanted.target.to_string(), target, "{text}");
            assert_eq!(wanted.url.as_ref().map(|url| url.path.as_str()), url, "{text}");
        }
        for text in ["", "ftp://server.example/", "http://", "http://user:secret@host/", "a b", "http://h/ x"] {
            assert!(text.parse::<ProbeTarget>().is_err(), "{text}");
        }
    }
}
