//! Tunnels: whole networks behind another relay, by a TUN device that the routes to them lead into.
//!
//! TCP goes back into the device as it came, so that it comes in by an interface of ours; there the rules of transparent
//! listeners catch its first packets, and the kernel ends it. What crosses are its bytes, never its segments. Everything
//! else crosses as packets, by lanes beside the sessions.

mod arrived;
mod carrier;
mod crossing;
mod device;
mod devices;
mod judge;
mod lane;
mod lanes;
mod queue;
mod reader;
mod roll;
mod seen;
mod sources;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ekiden_proto::wire::ip::Head;

pub use arrived::serve;
pub use carrier::UNSENT;
pub use crossing::{Counts, Crossing};
pub use device::Device;
pub use devices::{Devices, TunnelError};
pub use reader::run;
pub use roll::Roll;

use judge::Dropped;
use sources::{Remote, Sources};

use crate::config::Config;

/// The devices that are in force now, and which packets may come into them, for all threads.
#[derive(Debug, Default)]
pub struct Tunnels(RwLock<InForce>);

#[derive(Debug, Default)]
struct InForce {
    devices: Vec<Arc<Device>>,
    sources: Sources,
    /// The configuration of `sources`; `None` before the first one is in force.
    config: Option<Arc<Config>>,
}

impl InForce {
    /// The device behind which `ip` is.
    fn device(&self, ip: IpAddr) -> Option<&Arc<Device>> {
        self.devices.iter().find(|device| device.leads_to(ip))
    }

    fn permits(&self, remote: &Remote, source: IpAddr) -> bool {
        self.config.as_ref().is_some_and(|config| self.sources.permits(config, remote, source))
    }
}

impl Tunnels {
    /// Puts these devices, and the source bindings of `config`, in force.
    pub fn serve(&self, devices: Vec<Arc<Device>>, config: &Arc<Config>) {
        let in_force = InForce { devices, sources: Sources::new(config), config: Some(Arc::clone(config)) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = in_force;
    }

    fn in_force(&self) -> RwLockReadGuard<'_, InForce> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_force().devices.is_empty()
    }

    /// Whether packets from `ip` may come from `remote`, so that packets to it may go there.
    fn permits(&self, remote: &Remote, ip: IpAddr) -> bool {
        self.in_force().permits(remote, ip)
    }

    /// Has this host receive a packet that has come from the other side. What is to be done `before` is done when nothing
    /// but the kernel could refuse it: the answer may come before this returns.
    ///
    /// # Errors
    /// Why it goes nowhere.
    fn take(&self, packet: &[u8], (head, remote): (&Head, &Remote), before: impl FnOnce()) -> Result<(), Dropped> {
        let device = {
            let in_force = self.in_force();
            let device = in_force.device(head.source).ok_or(Dropped::Spoofed)?;
            if !in_force.permits(remote, head.source) {
                return Err(Dropped::WrongPeer);
            }
            // It would come back at once.
            if in_force.device(head.destination).is_some() {
                return Err(Dropped::Denied);
            }
            Arc::clone(device)
        };
        before();
        device.write(packet).map_err(|_| Dropped::NotTaken)
    }

    /// Judges a packet that passes from `remote` to another relay.
    ///
    /// # Errors
    /// When `remote` may not send from the source address of the packet.
    fn pass(&self, head: &Head, remote: &Remote) -> Result<(), Dropped> {
        let in_force = self.in_force();
        let permits = match in_force.device(head.source) {
            Some(_) => in_force.permits(remote, head.source),
            None => in_force.sources.permits_through(remote, head.source),
        };
        if permits { Ok(()) } else { Err(Dropped::WrongPeer) }
    }
}
