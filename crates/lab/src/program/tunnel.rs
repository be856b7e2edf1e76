//! Tunnels of packets: a device at each end, and routes through it to whoever is behind the other.
//!
//! The laboratory starts the program at both ends, gives the devices addresses, and when a packet has crossed it sends what
//! is for hosts behind the other end there. Clients know of nothing and connect to the server's own address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::experiment::treatment::RelayProgram;
use crate::program::chain::RelayContext;
use crate::program::service::Service;
use crate::program::{openvpn, softether, vtun};
use crate::topology::ip;
use crate::topology::network::HostHandle;
use crate::topology::plan::NetworkPlan;

/// The device, where a program lets others choose its name.
pub const DEVICE: &str = "tunnel";
/// The addresses of the devices: at the client's end, and at the server's.
const INNER_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 200, 0, 1), Ipv4Addr::new(10, 200, 0, 2)];
/// The discard port: nobody needs to listen.
const DISCARD: u16 = 9;
/// How long a tunnel may take until a packet crosses.
const CROSS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one attempt to cross may take, and how long it is until the next.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// One end of a tunnel.
#[derive(Clone, Copy)]
pub struct TunnelEnd<'a> {
    /// Its host.
    pub host: &'a HostHandle,
    /// The address under which the other end reaches it.
    pub outer_address: Ipv4Addr,
}

/// Where a tunnel is made.
#[derive(Clone, Copy)]
pub struct TunnelEnds<'a> {
    /// At the client's end: it dials.
    pub left: TunnelEnd<'a>,
    /// At the server's end: it listens.
    pub right: TunnelEnd<'a>,
    /// Where files of the run go.
    pub folder: &'a Path,
}

/// What a program has started. Its devices may appear later; whoever starts it has not given them addresses.
pub struct StartedTunnel {
    /// The processes, at both ends.
    pub services: Vec<Service>,
    /// The names of the devices, left and right: TUN or TAP.
    pub devices: [&'static str; 2],
}

impl<'a> TunnelEnds<'a> {
    /// The ends of a tunnel at two hosts.
    ///
    /// # Errors
    /// They are not there, or not linked.
    pub fn for_chain(chain: &[String], around: RelayContext<'a>) -> anyhow::Result<Self> {
        let [left, right] = chain else { anyhow::bail!("a tunnel has two ends") };
        let plan = NetworkPlan::new(around.lab);
        let end = |name: &String, other: &String| {
            let host = around.network.host(name).with_context(|| format!("there is no host {name}"))?;
            let outer = plan.address_toward(name, other).with_context(|| format!("{name} does not reach {other}"))?;
            anyhow::Ok(TunnelEnd { host, outer_address: outer })
        };
        Ok(Self { left: end(left, right)?, right: end(right, left)?, folder: around.folder })
    }
}

/// Makes the tunnel of `program` between the hosts of `chain`, and returns when it carries.
///
/// # Errors
/// The program does not start, ends, or lets no packet cross in 20 s.
pub fn start_tunnel(program: RelayProgram, chain: &[String], around: RelayContext<'_>) -> anyhow::Result<Vec<Service>> {
    let ends = TunnelEnds::for_chain(chain, around)?;
    let mut opened = match program {
        RelayProgram::Openvpn => openvpn::start(&ends)?,
        RelayProgram::Vtun => vtun::start(&ends)?,
        RelayProgram::Softether => softether::start(&ends)?,
        other => anyhow::bail!("{other:?} is no tunnel of packets"),
    };
    let deadline = Instant::now() + CROSS_TIMEOUT;
    while !has_devices(&ends, &opened)? {
        wait_until(deadline, &mut opened, "makes no device")?;
    }
    for ((end, device), inner) in [ends.left, ends.right].into_iter().zip(opened.devices).zip(INNER_ADDRESSES) {
        let commands = [format!("addr replace {inner}/30 dev {device}"), format!("link set dev {device} up")];
        ip::run_batch(Some(end.host), &commands)?;
    }
    while !probe_crossing(&ends)? {
        wait_until(deadline, &mut opened, "lets no packet cross")?;
    }
    let plan = NetworkPlan::new(around.lab);
    for (side, (end, far)) in [(ends.left, ends.right), (ends.right, ends.left)].into_iter().enumerate() {
        let behind = plan.addresses_behind(end.host.name(), far.host.name());
        // In the place of the route that is there: if the device vanishes, nobody gets by without the tunnel.
        let through = |address| {
            format!("route replace {address}/32 via {} dev {}", INNER_ADDRESSES[1 - side], opened.devices[side])
        };
        ip::run_batch(Some(end.host), &behind.into_iter().map(through).collect::<Vec<_>>())?;
    }
    Ok(opened.services)
}

fn has_devices(ends: &TunnelEnds<'_>, opened: &StartedTunnel) -> anyhow::Result<bool> {
    let has = |end: TunnelEnd<'_>, device: &str| -> anyhow::Result<bool> {
        let devices = end.host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        Ok(devices.lines().filter_map(|line| line.split_once(':')).any(|(name, _)| name.trim() == device))
    };
    Ok(has(ends.left, opened.devices[0])? && has(ends.right, opened.devices[1])?)
}

/// Whether the other end answers: that nobody listens there is an answer, too.
fn probe_crossing(ends: &TunnelEnds<'_>) -> io::Result<bool> {
    let there = SocketAddr::from((INNER_ADDRESSES[1], DISCARD));
    let attempt = ends.left.host.enter(|| TcpStream::connect_timeout(&there, ATTEMPT_TIMEOUT))?;
    Ok(attempt.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionRefused, |_| true))
}

fn wait_until(deadline: Instant, opened: &mut StartedTunnel, but: &str) -> anyhow::Result<()> {
    if let Some(failure) = opened.services.iter_mut().find_map(Service::failure) {
        anyhow::bail!(failure);
    }
    anyhow::ensure!(!signal::is_interrupted(), "interrupted");
    if Instant::now() > deadline {
        let said: Vec<String> = opened.services.iter().map(Service::describe).collect();
        anyhow::bail!("the tunnel {but} in {CROSS_TIMEOUT:?}: {}", said.join("; "));
    }
    std::thread::sleep(RETRY_INTERVAL);
    Ok(())
}
