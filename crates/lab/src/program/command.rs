//! Arbitrary programs as relays. The experiment file has the arguments, the port, and the use by clients.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Use of a relay by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyKind {
    /// As a SOCKS5 proxy (RFC 1928).
    Socks,
    /// As an HTTP proxy.
    Http,
    /// As a forwarder to a fixed server.
    Forward,
    /// By transparent interception. Not allowed in files, because a command has no firewall rules.
    #[serde(skip_deserializing)]
    Transparent,
}

/// Replaces placeholders in an argument.
///
/// `{next}` is the `ADDRESS:PORT` of the next relay, or of the server after the last relay; `{server}` is that of the
/// server; `{address}` is the address of the host.
#[must_use]
pub fn expand_placeholders(argument: &str, own: IpAddr, next: &str, server: &str) -> String {
    argument.replace("{next}", next).replace("{server}", server).replace("{address}", &own.to_string())
}

/// Parses the port in `"tcp:PORT"`.
///
/// # Errors
/// The text has another format.
pub fn parse_ready_port(text: &str) -> Result<u16, String> {
    let port = text.strip_prefix("tcp:").and_then(|port| port.parse().ok());
    port.ok_or_else(|| format!(r#"{text:?} is not like "tcp:1080""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_expanded() {
        let filled =
            expand_placeholders("TCP:{next},bind={address}", IpAddr::from([10, 0, 0, 1]), "10.0.0.2:80", "10.0.0.3:80");
        assert_eq!(filled, "TCP:10.0.0.2:80,bind=10.0.0.1");
    }

    #[test]
    fn ready_is_a_tcp_port() {
        assert_eq!(parse_ready_port("tcp:1080"), Ok(1080));
        assert_eq!(parse_ready_port("1080").unwrap_err(), r#""1080" is not like "tcp:1080""#);
    }
}
