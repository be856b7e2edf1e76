//! The only way out of the pump: a trait that counters, pacing and tuning implement.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;

/// How bytes crossed the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferMethod {
    /// Through a buffer of this process.
    Copied,
    /// Through a pipe, by splice(2).
    Spliced,
}

/// The bytes that a flow may read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// As many bytes as there are.
    Unlimited,
    /// At most so many bytes, and not before this moment.
    Bytes {
        /// The number of bytes, never 0.
        most: usize,
        /// The turn of the flow among all flows under the same limits.
        at: Instant,
    },
    /// No byte: a quota is used up.
    Exhausted,
}

/// Observes the two flows of a session, and limits their reads. Calls come from the session's thread.
pub trait FlowObserver: Debug {
    /// `bytes` were written to the socket of `direction`: once for each write.
    fn on_moved(&self, direction: Direction, bytes: u64, transfer: TransferMethod);

    /// The receiver of `direction` has room again, after `span` without.
    fn on_stall_end(&self, direction: Direction, span: Duration);

    /// The bytes of `direction` that wait in this host have changed by `change`.
    fn on_queue_change(&self, direction: Direction, change: i64);

    /// The next records of `direction` hold at most `bytes` of plaintext.
    fn on_record_size(&self, direction: Direction, bytes: usize);

    /// Takes a turn of `direction` under the limits of the session: before each read, and before a write of bytes that were read
    /// without a turn. The next [`Self::on_moved`] gives back the rest of the turn.
    fn reserve(&self, direction: Direction) -> Allowance;

    /// Whether the section that sends the bytes of `direction` is tuned: then small reads gather before they are sent.
    fn is_tuned(&self, direction: Direction) -> bool;
}

/// An observer that ignores every event.
impl FlowObserver for () {
    fn on_moved(&self, _: Direction, _: u64, _: TransferMethod) {}
    fn on_stall_end(&self, _: Direction, _: Duration) {}
    fn on_queue_change(&self, _: Direction, _: i64) {}
    fn on_record_size(&self, _: Direction, _: usize) {}
    fn reserve(&self, _: Direction) -> Allowance {
        Allowance::Unlimited
    }
    fn is_tuned(&self, _: Direction) -> bool {
        false
    }
}
