//! `[admin]`: the address of the admin listener, and access to it.
//!
//! A unix socket is accessible only to its owner, and a loopback address only to this host; every other address
//! requires a token.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ekiden_proto::addr::Host;
use ekiden_sys::process;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::Disclosure;
use super::error::FoundValue;
use super::key;
use super::listener::ListenerSet;
use super::place::KeyLocation as Written;
use super::reader::TableReader;
use super::value::{BindAddress, ConfigValue};

/// The address of the admin listener and the settings of access to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address of the admin listener.
    pub bind: AdminBind,
    /// The token that TCP clients must send; `None` when no token is required.
    pub token: Option<AdminToken>,
    /// Host names that requests may use, besides addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// The kind and address of the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminBind {
    /// There is no admin listener.
    Off,
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// A secret that clients of the admin listener send. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(Box<str>);

impl AdminToken {
    /// Minimum length in characters: too many combinations for guessing at any rate.
    const MIN_LENGTH: usize = 16;

    /// Parses a token of letters, digits and `-._~+/=` (RFC 6750, section 2.1), with or without trailing line breaks.
    ///
    /// # Errors
    /// The expected format.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "one line of 16 to 256 letters, digits or -._~+/=, such as the output of `openssl rand -hex 24`";
        let text = text.trim_end_matches(['\r', '\n']);
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        let is_valid = (Self::MIN_LENGTH..=256).contains(&text.len()) && text.bytes().all(is_allowed);
        is_valid.then(|| Self(text.into())).ok_or(EXPECTED)
    }

    /// Whether `candidate` equals the token. The duration of the comparison does not depend on the contents.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        Sha256::digest(candidate).ct_eq(&Sha256::digest(self.0.as_bytes())).into()
    }

    /// Returns the secret itself, for the `Authorization` header of a client.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl AdminBind {
    /// Whether other hosts can reach the address.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

impl From<AdminBind> for AdminConfig {
    fn from(place: AdminBind) -> Self {
        Self { bind: place, token: None, hosts: Vec::new() }
    }
}

impl fmt::Display for AdminConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bind {
            AdminBind::Off => f.write_str("off"),
            AdminBind::Tcp(address) => address.fmt(f),
            AdminBind::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

const NEEDS_TOKEN: &str = r#"a loopback address, "unix:/path" or "off": other hosts can reach this address; to permit that, set token_file in [admin]"#;

/// Reads the table; `flag` is the value of `--admin`, which replaces `bind`.
pub(super) fn read(
    table: TableReader<'_>,
    command: &Written<'_>,
    flag: Option<&str>,
    listeners: &ListenerSet,
) -> AdminConfig {
    let from_file: Option<AdminBind> = table.optional("bind");
    if let Some(AdminBind::Tcp(address)) = &from_file
        && let Some((conflict, owner)) = listeners.overlapping(*address)
    {
        table.error("bind", format!("an address that no listener uses: {owner} uses {conflict}"));
    }
    let token = read_token(&table);
    let has_token = token.is_some() || table.has("token_file");
    if from_file.as_ref().is_some_and(AdminBind::is_open_to_others) && !has_token {
        table.error("bind", NEEDS_TOKEN);
    }
    let hosts = table.list("hosts").into_iter().map(|HostName(name)| name).collect();
    table.finish();
    let place = command.child("--admin", None);
    let from_flag: Option<AdminBind> = flag.and_then(|text| place.read_text(text));
    if let Some(flag) = flag
        && from_flag.as_ref().is_some_and(AdminBind::is_open_to_others)
        && !has_token
    {
        place.error(FoundValue::Value(format!("{flag:?}")), NEEDS_TOKEN);
    }
    AdminConfig { bind: from_flag.or(from_file).unwrap_or_else(|| default_admin().bind), token, hosts }
}

fn read_token(table: &TableReader<'_>) -> Option<AdminToken> {
    let TokenFile(path) = table.optional("token_file")?;
    let text = key::read_secret(table, "token_file", &path, "a readable file with a token")?;
    let report = |expected| table.error("token_file", format!("a file with {expected}, in {}", path.display()));
    AdminToken::parse(&text).map_err(report).ok()
}

/// Parses the address of an admin listener, in the format of `admin.bind` and `--admin`, for a client.
///
/// # Errors
/// The expected format.
pub fn parse_admin_address(text: &str) -> Result<AdminConfig, &'static str> {
    AdminBind::read(text).map(AdminConfig::from)
}

/// Returns the default admin listener: a unix socket that only the user of the relay can access. `ekiden status` uses
/// the same default.
#[must_use]
pub fn default_admin() -> AdminConfig {
    AdminBind::Unix(default_socket()).into()
}

/// Returns the default sockets for several relays of one user, in the order of attempts: `ekiden.sock`, `ekiden-2.sock`
/// and so on.
pub fn default_sockets() -> impl Iterator<Item = PathBuf> {
    /// Maximum number of relays with a default socket.
    const MAX_RELAYS: usize = 64;
    let first = default_socket();
    let further = first.clone();
    std::iter::once(first).chain((2..=MAX_RELAYS).map(move |n| further.with_file_name(format!("ekiden-{n}.sock"))))
}

fn default_socket() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let user = process::effective_uid();
    match runtime {
        Some(dir) => dir.join("ekiden.sock"),
        None if user == 0 => PathBuf::from("/run/ekiden.sock"),
        None => private_folder().join("ekiden.sock"),
    }
}

/// Returns the user's directory below the directory for temporary files, where every user can create files. The relay
/// verifies that no other user can enter it.
#[must_use]
pub fn private_folder() -> PathBuf {
    std::env::temp_dir().join(format!("ekiden-{}", process::effective_uid()))
}

impl ConfigValue for AdminBind {
    const EXPECTED: &'static str = r#"an address like "127.0.0.1:9090", "unix:/path" or "off""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let absolute = Some(Path::new(path)).filter(|path| path.is_absolute());
            return absolute.map(|path| Self::Unix(path.into())).ok_or(Self::EXPECTED);
        }
        let BindAddress(address) = BindAddress::read(text).map_err(|_| Self::EXPECTED)?;
        Ok(Self::Tcp(address))
    }
}

/// The path of a token file. The value may be the token itself by mistake, so mistakes do not show it.
struct TokenFile(PathBuf);

impl ConfigValue for TokenFile {
    const EXPECTED: &'static str = "the path of a file with a token";
    const DISCLOSURE: Disclosure = Disclosure::Path;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() { Err(Self::EXPECTED) } else { Ok(Self(text.into())) }
    }
}

/// A host name in requests to the admin listener.
struct HostName(String);

impl ConfigValue for HostName {
    const EXPECTED: &'static str = r#"a host name like "relay.example", without a port"#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match Host::parse(text) {
            Ok(Host::Name(name)) => Ok(Self(name)),
            _ => Err(Self::EXPECTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_admin_socket_is_absolute() {
        let AdminBind::Unix(path) = default_admin().bind else { panic!("no socket") };
        assert!(path.is_absolute() && path.to_string_lossy().contains("ekiden"));
    }

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        for (text, open) in [
            ("127.0.0.1:9090", false),
            ("localhost:9090", false),
            ("[::1]:9090", false),
            ("[::ffff:127.0.0.1]:9090", false),
            ("unix:/run/a.sock", false),
            ("off", false),
            ("0.0.0.0:9090", true),
            ("[::]:9090", true),
            ("192.0.2.1:9090", true),
        ] {
            assert_eq!(AdminBind::read(text).unwrap().is_open_to_others(), open, "{text}");
        }
        for text in ["unix:relative", "on", "", "relay.example:9090"] {
            assert_eq!(AdminBind::read(text), Err(AdminBind::EXPECTED), "{text}");
        }
    }

    #[test]
    fn short_tokens_are_refused_and_debug_hides_the_token() {
        let token = AdminToken::parse("0123456789abcdef\n").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        for wrong in [&b"0123456789abcdeF"[..], b"", b"0123456789abcde", b"0123456789abcdef\n"] {
            assert!(!token.matches(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "Token");
        for text in ["short", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\nmore", ""] {
            assert!(AdminToken::parse(text).is_err(), "{text:?}");
        }
    }
}
