//! haproxy, as a TCP forwarder, also a transparent one.

use std::net::Ipv4Addr;

use crate::program::ProgramInfo;

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "haproxy", package: "haproxy", executable: "haproxy", version_arguments: &["-v"] };

/// The port it listens on.
pub const PORT: u16 = 8000;

/// Forwards to the next one at `next`, or to port `target` of `server`.
#[must_use]
pub fn configuration(next: Option<Ipv4Addr>, server: Ipv4Addr, target: u16) -> String {
    let to = next.map_or_else(|| format!("{server}:{target}"), |next| format!("{next}:{PORT}"));
    format!("{}  bind 0.0.0.0:{PORT}\n  server next {to}\n", common_configuration())
}

/// Takes what rules steer to it, and goes on to where that was going, under the client's own address and port.
#[must_use]
pub fn transparent_configuration() -> String {
    format!(
        "{}  bind 0.0.0.0:{PORT} transparent\n  source 0.0.0.0 usesrc client\n  server next 0.0.0.0\n",
        common_configuration()
    )
}

fn common_configuration() -> &'static str {
    // It refuses to start if the limit of open files is too small for its default maxconn.
    "global\n  maxconn 200\n  nbthread 1\ndefaults\n  mode tcp\n  option splice-auto\n  timeout connect 30s\n  \
     timeout client 1h\n  timeout server 1h\nlisten relay\n"
}
