//! Feedback to the path chooser: outcomes of sessions, and failed paths.

use std::time::Duration;

use super::{PathChooser, PathKey, from_log, to_log};
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::TransferOutcome;
use crate::path::experience::{BreakerState, PathHistory, RatedSession, SizeClass};
use crate::path::prefix::Prefix;
use crate::path::ranking::{self, ChoiceKey, RatedPath};
use crate::path::transfer_size::TransferSize;
use crate::path::visits::VisitRate;

impl PathChooser {
    /// Records the outcome of a session to `prefix` through `candidate`, or of a part of it.
    pub fn record_outcome(&mut self, prefix: Prefix, candidate: &Candidate, outcome: &TransferOutcome, now: Duration) {
        let Some(hops) = Hops::from_candidate(candidate) else { return };
        let session = TransferSize { bytes: outcome.session_bytes, ..outcome.transferred };
        let Some(rated) = ranking::rate_path(&self.map, &self.costs, hops, prefix, session) else {
            return self.record_success(prefix, hops);
        };
        let class = SizeClass::for_bytes(session.bytes);
        let path_key = PathKey { prefix, hops, direction: session.direction };
        let openness = self.record_visit(path_key, outcome, now);
        let is_available = self.breaker_state(prefix, hops, now).is_none_or(|state| state == BreakerState::Closed);
        let rated_session = RatedSession {
            log: to_log(class_elapsed(outcome, &rated, class)),
            openness,
            promised: to_log(rated.at_openness(openness).class_predicted),
            expected: to_log(self.weigh(prefix, session, &rated, openness, now).predicted)
                + to_log(rated.class_predicted)
                - to_log(rated.predicted),
        };
        if !outcome.limited_by_path && rated_session.log > rated_session.expected {
            return;
        }
        let experience = self.histories.get_or_insert_with(path_key, PathHistory::default).entry(class);
        let disappoints = if is_available {
            experience.record(&rated_session, now)
        } else {
            experience.record_trial(&rated_session, now)
        };
        self.update_trust(&rated, path_key, class, rated_session.log - rated_session.promised, now);
        if (disappoints || !is_available) && self.has_better(prefix, hops, session, now) {
            self.trip_breaker(prefix, hops, true, now);
        } else {
            self.record_success(prefix, hops);
        }
    }

    /// Records that a session to `prefix` through `candidate` could not be established, or was broken by the path. The
    /// path is out of use for a pause, which doubles each time.
    pub fn record_failure(&mut self, prefix: Prefix, candidate: &Candidate, now: Duration) {
        if let Some(hops) = Hops::from_candidate(candidate) {
            self.trip_breaker(prefix, hops, true, now);
        }
    }

    /// Records the times of a session. Returns the openness of the windows of its path; for a part of a session, that
    /// of a usual visit to the prefix.
    fn record_visit(&mut self, path_key: PathKey, outcome: &TransferOutcome, now: Duration) -> f64 {
        let rate = self.visits.get_or_insert_with(path_key.prefix, VisitRate::default);
        let visits = &mut self.histories.get_or_insert_with(path_key, PathHistory::default).visits;
        if outcome.is_continuation {
            rate.extend(now);
            visits.extend(now);
            return rate.usual().openness();
        }
        let start = now.saturating_sub(outcome.elapsed);
        rate.record(start, now);
        visits.record(start, now);
        // The direct path has no connections that are used again.
        if path_key.hops.is_direct() { 0.0 } else { visits.openness() }
    }

    fn record_success(&mut self, prefix: Prefix, hops: Hops) {
        if let Some(breaker) = self.breakers.get(&(prefix, hops)) {
            breaker.record_success();
        }
    }

    /// Whether another path is predicted to be faster than this path is now.
    fn has_better(&mut self, prefix: Prefix, hops: Hops, predicted_size: TransferSize, now: Duration) -> bool {
        let choice_key = ChoiceKey::new(prefix, predicted_size);
        self.refresh_ranking(choice_key, predicted_size);
        let (available, _) = self.weigh_all(&choice_key, now);
        let predicted = self.weigh_hops(prefix, hops, predicted_size, now).map_or(f64::INFINITY, |path| path.predicted);
        available.first().is_some_and(|best| best.predicted < predicted)
    }

    /// Compares the outcome with the reports. The excess of the direct path is subtracted: where direct is slow as
    /// well, the target is the limit.
    fn update_trust(&mut self, rated: &RatedPath, path_key: PathKey, class: SizeClass, log_excess: f64, now: Duration) {
        let direct = self.histories.peek(&PathKey { hops: Hops::DIRECT, ..path_key });
        let direct_excess = direct.map_or(0.0, |direct| direct.log_excess(class, now).max(0.0));
        let reporters: Vec<u32> = rated.reporters().collect();
        self.trust.record(&reporters, rated.hops.nodes().len() + 1, log_excess - direct_excess);
    }
}

/// The duration that a session of the class's representative size would have at the speed of this session, in seconds.
fn class_elapsed(outcome: &TransferOutcome, rated: &RatedPath, class: SizeClass) -> f64 {
    let elapsed = outcome.elapsed.as_secs_f64();
    if outcome.is_continuation {
        return rated.first_byte + elapsed * class.bytes() as f64 / outcome.transferred.bytes.max(1) as f64;
    }
    from_log(to_log(elapsed) + to_log(rated.class_predicted) - to_log(rated.predicted))
}
