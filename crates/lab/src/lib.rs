//! The laboratory: emulates long network paths on one machine, packet by packet, and runs experiments on them.
//!
//! From the bottom up: a [`packet`] passes the [`stage`]s and [`queue`]s of a [`pipeline`], all in virtual time. The
//! [`emulator`] drives one pipeline for each direction of each link against the real clock. A [`topology`] has the
//! hosts and links of a lab file. A [`check`] measures every link with code independent of the emulator. [`program`]s
//! are the real servers, proxies and clients. An [`experiment`] defines factors, levels and repetitions. [`stats`] and
//! [`report`] evaluate the results.

pub mod check;
pub mod conditions;
pub mod dice;
pub mod emulator;
pub mod experiment;
pub mod ledger;
pub mod packet;
pub mod pipeline;
pub mod program;
pub mod queue;
pub mod reference;
pub mod report;
pub mod stage;
pub mod stats;
pub mod temp_dir;
pub mod topology;
pub mod virtual_time;
pub mod waits;
pub mod warnings;

/// A duration, or a point of virtual time since an epoch defined by the context, in nanoseconds.
pub type Nanos = u64;

/// Converts a time span of a lab file to nanoseconds, saturating.
#[must_use]
pub fn nanos(span: ekiden_proto::units::Span) -> Nanos {
    Nanos::try_from(span.0.as_nanos()).unwrap_or(Nanos::MAX)
}
