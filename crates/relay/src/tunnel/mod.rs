//! Tunnels: networks behind another relay, reached through a TUN device.
//!
//! TCP packets are written back into the device, so that they arrive on a local interface. There the rules of
//! transparent listeners intercept SYN packets, and the kernel terminates the connections. Sessions carry the bytes of
//! these connections, not their segments. Lanes carry all other packets.

mod addresses;
mod device;
mod device_lanes;
mod filter;
mod flows;
mod incoming;
mod lane;
mod sources;
mod transport;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ekiden_proto::wire::ip::IpHeader;

pub use device::Device;
pub use device::read_device;
pub use incoming::{IncomingLane, end_of_lane, serve};
pub use lane::{Lane, LaneRegistry};
pub use sources::LaneRemote;
pub use transport::{LaneError, LaneTransport, dial_and_run};

use crate::events::metrics::tunnels::DropReason;
use sources::SourceBindings;

use crate::config::Config;

/// The devices in force and the packets that they accept, shared by all threads.
#[derive(Debug, Default)]
pub struct Tunnels(RwLock<ActiveTunnels>);

#[derive(Debug, Default)]
struct ActiveTunnels {
    devices: Vec<Arc<Device>>,
    sources: SourceBindings,
    /// The configuration of `sources`; `None` before the first configuration is in force.
    config: Option<Arc<Config>>,
}

impl ActiveTunnels {
    /// Returns the device of the network that contains `ip`.
    fn device_for(&self, ip: IpAddr) -> Option<&Arc<Device>> {
        self.devices.iter().find(|device| device.has_network_of(ip))
    }

    fn permits(&self, remote: &LaneRemote, source: IpAddr) -> bool {
        self.config.as_ref().is_some_and(|config| self.sources.permits(config, remote, source))
    }
}

impl Tunnels {
    /// Applies these devices and the source bindings of `config`.
    pub fn apply_config(&self, devices: Vec<Arc<Device>>, config: &Arc<Config>) {
        let in_force =
            ActiveTunnels { devices, sources: SourceBindings::new(config), config: Some(Arc::clone(config)) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = in_force;
    }

    fn active(&self) -> RwLockReadGuard<'_, ActiveTunnels> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this host has no tunnel device.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.active().devices.is_empty()
    }

    /// Returns whether `remote` may send packets from `ip`, and may therefore receive packets to `ip`.
    fn permits(&self, remote: &LaneRemote, ip: IpAddr) -> bool {
        self.active().permits(remote, ip)
    }

    /// Delivers a received packet to this host. Calls `before` after all checks and before the write to the device,
    /// because the answer may arrive before this function returns.
    ///
    /// # Errors
    /// The packet is dropped, with the reason.
    fn deliver(
        &self,
        packet: &[u8],
        head: &IpHeader,
        remote: &LaneRemote,
        before: impl FnOnce(),
    ) -> Result<(), DropReason> {
        let device = {
            let in_force = self.active();
            let device = in_force.device_for(head.source).ok_or(DropReason::Spoofed)?;
            if !in_force.permits(remote, head.source) {
                return Err(DropReason::WrongPeer);
            }
            // The kernel would route the packet back into a tunnel device.
            if in_force.device_for(head.destination).is_some() {
                return Err(DropReason::Denied);
            }
            Arc::clone(device)
        };
        before();
        device.write(packet).map_err(|_| DropReason::NotTaken)
    }

    /// Checks a packet that this relay forwards from `remote` to another relay.
    ///
    /// # Errors
    /// `remote` may not send from the source address of the packet.
    fn check_forward(&self, head: &IpHeader, remote: &LaneRemote) -> Result<(), DropReason> {
        let in_force = self.active();
        let permits = match in_force.device_for(head.source) {
            Some(_) => in_force.permits(remote, head.source),
            None => in_force.sources.permits_through(remote, head.source),
        };
        if permits { Ok(()) } else { Err(DropReason::WrongPeer) }
    }
}
