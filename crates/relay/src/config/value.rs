//! The types of options: their text format, their value, and the expected text in mistakes.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use ekiden_proto::addr::{Nat64Prefix, Network, Target};
use ekiden_proto::key::PublicKey;
use ekiden_proto::units::{Bytes, Rate, Span};

use super::error::Disclosure;
use super::error::closest;
use super::{ListenerKind, TargetPattern};

/// The TOML type of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TomlType {
    /// A string in quotes.
    Text,
    /// An integer without quotes.
    Number,
    /// A number with or without a point.
    Decimal,
    /// A boolean: `true` or `false`.
    Flag,
    /// Any scalar type except floats; the text is checked by the type of the option.
    Any,
}

/// The type of an option.
pub(super) trait ConfigValue: Sized {
    /// Description of the expected format, for mistakes.
    const EXPECTED: &'static str;
    /// The TOML type of the value.
    const TOML_TYPE: TomlType = TomlType::Text;
    /// The part of an invalid value that a mistake may show.
    const DISCLOSURE: Disclosure = Disclosure::All;
    /// Parses the text of the value; the error is the expected format.
    fn read(text: &str) -> Result<Self, &'static str>;
    /// Returns the value that was probably intended by an invalid text.
    fn suggestion(_text: &str) -> Option<String> {
        None
    }
}

impl ConfigValue for String {
    const EXPECTED: &'static str = "a string";
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(text.to_owned())
    }
}

impl ConfigValue for bool {
    const EXPECTED: &'static str = "true or false";
    const TOML_TYPE: TomlType = TomlType::Flag;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

impl ConfigValue for usize {
    const EXPECTED: &'static str = "a whole number, 0 or more";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

/// A number of at least 1.
pub(super) struct PositiveCount(pub usize);

impl ConfigValue for PositiveCount {
    const EXPECTED: &'static str = "a whole number, 1 or more";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|n| *n > 0).map(Self).ok_or(Self::EXPECTED)
    }
}

/// Number of worker threads.
pub(super) struct Threads(pub usize);

impl ConfigValue for Threads {
    const EXPECTED: &'static str = "a number of threads from 1 to 1024";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|n| (1..=1024).contains(n)).map(Self).ok_or(Self::EXPECTED)
    }
}

impl Default for Threads {
    /// One thread for each core.
    fn default() -> Self {
        Self(std::thread::available_parallelism().map_or(1, NonZero::get))
    }
}

/// The version of the file format.
pub(super) struct Version;

impl ConfigValue for Version {
    const EXPECTED: &'static str = "version = 1";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "1" { Ok(Self) } else { Err(Self::EXPECTED) }
    }
}

/// The text of any scalar, for values whose type is determined by another table.
pub(super) struct ScalarText(pub String);

impl ConfigValue for ScalarText {
    const EXPECTED: &'static str = "a string, a whole number, true or false";
    const TOML_TYPE: TomlType = TomlType::Any;
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(Self(text.to_owned()))
    }
}

/// A duration above zero: no timeout can be disabled.
pub(super) struct PositiveDuration(pub Duration);

impl ConfigValue for PositiveDuration {
    const EXPECTED: &'static str = r#"a time above zero with its unit, like "250ms", "30s", "5min" or "1h""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse::<Span>().ok().filter(|span| !span.0.is_zero()).map(|span| Self(span.0)).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Span::suggestion(text)
    }
}

impl PositiveDuration {
    /// Creates a default value.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// Maximum size of a request head of a client, in bytes.
pub(super) struct HeadSize(pub usize);

impl ConfigValue for HeadSize {
    const EXPECTED: &'static str = r#"a size from "4KiB" to "1MiB", like "64KiB""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let size = text.parse::<Bytes>().ok().filter(|size| (4 << 10..=1 << 20).contains(&size.0));
        size.and_then(|size| usize::try_from(size.0).ok()).map(Self).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Bytes::suggestion(text)
    }
}

/// An address to listen on. A missing host and `localhost` stand for 127.0.0.1, so that no listener is reachable from
/// other hosts by accident.
pub(super) struct BindAddress(pub SocketAddr);

impl ConfigValue for BindAddress {
    const EXPECTED: &'static str = r#"an address and port like "127.0.0.1:1080" or "[::]:1080""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let port = text.strip_prefix("localhost").unwrap_or(text).strip_prefix(':');
        let local = port.and_then(|port| format!("127.0.0.1:{port}").parse().ok());
        local.or_else(|| text.parse().ok()).map(Self).ok_or(Self::EXPECTED)
    }
}

/// Address of a DNS server; the default port is 53.
pub(super) struct NameServer(pub SocketAddr);

impl ConfigValue for NameServer {
    const EXPECTED: &'static str = r#"the address of a name server like "192.0.2.1" or "127.0.0.1:5353""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let address = text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, 53)));
        address.filter(|address| address.port() != 0).map(Self).ok_or(Self::EXPECTED)
    }
}

impl ConfigValue for Nat64Prefix {
    const EXPECTED: &'static str =
        r#"a NAT64 prefix like "2001:db8:64::/96", of length 32, 40, 48, 56, 64 or 96 (RFC 6052, 2.2)"#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

impl ConfigValue for Target {
    const EXPECTED: &'static str = r#"a host and port like "server.example:443""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

impl ConfigValue for TargetPattern {
    const EXPECTED: &'static str =
        r#"targets like "*", "example.com", "*.example.com:443", "203.0.113.0/24" or "[2001:db8::/32]:443""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

/// Parses a rate from `min` bits per second to 400 Gbit/s.
pub(super) fn rate_from(text: &str, min: u64) -> Option<Rate> {
    text.parse().ok().filter(|rate: &Rate| (min..=400_000_000_000).contains(&rate.bits_per_second()))
}

impl ConfigValue for PathBuf {
    const EXPECTED: &'static str = "the path of a file";
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() { Err(Self::EXPECTED) } else { Ok(Self::from(text)) }
    }
}

/// The path of a file with a private key. The value may be the key itself by mistake, so mistakes do not show it.
pub(super) struct KeyFile(pub PathBuf);

impl ConfigValue for KeyFile {
    const EXPECTED: &'static str = "the path of a file with a private key";
    const DISCLOSURE: Disclosure = Disclosure::Path;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() { Err(Self::EXPECTED) } else { Ok(Self(text.into())) }
    }
}

impl ConfigValue for PublicKey {
    const EXPECTED: &'static str = "a public key of 44 characters, as `ekiden keygen` prints it";
    const DISCLOSURE: Disclosure = Disclosure::PublicKey;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

impl ConfigValue for Network {
    const EXPECTED: &'static str = r#"a network like "10.1.0.0/16" or "2001:db8::/32", or one address"#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

/// The name of a listener, a relay, a path and the like, for logs and metrics.
pub(super) struct Name(pub String);

impl ConfigValue for Name {
    const EXPECTED: &'static str = "a name of 1 to 64 letters, digits, '.', '_' or '-'";
    fn read(text: &str) -> Result<Self, &'static str> {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_valid = (1..=64).contains(&text.len()) && text.bytes().all(is_allowed);
        is_valid.then(|| Self(text.to_owned())).ok_or(Self::EXPECTED)
    }
}

impl ConfigValue for ListenerKind {
    const EXPECTED: &'static str = r#"one of "auto", "socks", "http", "tcp", "tproxy", "redirect", "tun", "section""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            // The names that hops and clients use: every listener of this kind accepts all versions.
            "socks4" | "socks4a" | "socks5" | "socks5h" => Ok(Self::Socks),
            _ => Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(Self::EXPECTED),
        }
    }
    fn suggestion(text: &str) -> Option<String> {
        let plain = if text == "https" { "http" } else { text };
        closest(plain, Self::ALL.map(Self::as_str)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    //! The accepted text of each type of option.

    use super::*;
    use crate::config::capture::{ConnectMode, InstanceNumber, InterfaceName, QuicPolicy, RuleManagement};
    use crate::config::{AdminBind, LogFormat, LogLevel};

    fn check_values<T: ConfigValue>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(T::read(text).is_ok(), "{text:?} was refused");
        }
        for text in bad {
            assert!(T::read(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn each_type_accepts_valid_and_refuses_invalid_text() {
        check_values::<bool>(&["true", "false"], &["yes", "1", ""]);
        check_values::<usize>(&["0", "7"], &["-1", "1.5", "x"]);
        check_values::<PositiveCount>(&["1"], &["0", "-1"]);
        check_values::<Threads>(&["1", "1024"], &["0", "1025"]);
        check_values::<PositiveDuration>(&["1us", "1h", "1.5s"], &["0s", "0ms", "30", "-1s", ""]);
        check_values::<HeadSize>(&["4KiB", "1MiB", "65536B"], &["4095B", "2MiB", "64"]);
        check_values::<NameServer>(
            &["192.0.2.1", "192.0.2.1:5353", "::1", "[::1]:53"],
            &["dns.example", "192.0.2.1:0"],
        );
        check_values::<Name>(&["a", "auto-1080"], &["", "a b", "a\"b", "ä", &"a".repeat(65)]);
        check_values::<LogFormat>(&["text", "json"], &["xml", "JSON"]);
        check_values::<LogLevel>(&["sessions", "problems", "off"], &["on", "debug", ""]);
        check_values::<AdminBind>(
            &["off", "127.0.0.1:9090", "[::1]:9090", ":9090", "unix:/run/x", "0.0.0.0:9090", "[::]:1", "192.0.2.1:1"],
            &["unix:x", "unix:", "on", "127.0.0.1", "relay.example:1"],
        );
        check_values::<ListenerKind>(
            &["auto", "socks", "http", "tcp", "tproxy", "redirect", "section"],
            &["sock", "SOCKS", ""],
        );
        check_values::<PathBuf>(&["x"], &[""]);
        check_values::<KeyFile>(&["x"], &[""]);
        check_values::<ConnectMode>(&["hold", "strict", "early"], &["Early", "true", ""]);
        check_values::<QuicPolicy>(&["pass", "refuse"], &["Pass", "true", ""]);
        check_values::<RuleManagement>(&["managed", "manual"], &["Managed", "true", ""]);
        check_values::<InstanceNumber>(&["1", "15"], &["0", "16", "-1", "1.5", ""]);
        check_values::<InterfaceName>(
            &["lo", "eth0", "br-lan", "eth0.100", "eth0:1", "veth0@if2", &"a".repeat(15)],
            &["", "a b", "a\"", "eth*", "a/b", "ä", &"a".repeat(16)],
        );
        check_values::<Network>(
            &["10.1.0.0/16", "192.0.2.1", "2001:db8::/32", "::1", "0.0.0.0/0"],
            &["10.1.0.1/16", "10.1.0.0/33", "client.example", "*", ""],
        );
        check_values::<PublicKey>(
            &["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="],
            &["", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo"],
        );
    }

    #[test]
    fn bind_address_without_a_host_is_loopback() {
        for (text, address) in [
            (":1080", "127.0.0.1:1080"),
            ("localhost:1080", "127.0.0.1:1080"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::]:0", "[::]:0"),
        ] {
            assert_eq!(BindAddress::read(text).ok().map(|b| b.0.to_string()).as_deref(), Some(address), "{text}");
        }
        check_values::<BindAddress>(
            &[],
            &["", "1080", "localhost", "example.com:1080", "127.0.0.1", ":", ":65536", "::1:80"],
        );
    }
}
