//! The laboratory: long paths on one machine, honest to the packet, and experiments on them.
//!
//! From the bottom up: a [`packet`] passes the [`stage`]s and [`queue`]s of a [`pipeline`], all in virtual time; the
//! [`emulator`] drives one pipeline for each direction of each link against the real clock; a [`topology`] is hosts and
//! links out of a lab file; a [`check`] measures every link by other code than the emulator's; [`program`]s are the real
//! servers, proxies and clients; an [`experiment`] says what varies and how often; [`stats`] and [`report`] say what came
//! of it.

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
pub mod topology;
pub mod waits;
pub mod warnings;

/// Nanoseconds: of a span, or since the zero of whoever says so. Virtual time is nothing but this number.
pub type Nanos = u64;

/// A span of a lab file as that number.
#[must_use]
pub fn nanos(span: ekiden_proto::units::Span) -> Nanos {
    Nanos::try_from(span.0.as_nanos()).unwrap_or(Nanos::MAX)
}
