//! Packet tunnels: a device at each end, and routes through it to the hosts behind the other end.
//!
//! The laboratory starts the program at both ends and assigns addresses to the devices. After a first packet has
//! crossed the tunnel, traffic for the hosts behind the other end is routed through the tunnel. Clients connect to the
//! server's own address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::experiment::spec::treatment::RelayProgram;
use crate::program::chain::RelayContext;
use crate::program::service::Service;
use crate::program::{openvpn, softether, vtun};
use crate::topology::ip;
use crate::topology::network::HostHandle;
use crate::topology::plan::NetworkPlan;

/// Name of the device, for programs with a configurable name.
pub const DEVICE: &str = "tunnel";
/// Addresses of the devices: at the client's end, and at the server's end.
const INNER_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 200, 0, 1), Ipv4Addr::new(10, 200, 0, 2)];
/// Discard port, without a listener.
const DISCARD: u16 = 9;
/// Timeout until a packet has crossed the tunnel.
const CROSS_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of one probe.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// One end of a tunnel.
#[derive(Clone, Copy)]
pub struct TunnelEnd<'a> {
    /// Host of this end.
    pub host: &'a HostHandle,
    /// Address of this end outside of the tunnel.
    pub outer_address: Ipv4Addr,
}

/// Hosts and files of a tunnel.
#[derive(Clone, Copy)]
pub struct TunnelEnds<'a> {
    /// Client's end, which dials.
    pub left: TunnelEnd<'a>,
    /// Server's end, which listens.
    pub right: TunnelEnd<'a>,
    /// Folder for files of the run.
    pub folder: &'a Path,
}

/// Processes and devices of a tunnel. The devices may appear later, and have no addresses yet.
pub struct StartedTunnel {
    /// Processes at both ends.
    pub services: Vec<Service>,
    /// Names of the TUN or TAP devices, left and right.
    pub devices: [&'static str; 2],
}

impl<'a> TunnelEnds<'a> {
    /// Returns the ends of a tunnel on the two hosts of `chain`.
    ///
    /// # Errors
    /// A host does not exist, or the hosts do not reach each other.
    pub fn for_chain(chain: &[String], context: RelayContext<'a>) -> anyhow::Result<Self> {
        let [left, right] = chain else { anyhow::bail!("a tunnel needs a chain of two hosts") };
        let plan = NetworkPlan::new(context.lab);
        let end = |name: &String, other: &String| {
            let host = context.network.host(name).with_context(|| format!("there is no host {name}"))?;
            let outer =
                plan.address_toward(name, other).with_context(|| format!("host {name} cannot reach {other}"))?;
            anyhow::Ok(TunnelEnd { host, outer_address: outer })
        };
        Ok(Self { left: end(left, right)?, right: end(right, left)?, folder: context.folder })
    }
}

/// Starts the tunnel of `program` between the hosts of `chain`, and waits until it carries packets.
///
/// # Errors
/// The program does not start, exits, or no packet crosses within 20 s.
pub fn start_tunnel(
    program: RelayProgram,
    chain: &[String],
    context: RelayContext<'_>,
) -> anyhow::Result<Vec<Service>> {
    let ends = TunnelEnds::for_chain(chain, context)?;
    let mut tunnel = match program {
        RelayProgram::Openvpn => openvpn::start(&ends)?,
        RelayProgram::Vtun => vtun::start(&ends)?,
        RelayProgram::Softether => softether::start(&ends)?,
        other => anyhow::bail!("{other:?} is not a packet tunnel"),
    };
    let deadline = Instant::now() + CROSS_TIMEOUT;
    while !has_devices(&ends, &tunnel)? {
        wait_until(deadline, &mut tunnel, "created no device")?;
    }
    for ((end, device), inner) in [ends.left, ends.right].into_iter().zip(tunnel.devices).zip(INNER_ADDRESSES) {
        let commands = [format!("addr replace {inner}/30 dev {device}"), format!("link set dev {device} up")];
        ip::run_batch(Some(end.host), &commands)?;
    }
    while !probe_crossing(&ends)? {
        wait_until(deadline, &mut tunnel, "carried no packet")?;
    }
    let plan = NetworkPlan::new(context.lab);
    for (side, (end, peer)) in [(ends.left, ends.right), (ends.right, ends.left)].into_iter().enumerate() {
        let addresses = plan.addresses_behind(end.host.name(), peer.host.name());
        // `replace` removes the route around the tunnel: if the device vanishes, no packet bypasses it.
        let route_command = |address| {
            format!("route replace {address}/32 via {} dev {}", INNER_ADDRESSES[1 - side], tunnel.devices[side])
        };
        ip::run_batch(Some(end.host), &addresses.into_iter().map(route_command).collect::<Vec<_>>())?;
    }
    Ok(tunnel.services)
}

fn has_devices(ends: &TunnelEnds<'_>, tunnel: &StartedTunnel) -> anyhow::Result<bool> {
    let has = |end: TunnelEnd<'_>, device: &str| -> anyhow::Result<bool> {
        let devices = end.host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        Ok(devices.lines().filter_map(|line| line.split_once(':')).any(|(name, _)| name.trim() == device))
    };
    Ok(has(ends.left, tunnel.devices[0])? && has(ends.right, tunnel.devices[1])?)
}

/// Returns whether the other end answers. A refused connection is an answer, too.
fn probe_crossing(ends: &TunnelEnds<'_>) -> io::Result<bool> {
    let target = SocketAddr::from((INNER_ADDRESSES[1], DISCARD));
    let attempt = ends.left.host.enter(|| TcpStream::connect_timeout(&target, ATTEMPT_TIMEOUT))?;
    Ok(attempt.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionRefused, |_| true))
}

fn wait_until(deadline: Instant, tunnel: &mut StartedTunnel, problem: &str) -> anyhow::Result<()> {
    if let Some(failure) = tunnel.services.iter_mut().find_map(Service::failure) {
        anyhow::bail!(failure);
    }
    anyhow::ensure!(!signal::is_interrupted(), "interrupted");
    if Instant::now() > deadline {
        let descriptions: Vec<String> = tunnel.services.iter().map(Service::describe).collect();
        anyhow::bail!("the tunnel {problem} within {CROSS_TIMEOUT:?}: {}", descriptions.join("; "));
    }
    std::thread::sleep(RETRY_INTERVAL);
    Ok(())
}
