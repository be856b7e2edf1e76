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

/// Converts a time span of a lab file to nanoseconds, saturating.
#[must_use]
pub fn nanos(span: ekiden_proto::units::Span) -> Nanos {
    Nanos::try_from(span.0.as_nanos()).unwrap_or(Nanos::MAX)
}
