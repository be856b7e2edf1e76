//! Sections that leave by one interface share its rate, by pacing: whatever their congestion controls are, none sends
//! faster than its share, so there is nothing for them to fight about (docs/decisions/0015).
//!
//! A section is a [`PacedSocket`] of the [`SharedInterface`] that its packets leave by. As long as it sends, its thread's [`ThreadShaper`]
//! looks at it ten times a second, says what it claims, and gives it a ceiling; the arithmetic is
//! [`ekiden_proto::share`]. What threads share of an interface is claims and figures, no socket. Who sends nothing costs
//! nothing. Bytes of other programs, and what only answers other bytes (ACKs), are nobody's claim.

mod interface;
mod pacing;
mod shaper;
mod socket;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_sys::route::has_interface;

use crate::config;
use crate::status::InterfaceView;

pub use interface::SharedInterface;
pub use shaper::ThreadShaper;
pub use socket::PacedSocket;

/// All interfaces with a shared rate.
#[derive(Debug, Default)]
pub struct SharedInterfaces {
    interfaces: Mutex<Vec<Arc<SharedInterface>>>,
    next_index: AtomicUsize,
}

impl SharedInterfaces {
    /// Switches to these interfaces. Sections on remaining interfaces get a new rate at once; their threads release
    /// those on removed interfaces ([`ThreadShaper::update_interfaces`]).
    pub fn apply_config(&self, wanted: &[config::InterfaceConfig]) {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = |one: &config::InterfaceConfig| {
            let rate = one.rate.bytes_per_second();
            match interfaces.iter().find(|known| known.name() == one.name) {
                Some(known) => {
                    known.set_rate(rate);
                    Arc::clone(known)
                }
                None => Arc::new(SharedInterface::new(&one.name, rate)),
            }
        };
        *interfaces = wanted.iter().map(keep).collect();
    }

    /// The interfaces as `ekiden status` shows them.
    pub fn views(&self) -> Vec<InterfaceView> {
        self.all().iter().map(|interface| interface.view()).collect()
    }

    fn all(&self) -> Vec<Arc<SharedInterface>> {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next_shaper_index(&self) -> usize {
        self.next_index.fetch_add(1, Ordering::Relaxed)
    }
}

/// Warnings about interfaces that do not exist. They may appear later, so this is no error.
pub fn missing_interface_warnings(interfaces: &[config::InterfaceConfig]) -> impl Iterator<Item = String> {
    let missing = interfaces.iter().filter(|interface| !has_interface(&interface.name));
    missing.map(|interface| {
        let name = &interface.name;
        format!(
            "there is no interface {name} now, so nothing shares its rate: see `ip link`, and [[interface]] in the file"
        )
    })
}

#[cfg(test)]
mod tests;
