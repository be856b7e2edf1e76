//! Tunnels: whole networks behind another relay, by a TUN device that the routes to them lead into.
//!
//! TCP goes back into the device as it came, so that it comes in by an interface of ours; there the rules of transparent
//! listeners catch its first packets, and the kernel ends it. What crosses are its bytes, never its segments. Everything
//! else crosses as packets, by lanes beside the sessions.

mod device;
mod devices;
mod lanes;
mod reader;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

pub use device::Device;
pub use devices::{Devices, TunnelError};
pub use reader::run;

/// The devices that are in force now, for all threads.
#[derive(Debug, Default)]
pub struct Tunnels(RwLock<Vec<Arc<Device>>>);

impl Tunnels {
    /// From now on it is these.
    pub fn serve(&self, devices: Vec<Arc<Device>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    /// The device behind which `source` is, as its packets say that come from the other side.
    #[must_use]
    pub fn by_source(&self, source: IpAddr) -> Option<Arc<Device>> {
        let devices = self.0.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|device| device.leads_to(source)).cloned()
    }
}
