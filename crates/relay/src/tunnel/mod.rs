//! Tunnels: networks behind another relay, reached through a TUN device.
//!
//! TCP packets are written back into the device, so that they arrive on a local interface; there the rules of transparent
//! listeners catch first packets, and the kernel terminates the connections. Their bytes cross as sessions, never their
//! segments. All other packets cross on lanes beside the sessions.

mod addresses;
mod device;
mod device_lanes;
mod filter;
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
pub use transport::{LaneError, LaneTransport};

use crate::events::metrics::tunnels::DropReason;
use sources::SourceBindings;

use crate::config::Config;

/// The devices that are in force now, and which packets may come into them, for all threads.
#[derive(Debug, Default)]
pub struct Tunnels(RwLock<ActiveTunnels>);

#[derive(Debug, Default)]
struct ActiveTunnels {
    devices: Vec<Arc<Device>>,
    sources: SourceBindings,
    /// The configuration of `sources`; `None` before the first one is in force.
    config: Option<Arc<Config>>,
}

impl ActiveTunnels {
    /// The device behind which `ip` is.
    fn device_for(&self, ip: IpAddr) -> Option<&Arc<Device>> {
        self.devices.iter().find(|device| device.has_network_of(ip))
    }

    fn permits(&self, remote: &LaneRemote, source: IpAddr) -> bool {
        self.config.as_ref().is_some_and(|config| self.sources.permits(config, remote, source))
    }
}

impl Tunnels {
    /// Puts these devices, and the source bindings of `config`, in force.
    pub fn apply_config(&self, devices: Vec<Arc<Device>>, config: &Arc<Config>) {
        let in_force =
            ActiveTunnels { devices, sources: SourceBindings::new(config), config: Some(Arc::clone(config)) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = in_force;
    }

    fn active(&self) -> RwLockReadGuard<'_, ActiveTunnels> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.active().devices.is_empty()
    }

    /// Whether packets from `ip` may come from `remote`, and packets to `ip` may therefore go there.
    fn permits(&self, remote: &LaneRemote, ip: IpAddr) -> bool {
        self.active().permits(remote, ip)
    }

    /// Delivers a received packet to this host. `before` runs when only the kernel can still refuse the packet, because
    /// the answer may arrive before this returns.
    ///
    /// # Errors
    /// Why the packet is dropped.
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
            // The packet would come back at once.
            if in_force.device_for(head.destination).is_some() {
                return Err(DropReason::Denied);
            }
            Arc::clone(device)
        };
        before();
        device.write(packet).map_err(|_| DropReason::NotTaken)
    }

    /// Judges a packet that passes from `remote` to another relay.
    ///
    /// # Errors
    /// When `remote` may not send from the source address of the packet.
    fn check_forward(&self, head: &IpHeader, remote: &LaneRemote) -> Result<(), DropReason> {
        let in_force = self.active();
        let permits = match in_force.device_for(head.source) {
            Some(_) => in_force.permits(remote, head.source),
            None => in_force.sources.permits_through(remote, head.source),
        };
        if permits { Ok(()) } else { Err(DropReason::WrongPeer) }
    }
}
