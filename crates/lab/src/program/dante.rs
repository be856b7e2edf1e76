//! Dante as a SOCKS proxy.

use std::net::IpAddr;

use crate::program::ProgramInfo;

/// Program and package of Dante.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "dante", package: "dante-server", executable: "danted", version_arguments: &["-v"] };

/// Listening port of the proxy.
pub const PORT: u16 = 1080;

/// Returns the configuration of a proxy at `address` that connects through the proxy at `next`, or directly. Dante
/// requires one keyword per line.
#[must_use]
pub fn configuration(address: IpAddr, next: Option<IpAddr>) -> String {
    let route = next.map_or_else(String::new, |next| {
        format!("route {{\n from: 0.0.0.0/0 to: 0.0.0.0/0 via: {next} port = {PORT}\n proxyprotocol: socks_v5\n}}\n")
    });
    format!(
        "logoutput: stderr\ninternal: 0.0.0.0 port = {PORT}\nexternal: {address}\nsocksmethod: none\n\
         clientmethod: none\nuser.privileged: root\nuser.unprivileged: root\n\
         client pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\nsocks pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\n{route}"
    )
}
