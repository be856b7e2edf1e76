//! dante, a SOCKS server.

use std::net::Ipv4Addr;

use crate::program::ProgramInfo;

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "dante", package: "dante-server", executable: "danted", version_arguments: &["-v"] };

/// The port it listens on.
pub const PORT: u16 = 1080;

/// A server at `address` that goes on to the one at `next`, or to targets itself. It wants one keyword in a line.
#[must_use]
pub fn configuration(address: Ipv4Addr, next: Option<Ipv4Addr>) -> String {
    let route = next.map_or_else(String::new, |next| {
        format!("route {{\n from: 0.0.0.0/0 to: 0.0.0.0/0 via: {next} port = {PORT}\n proxyprotocol: socks_v5\n}}\n")
    });
    format!(
        "logoutput: stderr\ninternal: 0.0.0.0 port = {PORT}\nexternal: {address}\nsocksmethod: none\n\
         clientmethod: none\nuser.privileged: root\nuser.unprivileged: root\n\
         client pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\nsocks pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\n{route}"
    )
}
