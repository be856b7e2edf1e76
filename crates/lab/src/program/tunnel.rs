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

use crate::experiment::treatment::Relay;
use crate::program::chain::Surroundings;
use crate::program::service::Service;
use crate::program::{openvpn, softether, vtun};
use crate::topology::ip;
use crate::topology::network::HostHandle;
use crate::topology::plan::Plan;

/// The device, where a program lets others choose its name.
pub const DEVICE: &str = "tunnel";
/// The addresses of the devices: at the client's end, and at the server's.
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 200, 0, 1), Ipv4Addr::new(10, 200, 0, 2)];
/// The discard port: nobody needs to listen.
const DISCARD: u16 = 9;
/// How long a tunnel may take until a packet crosses.
const CROSSES: Duration = Duration::from_secs(20);
/// How long one attempt to cross may take, and how long it is until the next.
const ATTEMPT: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(20);

/// One end of a tunnel.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// Its host.
    pub host: &'a HostHandle,
    /// The address under which the other end reaches it.
    pub outer: Ipv4Addr,
}

/// Where a tunnel is made.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// At the client's end: it dials.
    pub left: End<'a>,
    /// At the server's end: it listens.
    pub right: End<'a>,
    /// Where files of the run go.
    pub folder: &'a Path,
}

/// What a program has started. Its devices may appear later; whoever starts it has not given them addresses.
pub struct Opened {
    /// The processes, at both ends.
    pub services: Vec<Service>,
    /// The names of the devices, left and right: TUN or TAP.
    pub devices: [&'static str; 2],
}

impl<'a> Ends<'a> {
    /// The ends of a tunnel at two hosts.
    ///
    /// # Errors
    /// They are not there, or not linked.
    pub fn of(chain: &[String], around: Surroundings<'a>) -> anyhow::Result<Self> {
        let [left, right] = chain else { anyhow::bail!("a tunnel has two ends") };
        let plan = Plan::of(around.lab);
        let end = |name: &String, other: &String| {
            let host = around.network.host(name).with_context(|| format!("there is no host {name}"))?;
            let outer = plan.address_toward(name, other).with_context(|| format!("{name} does not reach {other}"))?;
            anyhow::Ok(End { host, outer })
        };
        Ok(Self { left: end(left, right)?, right: end(right, left)?, folder: around.folder })
    }
}

/// Makes the tunnel of `program` between the hosts of `chain`, and returns when it carries.
///
/// # Errors
/// The program does not start, ends, or lets no packet cross in 20 s.
pub fn start(program: Relay, chain: &[String], around: Surroundings<'_>) -> anyhow::Result<Vec<Service>> {
    let ends = Ends::of(chain, around)?;
    let mut opened = match program {
        Relay::Openvpn => openvpn::start(&ends)?,
        Relay::Vtun => vtun::start(&ends)?,
        Relay::Softether => softether::start(&ends)?,
        other => anyhow::bail!("{other:?} is no tunnel of packets"),
    };
    let deadline = Instant::now() + CROSSES;
    while !have_devices(&ends, &opened)? {
        wait_until(deadline, &mut opened, "makes no device")?;
    }
    for ((end, device), inner) in [ends.left, ends.right].into_iter().zip(opened.devices).zip(INNER) {
        let commands = [format!("addr replace {inner}/30 dev {device}"), format!("link set dev {device} up")];
        ip::batch(Some(end.host), &commands)?;
    }
    while !crosses(&ends)? {
        wait_until(deadline, &mut opened, "lets no packet cross")?;
    }
    let plan = Plan::of(around.lab);
    for (side, (end, far)) in [(ends.left, ends.right), (ends.right, ends.left)].into_iter().enumerate() {
        let behind = plan.behind(end.host.name(), far.host.name());
        // In the place of the route that is there: if the device vanishes, nobody gets by without the tunnel.
        let through =
            |address| format!("route replace {address}/32 via {} dev {}", INNER[1 - side], opened.devices[side]);
        ip::batch(Some(end.host), &behind.into_iter().map(through).collect::<Vec<_>>())?;
    }
    Ok(opened.services)
}

fn have_devices(ends: &Ends<'_>, opened: &Opened) -> anyhow::Result<bool> {
    let has = |end: End<'_>, device: &str| -> anyhow::Result<bool> {
        let devices = end.host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        Ok(devices.lines().filter_map(|line| line.split_once(':')).any(|(name, _)| name.trim() == device))
    };
    Ok(has(ends.left, opened.devices[0])? && has(ends.right, opened.devices[1])?)
}

/// Whether the other end answers: that nobody listens there is an answer, too.
fn crosses(ends: &Ends<'_>) -> io::Result<bool> {
    let there = SocketAddr::from((INNER[1], DISCARD));
    let attempt = ends.left.host.enter(|| TcpStream::connect_timeout(&there, ATTEMPT))?;
    Ok(attempt.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionRefused, |_| true))
}

fn wait_until(deadline: Instant, opened: &mut Opened, but: &str) -> anyhow::Result<()> {
    if let Some(failure) = opened.services.iter_mut().find_map(Service::failure) {
        anyhow::bail!(failure);
    }
    anyhow::ensure!(!signal::interrupted(), "interrupted");
    if Instant::now() > deadline {
        let said: Vec<String> = opened.services.iter().map(Service::words).collect();
        anyhow::bail!("the tunnel {but} in {CROSSES:?}: {}", said.join("; "));
    }
    std::thread::sleep(AGAIN);
    Ok(())
}
