//! The target of a probe, `HOST[:PORT]` or the URL of a file, and the candidates: direct, each relay alone, and each
//! path.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ekiden_proto::addr::Target;

use crate::config::{Config, Hop, Path};
use crate::path::{self, PathChoice};
use crate::pool::Pools;

/// A target, and optionally the file to fetch from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// The host and port to connect to.
    pub target: Target,
    /// The file to download.
    pub url: Option<FileUrl>,
}

/// A file on a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUrl {
    /// Whether the file is fetched over TLS.
    pub tls: bool,
    /// The authority of the URL: host and optional port, unchanged.
    pub authority: String,
    /// The path of the URL, from the first slash on.
    pub path: String,
}

impl ProbeTarget {
    /// Returns the HTTP proxy at the end of a path if the request for the file is sent to that proxy, as in a session
    /// on that path: proxies refuse a tunnel to port 80.
    pub(super) fn http_proxy<'w>(&self, path_choice: &'w PathChoice) -> Option<&'w Hop> {
        let plain = self.url.as_ref().is_some_and(|url| !url.tls);
        path_choice.path.http_hop().filter(|_| plain).map(|hop| &**hop)
    }
}

/// The expected format of a target.
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
            return Err("expected a URL without user and password: the probe does not log in".to_owned());
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

/// A name in `--via` that no candidate has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--via {name}: expected {}", expected(known))]
pub struct UnknownCandidate {
    name: String,
    known: Vec<String>,
}

fn expected(known: &[String]) -> String {
    match known {
        [] => "a relay, but none is configured: add relays with -c FILE or -F".to_owned(),
        known => format!("a relay or a path, one of {}", known.join(", ")),
    }
}

/// Returns the candidates: direct and the paths of `config`; with a nonempty `via`, only those that it names.
///
/// # Errors
/// A name in `via` is unknown.
pub fn candidates(
    config: &Config,
    via: &[String],
    target: &Target,
    pools: &Pools,
) -> Result<Vec<PathChoice>, UnknownCandidate> {
    let relay_paths = config.relays.iter().map(|hop| Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] });
    let mut paths: Vec<Arc<Path>> = relay_paths.map(Arc::new).collect();
    for path in config.routes.iter().flat_map(|route| &route.paths) {
        if !path.is_direct() && !paths.iter().any(|known| known.hops == path.hops) {
            paths.push(Arc::clone(path));
        }
    }
    let known: Vec<String> = paths.iter().map(|path| path.name.to_string()).collect();
    if let Some(name) = via.iter().find(|name| !known.contains(name)) {
        return Err(UnknownCandidate { name: name.clone(), known });
    }
    paths.retain(|path| via.is_empty() || via.iter().any(|name| **name == *path.name));
    let direct = Path { name: "direct".into(), hops: Vec::new() };
    // The section to the target has the profile that a session to the target would have.
    let profile = path::paths_to(config, pools, &target.host, target.port)
        .first()
        .map(|path_choice| Arc::clone(&path_choice.profile));
    let profile = profile.unwrap_or_default();
    let path_choice = |path| PathChoice::new(path, Arc::clone(&profile));
    Ok([Arc::new(direct)].into_iter().chain(paths).map(path_choice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::from_text;
    use crate::probe::empty_pools;

    #[test]
    fn targets_and_urls_are_distinguished() {
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

    #[test]
    fn candidates_are_unique_and_start_with_direct() {
        let relay =
            |name: &str, last: u8| format!("[[relay]]\nname = \"{name}\"\nurl = \"socks5://192.0.2.{last}:1080\"\n");
        let path = |name: &str, relays: &str| format!("[[path]]\nname = \"{name}\"\nrelays = [{relays}]\n");
        let text = format!(
            "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{}{}{}{}[[route]]\npath = [\"same\", \"both\", \"direct\"]\n",
            relay("a", 1),
            relay("b", 2),
            path("same", "\"a\""),
            path("both", "\"a\", \"b\""),
        );
        let config = from_text(&text).unwrap();
        let target = Target::parse("server.example:443", None).unwrap();
        let names = |via: &[&str]| {
            let via: Vec<String> = via.iter().map(|name| (*name).to_owned()).collect();
            let found = candidates(&config, &via, &target, &empty_pools());
            found.map(|found| found.iter().map(|path_choice| path_choice.path.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["direct", "a", "b", "both"]);
        assert_eq!(names(&["both"]).unwrap(), ["direct", "both"]);
        let unknown = names(&["c"]).unwrap_err().to_string();
        assert_eq!(unknown, "--via c: expected a relay or a path, one of a, b, both");
    }
}
