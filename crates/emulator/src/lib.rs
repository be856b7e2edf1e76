//! The emulator of the laboratory: links with delay, rate, queues and loss, packet by packet and in virtual time.
//!
//! From the bottom up: a [`packet`] passes the [`stage`]s and [`queue`]s of a [`pipeline`]. An [`emulation`] is a
//! pipeline for each direction of each link, with the frames of the packets under way. All of it performs no I/O and
//! reads no clock. Two programs drive it: a thread of `ekiden-lab` against the real clock, and the virtual kernel.

pub mod capture;
pub mod conditions;
pub mod direction;
pub mod emulation;
pub mod frame;
pub mod kernel_protocol;
pub mod lateness;
pub mod ledger;
pub mod links;
pub mod packet;
pub mod pipeline;
pub mod queue;
pub mod records;
pub mod rng;
pub mod stage;
mod store;
pub mod trace;
pub mod waits;

/// A duration, or a point of virtual time since an epoch defined by the context, in nanoseconds.
pub type Nanos = u64;

/// A millisecond, in nanoseconds.
const MS: Nanos = 1_000_000;

/// Converts a time span of a lab file to nanoseconds, saturating.
#[must_use]
pub fn nanos(span: ekiden_proto::units::Span) -> Nanos {
    Nanos::try_from(span.0.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Conditions and packets of tests.
#[cfg(test)]
mod fixtures {
    use crate::Nanos;
    use crate::conditions::Conditions;
    use crate::packet::{Ecn, Packet};

    /// Parses conditions as in a lab file.
    pub(crate) fn conditions(text: &str) -> Conditions {
        toml::from_str(text).unwrap()
    }

    /// Returns a packet of flow 0 without ECN.
    pub(crate) fn packet(number: u64, at: Nanos, bytes: u32) -> Packet {
        Packet { number, at, bytes, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 }
    }
}
