//! How a session comes out on the way that the relay has chosen for it: told to the chooser now and then, and at the end.

use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::ChoiceRecord;

use super::Session;
use crate::choose::{PathSelector, Prediction, TransferStats};
use crate::pump::FlowStats;

/// How long bytes have flowed before the chooser is told of a session that goes on.
const FEEDBACK_INTERVAL: Duration = Duration::from_secs(3);

/// One chosen way, and what has come by it.
#[derive(Debug)]
pub struct PathFeedback {
    expected: Arc<Prediction>,
    /// The ways that were tried before.
    left: Vec<String>,
    /// From the client's wish until bytes could go.
    connect: Duration,
    /// What the counters said when it began,
    begun: TransferStats,
    /// and when the chooser was told of a part of it.
    told: Option<TransferStats>,
}

impl PathFeedback {
    /// Begins now.
    pub fn new((expected, left): (Arc<Prediction>, Vec<String>), connect: Duration, stats: &FlowStats) -> Self {
        Self { expected, left, connect, begun: read_stats(stats), told: None }
    }

    /// All that has come so far.
    fn transfer_stats(&self, stats: &FlowStats) -> TransferStats {
        TransferStats {
            connect_time: self.connect,
            largest_response: stats.largest_response(),
            ..read_stats(stats).since(&self.begun)
        }
    }

    /// Tells of what has come since the last time, when that is enough to tell.
    fn report_partial(&mut self, stats: &FlowStats, choosing: &PathSelector) {
        let now = read_stats(stats);
        let part = now.since(self.told.as_ref().unwrap_or(&self.begun));
        let carried = self.transfer_stats(stats);
        if part.active_time < FEEDBACK_INTERVAL || !carried.is_bulk() {
            return;
        }
        let of = carried.dominant_direction().bytes.max(self.expected.context.likely.bytes);
        if let Some(outcome) = part.partial_outcome(of) {
            choosing.record_outcome(&self.expected, &outcome);
        }
        self.told = Some(now);
    }

    /// Tells how it came out.
    pub fn finish(self, stats: &FlowStats, choosing: &PathSelector) -> ChoiceRecord {
        let carried = self.transfer_stats(stats);
        choosing.record_transfer(&self.expected.context, &carried);
        let outcome = carried.outcome();
        let predicted = outcome.as_ref().and_then(|outcome| choosing.predict(&self.expected, outcome));
        match &self.told {
            None => outcome.iter().for_each(|outcome| choosing.record_outcome(&self.expected, outcome)),
            Some(told) => {
                let rest = read_stats(stats).since(told);
                let rest = if rest.is_bulk() { rest.partial_outcome(carried.dominant_direction().bytes) } else { None };
                rest.iter().for_each(|outcome| choosing.record_outcome(&self.expected, outcome));
            }
        }
        self.expected.to_choice_record(&self.left, predicted, outcome.map(|outcome| outcome.elapsed))
    }

    /// The same while it goes on.
    fn choice_record(&self) -> ChoiceRecord {
        self.expected.to_choice_record(&self.left, self.expected.completion_time, None)
    }
}

fn read_stats(stats: &FlowStats) -> TransferStats {
    TransferStats {
        down: stats.bytes(Direction::Down),
        up: stats.bytes(Direction::Up),
        active_time: stats.active_time(),
        blocked_down: stats.blocked_for(Direction::Down),
        blocked_up: stats.blocked_for(Direction::Up),
        ..TransferStats::default()
    }
}

impl Session {
    /// Notes that bytes can go by the way that was chosen, and how the one before came out.
    pub(super) fn on_path_ready(&self, connect: Duration) {
        let next = self.dial_context.prediction().map(|chosen| PathFeedback::new(chosen, connect, &self.stats));
        let before = self.feedback.replace(next);
        self.stats.on_path_ready();
        if let Some(before) = before {
            before.finish(&self.stats, &self.context.shared().path_selector);
        }
    }

    /// Tells the chooser how it goes.
    pub(super) fn report_progress(&self) {
        if let Some(feedback) = &mut *self.feedback.borrow_mut() {
            feedback.report_partial(&self.stats, &self.context.shared().path_selector);
        }
    }

    /// Why this way, and what is predicted.
    pub(super) fn choice(&self) -> Option<ChoiceRecord> {
        self.feedback.borrow().as_ref().map(PathFeedback::choice_record)
    }

    /// The same, and what came; or, where no way stood, which one was tried last.
    pub(super) fn final_choice(&self) -> Option<ChoiceRecord> {
        match self.feedback.take() {
            Some(feedback) => Some(feedback.finish(&self.stats, &self.context.shared().path_selector)),
            None => self.dial_context.prediction().map(|(expected, left)| expected.to_choice_record(&left, None, None)),
        }
    }
}
