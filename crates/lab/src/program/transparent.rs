//! Transparent relays: firewall rules steer forwarded connections to the relay, and clients connect to the server's own
//! address.
//!
//! The laboratory applies the rules for HAProxy in the host's network namespace; the rules end with the namespace.
//! ekiden applies its own rules.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::Stdio;

use anyhow::Context;

use crate::experiment::spec::treatment::Treatment;
use crate::program::ProgramInfo;
use crate::topology::network::{HostHandle, Network};
use crate::topology::{counters, ip};

/// Program and package of nftables, for the rules of HAProxy and ekiden.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "nft", package: "nftables", executable: "nft", version_arguments: &["--version"] };

/// One side of a relay's host: toward the client, or toward the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelaySide {
    /// Interface on this side.
    pub interface: String,
    /// Address of the client or server on this side.
    pub host: IpAddr,
    /// ekiden profile of sections on this side.
    pub profile: Option<String>,
}

/// Firewall mark of packets that are delivered locally although addressed to another host.
const MARK: u8 = 1;
/// Routing table for marked packets.
const TABLE: u8 = 100;

/// Returns rules that steer forwarded connections from both sides to `port`.
fn rules(sides: &[RelaySide; 2], port: u16) -> String {
    let [down, up] = sides.each_ref().map(|side| &side.interface);
    format!(
        "table ip relay {{\n  chain steer {{\n    type filter hook prerouting priority mangle; policy accept;\n    \
         meta l4proto tcp socket transparent 1 meta mark set {MARK} accept\n    fib daddr type local accept\n    \
         iifname {{ \"{down}\", \"{up}\" }} meta l4proto tcp tproxy to :{port} meta mark set {MARK} accept\n  }}\n}}\n"
    )
}

/// Applies HAProxy's rules on `host`, and the routing that delivers marked packets locally.
///
/// # Errors
/// nft or ip fails. The error has the message of the program.
pub fn apply_rules(host: &HostHandle, sides: &[RelaySide; 2], port: u16) -> anyhow::Result<()> {
    let mut nft = host.command(PROGRAM.find()?);
    let mut child =
        nft.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start nft")?;
    child.stdin.take().context("nft has no standard input")?.write_all(rules(sides, port).as_bytes())?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "nft on {}: {}", host.name(), stderr.trim());
    let routing =
        [format!("rule add fwmark {MARK} lookup {TABLE}"), format!("route add local default dev lo table {TABLE}")];
    ip::run_batch(Some(host), &routing)
}

/// Number of TCP connections opened by each relay's host, by name.
pub type ActiveOpens = BTreeMap<String, u64>;

/// Returns the number of connections opened by each relay's host; empty unless the relays are transparent.
///
/// # Errors
/// The counters cannot be read.
pub fn read_active_opens(treatment: &Treatment, network: &Network) -> anyhow::Result<ActiveOpens> {
    let relays = treatment.chain.iter().filter(|_| treatment.transparent);
    let hosts = relays.map(|name| network.host(name).with_context(|| format!("there is no host {name}")));
    hosts.map(|host| host.and_then(|host| Ok((host.name().to_owned(), host.enter(counters::active_opens)??)))).collect()
}

/// Verifies that every relay carried at least `transfers` connections. A relay that intercepts nothing causes no other
/// error: packets pass it, and the run measures the direct path.
///
/// # Errors
/// A relay carried fewer connections.
pub fn ensure_carried(before: &ActiveOpens, after: &ActiveOpens, transfers: u32) -> anyhow::Result<()> {
    for (host, count) in after {
        let opened = count - before.get(host).unwrap_or(count);
        anyhow::ensure!(
            opened >= transfers.into(),
            "packets bypass the relay on {host}: the relay opened {opened} connections for {transfers} transfers"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn rules_redirect_on_both_interfaces() {
        let side = |interface: &str| RelaySide {
            interface: interface.into(),
            host: Ipv4Addr::LOCALHOST.into(),
            profile: None,
        };
        let text = rules(&[side("lan"), side("long")], 8000);
        assert!(
            text.contains("iifname { \"lan\", \"long\" } meta l4proto tcp tproxy to :8000 meta mark set 1"),
            "{text}"
        );
    }

    #[test]
    fn bypassed_relay_is_an_error() {
        let counts = |near, far| BTreeMap::from([("near".to_owned(), near), ("far".to_owned(), far)]);
        assert!(ensure_carried(&counts(3, 4), &counts(5, 6), 2).is_ok());
        let error = ensure_carried(&counts(3, 4), &counts(5, 4), 1).unwrap_err().to_string();
        assert_eq!(error, "packets bypass the relay on far: the relay opened 0 connections for 1 transfers");
        assert!(ensure_carried(&BTreeMap::new(), &BTreeMap::new(), 1).is_ok());
    }
}
