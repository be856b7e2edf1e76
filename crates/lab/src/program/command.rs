//! Any program at all as a relay: the file says its arguments, its port, and how clients use it.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// How a client uses a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyKind {
    /// As a SOCKS5 proxy.
    Socks,
    /// As an HTTP proxy.
    Http,
    /// As a forwarder that knows the server.
    Forward,
    /// Not at all: it is in the way. Nothing a file can ask for, as a command has no rules.
    #[serde(skip_deserializing)]
    Transparent,
}

/// What may stand in an argument for what only a running lab knows.
///
/// `{next}` is the next relay's `ADDRESS:PORT`, or the server's; `{server}` the server's; `{address}` the host's own
/// address.
#[must_use]
pub fn expand_placeholders(argument: &str, own: Ipv4Addr, next: &str, server: &str) -> String {
    argument.replace("{next}", next).replace("{server}", server).replace("{address}", &own.to_string())
}

/// Reads `"tcp:PORT"`.
///
/// # Errors
/// It is something else.
pub fn parse_ready_port(text: &str) -> Result<u16, String> {
    let port = text.strip_prefix("tcp:").and_then(|port| port.parse().ok());
    port.ok_or_else(|| format!(r#"{text:?} is not like "tcp:1080""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_filled_in() {
        let filled =
            expand_placeholders("TCP:{next},bind={address}", Ipv4Addr::new(10, 0, 0, 1), "10.0.0.2:80", "10.0.0.3:80");
        assert_eq!(filled, "TCP:10.0.0.2:80,bind=10.0.0.1");
    }

    #[test]
    fn readiness_is_a_port() {
        assert_eq!(parse_ready_port("tcp:1080"), Ok(1080));
        assert_eq!(parse_ready_port("1080").unwrap_err(), r#""1080" is not like "tcp:1080""#);
    }
}
