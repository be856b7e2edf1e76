//! The interface between the pump and the rest of the relay: a trait that counters, pacing and tuning implement.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;

/// How the relay transferred bytes between its sockets.
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
    /// Any number of bytes.
    Unlimited,
    /// A limited number of bytes, not before a given time.
    Bytes {
        /// Maximum number of bytes, never 0.
        most: usize,
        /// When the turn of the flow begins, among all flows under the same limits.
        at: Instant,
    },
    /// No byte: a quota is used up.
    Exhausted,
}

/// Observes the two flows of a session, and limits their reads. Calls come from the session's thread.
pub trait FlowObserver: Debug {
    /// Called after each write: `bytes` bytes were written to the receiving socket of `direction`.
    fn on_moved(&self, direction: Direction, bytes: u64, transfer: TransferMethod);

    /// Called when the receiver of `direction` has room again, after it had no room for `span`.
    fn on_stall_end(&self, direction: Direction, span: Duration);

    /// Called when the number of bytes of `direction` that are queued in this host has changed by `change`.
    fn on_queue_change(&self, direction: Direction, change: i64);

    /// Called when the maximum plaintext of the next records of `direction` is set to `bytes` bytes.
    fn on_record_size(&self, direction: Direction, bytes: usize);

    /// Takes a turn of `direction` under the limits of the session: before each read, and before a write of bytes that
    /// were read without a turn. The next [`Self::on_moved`] returns the unused part of the turn.
    fn reserve(&self, direction: Direction) -> Allowance;

    /// Returns whether the section that sends the bytes of `direction` is tuned. If so, small reads are gathered before
    /// they are sent.
    fn is_tuned(&self, direction: Direction) -> bool;

    /// Returns whether the section that sends the bytes of `direction` carries no session after this one.
    fn is_last_session(&self, direction: Direction) -> bool;
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
    fn is_last_session(&self, _: Direction) -> bool {
        false
    }
}
