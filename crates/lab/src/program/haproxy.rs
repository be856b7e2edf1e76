//! HAProxy as a TCP forwarder, optionally transparent.

use std::net::Ipv4Addr;

use crate::program::ProgramInfo;

/// Program and package of HAProxy.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "haproxy", package: "haproxy", executable: "haproxy", version_arguments: &["-v"] };

/// Listening port of the forwarder.
pub const PORT: u16 = 8000;

/// Returns a configuration that forwards to the relay at `next`, or to port `target` of `server`.
#[must_use]
pub fn configuration(next: Option<Ipv4Addr>, server: Ipv4Addr, target: u16) -> String {
    let to = next.map_or_else(|| format!("{server}:{target}"), |next| format!("{next}:{PORT}"));
    format!("{}  bind 0.0.0.0:{PORT}\n  server next {to}\n", common_configuration())
}

/// Returns a configuration that accepts connections steered by firewall rules, and connects to their original
/// destination with the client's address and port.
#[must_use]
pub fn transparent_configuration() -> String {
    format!(
        "{}  bind 0.0.0.0:{PORT} transparent\n  source 0.0.0.0 usesrc client\n  server next 0.0.0.0\n",
        common_configuration()
    )
}

fn common_configuration() -> &'static str {
    // HAProxy refuses to start if the limit of open files is too small for its default maxconn.
    "global\n  maxconn 200\n  nbthread 1\ndefaults\n  mode tcp\n  option splice-auto\n  timeout connect 30s\n  \
     timeout client 1h\n  timeout server 1h\nlisten relay\n"
}
