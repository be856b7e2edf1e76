//! The path choice for a session, and the outcome of the session.

use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::ChoiceRecord;
use ekiden_proto::path::candidates::Candidate;
use ekiden_proto::path::choice::{ChoiceReason, TransferOutcome};
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::path::transfer_size::TransferSize;

use crate::pump::Response;

/// Minimum size of a transfer that measures the rate of its path, in bytes.
const BULK_BYTES: u64 = 256 << 10;

/// The choice of the selector for one session.
#[derive(Debug)]
pub struct SelectionContext {
    /// The target of the session.
    pub target: Target,
    /// The prefix of the target.
    pub prefix: Prefix,
    /// The predicted size of the transfer.
    pub predicted_size: TransferSize,
    /// Number of paths to dial in parallel because of too few measurements; 0 if the first path is the best.
    pub racing_count: usize,
    /// The reason for the choice.
    pub reason: ChoiceReason,
}

/// One path of a [`SelectionContext`], and its prediction.
#[derive(Debug)]
pub struct Prediction {
    /// The choice to which the path belongs.
    pub context: Arc<SelectionContext>,
    /// The path; `None` if a hop is not a relay.
    pub candidate: Option<Candidate>,
    /// The predicted time from the client's request to the last byte; `None` with too few measurements.
    pub completion_time: Option<Duration>,
}

/// Bytes and times of a session or of a part of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransferStats {
    /// Bytes toward the client.
    pub down: u64,
    /// Bytes toward the server.
    pub up: u64,
    /// Time from the client's request until the path was established; zero for a later part.
    pub connect_time: Duration,
    /// The largest response; `None` before the first response.
    pub largest_response: Option<Response>,
    /// Time in which bytes moved or the path or the server was awaited; the time between a response and the next
    /// request is excluded.
    pub active_time: Duration,
    /// Time in which bytes for the client waited for room, or for their turn under the rate limit of the client.
    pub blocked_down: Duration,
    /// Time in which bytes for the server waited for room.
    pub blocked_up: Duration,
}

impl TransferStats {
    /// Returns the direction with more bytes, and the number of these bytes.
    #[must_use]
    pub const fn dominant_direction(&self) -> TransferSize {
        if self.up > self.down { TransferSize::up(self.up) } else { TransferSize::down(self.down) }
    }

    /// Returns whether the client limited the session: the client did not receive the available bytes, or sent too few
    /// bytes.
    #[must_use]
    pub fn is_client_limited(&self) -> bool {
        match self.dominant_direction().direction {
            Direction::Down => !self.blocked_down.is_zero() && self.blocked_down * 2 >= self.active_time,
            Direction::Up => self.blocked_up * 2 < self.active_time,
        }
    }

    /// Returns whether the transfer is large enough to measure a rate.
    #[must_use]
    pub const fn is_bulk(&self) -> bool {
        self.dominant_direction().bytes >= BULK_BYTES
    }

    /// Returns the sample for the path selector; `None` for a small session without a response.
    ///
    /// For a large session, the sample covers all bytes. For a small session, which may consist of many requests, the
    /// sample covers only the largest response: the number of requests is not a property of the path.
    #[must_use]
    pub fn outcome(&self) -> Option<TransferOutcome> {
        let limited_by_path = !self.is_client_limited();
        if self.is_bulk() {
            let (size, took) = (self.dominant_direction(), self.connect_time + self.active_time);
            return Some(TransferOutcome {
                transferred: size,
                session_bytes: size.bytes,
                elapsed: took,
                is_continuation: false,
                limited_by_path,
            });
        }
        let Response { bytes, wait, span } = self.largest_response?;
        let took = self.connect_time + wait + span;
        Some(TransferOutcome {
            transferred: TransferSize::down(bytes),
            session_bytes: bytes,
            elapsed: took,
            is_continuation: false,
            limited_by_path: true,
        })
    }

    /// Returns the transfer since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            down: self.down - before.down,
            up: self.up - before.up,
            connect_time: Duration::ZERO,
            largest_response: None,
            active_time: self.active_time.saturating_sub(before.active_time),
            blocked_down: self.blocked_down.saturating_sub(before.blocked_down),
            blocked_up: self.blocked_up.saturating_sub(before.blocked_up),
        }
    }

    /// Returns the sample of a part of a large session that is expected to carry `total_bytes` bytes in total.
    #[must_use]
    pub fn partial_outcome(&self, total_bytes: u64) -> Option<TransferOutcome> {
        let TransferSize { bytes, direction } = self.dominant_direction();
        if bytes == 0 || self.is_client_limited() {
            return None;
        }
        let size = TransferSize { bytes, direction };
        Some(TransferOutcome {
            transferred: size,
            session_bytes: total_bytes,
            elapsed: self.active_time,
            is_continuation: true,
            limited_by_path: true,
        })
    }
}

impl Prediction {
    /// Returns the record for the status and the closing event; `failed_paths` contains the paths that were tried
    /// before.
    #[must_use]
    pub fn to_choice_record(
        &self,
        failed_paths: &[String],
        predicted: Option<Duration>,
        took: Option<Duration>,
    ) -> ChoiceRecord {
        let SelectionContext { reason: why, predicted_size, .. } = &*self.context;
        let suffix = if failed_paths.is_empty() { String::new() } else { format!("; {}", failed_paths.join(", ")) };
        ChoiceRecord {
            reason: if failed_paths.is_empty() { why.as_str() } else { "retreats" },
            why: format!("{why}{suffix}"),
            likely_bytes: predicted_size.bytes,
            likely_direction: predicted_size.direction.as_str(),
            predicted,
            took,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn outcome_covers_a_response_of_small_and_all_of_large_sessions() {
        let answer = Response { bytes: 4000, wait: SECOND, span: SECOND };
        let small = TransferStats {
            down: 5000,
            up: 600,
            connect_time: SECOND,
            largest_response: Some(answer),
            active_time: 9 * SECOND,
            ..TransferStats::default()
        };
        let outcome = small.outcome().unwrap();
        assert_eq!(
            (outcome.transferred, outcome.session_bytes, outcome.elapsed),
            (TransferSize::down(4000), 4000, 3 * SECOND)
        );
        assert!(TransferStats { largest_response: None, ..small }.outcome().is_none(), "no response arrived");
        let large = TransferStats { up: 1 << 20, ..small };
        let outcome = large.outcome().unwrap();
        assert_eq!((outcome.transferred, outcome.elapsed), (TransferSize::up(1 << 20), 10 * SECOND));
        assert!(!outcome.limited_by_path, "the client sent too little");
        let held = TransferStats { blocked_up: 8 * SECOND, ..large };
        assert!(held.outcome().unwrap().limited_by_path, "the path blocked the upload");
    }

    #[test]
    fn partial_outcome_counts_as_bulk_unless_the_client_blocks() {
        let part = TransferStats { down: BULK_BYTES / 8, active_time: SECOND, ..TransferStats::default() };
        let outcome = part.partial_outcome(BULK_BYTES).unwrap();
        assert_eq!(
            (outcome.transferred.bytes, outcome.session_bytes, outcome.elapsed),
            (BULK_BYTES / 8, BULK_BYTES, SECOND)
        );
        assert!(
            TransferStats { blocked_down: SECOND, ..part }.partial_outcome(BULK_BYTES).is_none(),
            "the client blocked the download"
        );
        assert!(TransferStats { down: 0, ..part }.partial_outcome(BULK_BYTES).is_none());
    }

    #[test]
    fn choice_record_lists_failed_paths() {
        let prefix = "192.0.2.0/24".parse().unwrap();
        let target = Target::parse("192.0.2.7:443", None).unwrap();
        let plan = SelectionContext {
            target,
            prefix,
            predicted_size: TransferSize::up(5000),
            racing_count: 0,
            reason: ChoiceReason::Unmeasured,
        };
        let expected = Prediction { context: Arc::new(plan), candidate: None, completion_time: None };
        let record = expected.to_choice_record(&[], Some(SECOND), None);
        assert_eq!((record.reason, record.likely_bytes, record.likely_direction), ("unmeasured", 5000, "up"));
        assert_eq!((record.predicted, record.took), (Some(SECOND), None));
        let record = expected.to_choice_record(&["osaka failed: refused".to_owned()], None, Some(SECOND));
        assert_eq!((record.reason, record.took), ("retreats", Some(SECOND)));
        assert!(record.why.ends_with("; osaka failed: refused"), "{}", record.why);
    }
}
