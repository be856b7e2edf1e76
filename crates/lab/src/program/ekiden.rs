//! ekiden, the program under test, as a relay.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::program::program_version;
use crate::program::transparent::RelaySide;
use crate::program::unspecified_address;

/// Protocol between a relay and the client or relay before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListenerKind {
    /// A SOCKS5 proxy (RFC 1928).
    Socks,
    /// An HTTP proxy (RFC 9110).
    Http,
    /// Plain TCP: the first relay forwards to the server.
    Tcp,
}

impl ListenerKind {
    /// Returns the `kind` of the listener in ekiden's configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socks => "socks",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }

    /// Returns the listening port.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Socks => 1080,
            Self::Http => 3128,
            Self::Tcp => 8000,
        }
    }
}

/// Profile of sections between relays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a profile, or a table of its settings, like { tune = false }")]
pub enum ProfileChoice {
    /// A profile built into ekiden, by name.
    Named(String),
    /// Settings of a profile specific to the treatment.
    Own(toml::Table),
}

impl ProfileChoice {
    /// Returns the name of the profile in a configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Own(_) => "own",
        }
    }

    /// Returns the definition of the profile for a configuration, or an empty text for a built-in profile.
    #[must_use]
    pub fn definition(&self) -> String {
        match self {
            Self::Named(_) => String::new(),
            Self::Own(settings) => format!("[profile.{}]\n{settings}", self.name()),
        }
    }
}

/// Returns the configuration of a relay at `address` that connects to the relay at `next`, or directly. `profile`
/// applies to sections between relays: to the next relay, and from the previous relay unless this is the `first`.
#[must_use]
pub fn configuration(
    mode: ListenerKind,
    address: IpAddr,
    next: Option<IpAddr>,
    first: bool,
    profile: Option<&str>,
) -> String {
    let (kind, port) = (mode.name(), mode.port());
    let scheme = if mode == ListenerKind::Socks { "socks5" } else { kind };
    let mut text = String::from("version = 1\n");
    if let Some(next) = next {
        let profile = profile.map_or_else(String::new, |profile| format!("?profile={profile}"));
        let next = SocketAddr::new(next, port);
        let _ = writeln!(text, r#"forward = ["{scheme}://{next}{profile}"]"#);
    }
    let bind = SocketAddr::new(unspecified_address(address), port);
    let _ = writeln!(text, "[[listener]]\nbind = \"{bind}\"\nkind = \"{kind}\"");
    text.push_str("allow_open = true\nallow_private = true\n");
    if let Some(profile) = profile.filter(|_| !first) {
        let _ = writeln!(text, "profile = \"{profile}\"");
    }
    text.push_str("[admin]\nbind = \"off\"\n");
    text
}

/// Returns program and arguments of a relay with the configuration `file`, prefixed with the command `wrap`.
#[must_use]
pub fn command_line(wrap: &[String], binary: &Path, file: &str) -> (PathBuf, Vec<String>) {
    let own = [binary.display().to_string(), "run".into(), "-c".into(), file.into()];
    let mut words = wrap.iter().cloned().chain(own);
    let program = words.next().map(PathBuf::from).unwrap_or_default();
    (program, words.collect())
}

/// Port of the first transparent listener.
pub const TRANSPARENT_PORT: u16 = 7001;

/// Returns the configuration of a transparent relay, with one listener per side.
#[must_use]
pub fn transparent_configuration(sides: &[RelaySide; 2]) -> String {
    let profile =
        |side: &RelaySide| side.profile.as_ref().map_or_else(String::new, |name| format!("profile = \"{name}\"\n"));
    let mut text = String::from("version = 1\n");
    for (side, port) in sides.iter().zip(TRANSPARENT_PORT..) {
        let _ = writeln!(text, "[[listener]]\nbind = \"0.0.0.0:{port}\"\nkind = \"tproxy\"");
        let _ = writeln!(text, "interfaces = [\"{}\"]\n{}", side.interface, profile(side));
    }
    for side in sides {
        let _ = writeln!(text, "[[route]]\nto = [\"{}/32\"]\npath = [\"direct\"]\n{}", side.host, profile(side));
    }
    text.push_str("[admin]\nbind = \"off\"\n");
    text
}

/// Finds the binary: `path` by flag or environment, else in the folder of the running executable.
///
/// # Errors
/// There is no binary. The error names the remedy.
pub fn find(path: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = path {
        anyhow::ensure!(path.is_file(), "there is no ekiden at {}", path.display());
        return Ok(path.canonicalize()?);
    }
    let executable = std::env::current_exe().context("cannot find the running executable")?;
    let sibling = executable.with_file_name("ekiden");
    anyhow::ensure!(
        sibling.is_file(),
        "there is no ekiden beside {}: build it (make build), or pass --ekiden PATH",
        executable.display()
    );
    Ok(sibling)
}

/// Returns the version and the start of the SHA-256 of the binary, because versions do not change with every build.
///
/// # Errors
/// The file cannot be read.
pub fn version(binary: &Path) -> anyhow::Result<String> {
    let digest = Sha256::digest(std::fs::read(binary).with_context(|| binary.display().to_string())?);
    let start: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{} (sha256 {start})", program_version(binary, &["--version"])))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const NEXT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn profile_applies_only_to_sections_between_relays() {
        let first = configuration(ListenerKind::Socks, OWN, NEXT, true, Some("longhaul"));
        assert!(first.contains(r#"forward = ["socks5://10.0.0.2:1080?profile=longhaul"]"#), "{first}");
        assert!(!first.contains("\nprofile"), "{first}");
        let last = configuration(ListenerKind::Http, OWN, None, false, Some("longhaul"));
        assert!(last.contains("\nprofile = \"longhaul\"\n") && !last.contains("forward"), "{last}");
    }

    #[test]
    fn custom_profile_has_a_definition() {
        let own = ProfileChoice::Own("base = \"longhaul\"\ntune = false".parse().unwrap());
        let table: toml::Table = own.definition().parse().unwrap();
        assert_eq!(table["profile"][own.name()]["tune"].as_bool(), Some(false));
        assert_eq!(ProfileChoice::Named("lan".into()).definition(), "");
    }

    #[test]
    fn transparent_relay_uses_the_profile_of_each_side() {
        let side = |interface: &str, last, profile: Option<&str>| RelaySide {
            interface: interface.into(),
            host: IpAddr::from([10, 100, 0, last]),
            profile: profile.map(str::to_owned),
        };
        let text = transparent_configuration(&[side("near", 1, None), side("line", 2, Some("longhaul"))]);
        let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        let listener = |place: usize, key: &str| table["listener"][place].get(key).cloned();
        assert_eq!(listener(0, "interfaces"), Some(vec!["near"].into()));
        assert_eq!(listener(0, "profile"), None);
        assert_eq!(listener(1, "bind"), Some("0.0.0.0:7002".into()));
        assert_eq!(listener(1, "profile"), Some("longhaul".into()));
        assert_eq!(table["route"][1]["to"], vec!["10.100.0.2/32"].into());
        assert_eq!(table["route"][1]["profile"].as_str(), Some("longhaul"));
    }

    #[test]
    fn wrap_precedes_the_relay_command() {
        let line = |wrap: &[&str]| {
            let wrap: Vec<String> = wrap.iter().map(|word| (*word).to_owned()).collect();
            command_line(&wrap, Path::new("/bin/ekiden"), "x.conf")
        };
        assert_eq!(line(&[]), ("/bin/ekiden".into(), ["run", "-c", "x.conf"].map(str::to_owned).into()));
        let nice = ["-n", "19", "/bin/ekiden", "run", "-c", "x.conf"].map(str::to_owned);
        assert_eq!(line(&["nice", "-n", "19"]), ("nice".into(), nice.into()));
    }

    #[test]
    fn missing_binary_is_reported() {
        let error = find(Some(Path::new("/no/such/ekiden"))).unwrap_err().to_string();
        assert_eq!(error, "there is no ekiden at /no/such/ekiden");
    }
}
