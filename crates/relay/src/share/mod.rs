//! Sections that leave by one interface share its rate, by pacing: whatever their congestion controls are, none sends
//! faster than its share, so there is nothing for them to fight about (docs/decisions/0015).
//!
//! A section is a [`Member`] of the [`Interface`] that its packets leave by. As long as it sends, its thread's [`Desk`]
//! looks at it ten times a second, says what it claims, and gives it a ceiling; the arithmetic is
//! [`ekiden_proto::share`]. What threads share of an interface is claims and figures, no socket. Who sends nothing costs
//! nothing. Bytes of other programs, and what only answers other bytes (ACKs), are nobody's claim.

mod active;
mod desk;
mod gauges;
mod interface;
mod member;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_sys::route::has_interface;

use crate::config;
use crate::status::InterfaceView;

pub use desk::Desk;
pub use gauges::Gauges;
pub use interface::Interface;
pub use member::Member;

/// Every interface whose rate is shared.
#[derive(Debug, Default)]
pub struct Shares {
    interfaces: Mutex<Vec<Arc<Interface>>>,
    desks: AtomicUsize,
}

impl Shares {
    /// Goes over to these interfaces. The members of those that stay feel a new rate at once; those that go are told by
    /// their desks ([`Desk::follow`]).
    pub fn serve(&self, wanted: &[config::Interface]) {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = |one: &config::Interface| {
            let rate = one.rate.bytes_per_second();
            match interfaces.iter().find(|known| known.name() == one.name) {
                Some(known) => {
                    known.change(rate);
                    Arc::clone(known)
                }
                None => Arc::new(Interface::new(&one.name, rate)),
            }
        };
        *interfaces = wanted.iter().map(keep).collect();
    }

    /// What `ekiden status` shows of them.
    pub fn views(&self) -> Vec<InterfaceView> {
        self.all().iter().map(|interface| interface.view()).collect()
    }

    fn all(&self) -> Vec<Arc<Interface>> {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next_desk(&self) -> usize {
        self.desks.fetch_add(1, Ordering::Relaxed)
    }
}

/// What to tell the operator about interfaces that are not there: they may come, so that is no mistake.
pub fn missing(interfaces: &[config::Interface]) -> impl Iterator<Item = String> {
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
