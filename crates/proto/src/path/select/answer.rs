//! Results of the path chooser: paths with their current predictions, and the reasons.

use std::time::Duration;

use super::PathChooser;
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::{Choice, ChoiceReason, PathComparison, RankedCandidate};
use crate::path::hysteresis::{AvailablePath, StandingDecision};
use crate::path::prefix::Prefix;
use crate::path::ranking::{ChoiceKey, RatedPath, to_duration};
use crate::path::transfer_size::TransferSize;

/// Maximum number of paths in a choice, beside an unmeasured direct path.
pub(super) const MAX_RANKING: usize = 4;

/// Share by which a path with confidence 0 may be faster than predicted.
const MAX_OPTIMISM: f64 = 0.5;

/// A path with this experience, in sessions, has been tried: only its prediction counts, and no longer the most
/// optimistic prediction by the map.
const TRIED: f64 = 0.5;

/// The experience, in sessions, at which a path counts as better or worse than another by its own sessions.
const EXPERIENCED: f64 = 1.0;

/// The confidence in a prediction with this experience, in sessions.
pub(super) fn confidence_of(experience: f64) -> f64 {
    experience / (experience + 1.0)
}

/// A path with its current prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct WeighedPath {
    pub rated: RatedPath,
    /// Predicted duration in seconds.
    pub predicted: f64,
    pub confidence: f64,
    /// Number of sessions that the prediction is based on; older ones, and those of other size classes, count less.
    pub experience: f64,
    /// The path was out of use and needs a trial.
    pub is_half_open: bool,
    /// The windows of its sections are opening: the next session will be faster than the last one.
    pub is_opening: bool,
}

impl WeighedPath {
    pub(super) fn is_experienced(&self) -> bool {
        self.experience >= EXPERIENCED
    }

    pub(super) fn available(&self) -> AvailablePath {
        AvailablePath { hops: self.rated.hops, predicted: self.predicted, is_experienced: self.is_experienced() }
    }

    pub(super) fn to_ranked(self) -> RankedCandidate {
        RankedCandidate {
            candidate: self.rated.hops.to_candidate(),
            predicted: to_duration(self.predicted),
            rate: self.rated.rate,
            confidence: self.confidence,
        }
    }

    /// The predicted time if the path is as much faster as its uncertainty permits. For a path that has been tried,
    /// this is the uncertainty of its sessions, which vary even if its sections have been measured exactly.
    pub(super) fn optimistic(&self) -> f64 {
        let optimistic_time = |confidence: f64| self.predicted * (1.0 - MAX_OPTIMISM * (1.0 - confidence));
        if self.experience >= TRIED {
            optimistic_time(confidence_of(self.experience))
        } else {
            optimistic_time(self.confidence).min(self.rated.optimistic)
        }
    }
}

impl PathChooser {
    /// Returns `first`, then the other paths by prediction; `direct` is always included.
    pub(super) fn rank(&self, available: &[WeighedPath], first: Option<&WeighedPath>) -> Vec<RankedCandidate> {
        let first_hops = first.map(|first| first.rated.hops);
        let others = available.iter().filter(|path| Some(path.rated.hops) != first_hops);
        let mut paths: Vec<WeighedPath> = first.into_iter().chain(others).copied().collect();
        let direct_index = paths.iter().position(|path| path.rated.hops.is_direct());
        if let Some(index) = direct_index.filter(|index| *index >= MAX_RANKING) {
            paths.swap(index, MAX_RANKING - 1);
        }
        paths.truncate(MAX_RANKING);
        let mut ranked: Vec<RankedCandidate> = paths.iter().map(|path| path.to_ranked()).collect();
        if direct_index.is_none() {
            let unknown = RankedCandidate {
                candidate: Candidate::direct(),
                predicted: Duration::ZERO,
                rate: 0.0,
                confidence: 0.0,
            };
            ranked.push(unknown);
        }
        ranked
    }

    /// The choice while every path is out of use, so that the session fails unless one of them works again: a path that
    /// needs a trial, or else direct, and then the others.
    pub(super) fn last_resort(&mut self, choice_key: &ChoiceKey, unavailable: &[WeighedPath], now: Duration) -> Choice {
        let half_open = unavailable.iter().find(|path| path.is_half_open);
        self.begin_trial(choice_key.prefix, half_open.map_or(Hops::DIRECT, |path| path.rated.hops), now);
        let first = half_open.or_else(|| unavailable.iter().find(|path| path.rated.hops.is_direct()));
        let mut ranking = self.rank(unavailable, first);
        if first.is_none() {
            // An unmeasured direct path is the last of a ranking.
            ranking.rotate_right(1);
        }
        let figures = PathComparison {
            name: ranking[0].candidate.name(&self.map),
            predicted: ranking[0].predicted,
            bytes: self.rated_bytes(choice_key),
            other: None,
        };
        Choice { ranking, race: false, reason: ChoiceReason::Only(figures), previous: None }
    }

    pub(super) fn reason(
        &self,
        choice_key: &ChoiceKey,
        available: &[WeighedPath],
        chosen_index: usize,
        verdict: StandingDecision,
        previous: Option<Hops>,
    ) -> ChoiceReason {
        let chosen = &available[chosen_index];
        let compared = if chosen_index > 0 {
            Some(&available[0])
        } else if chosen.rated.hops.is_direct() {
            available.get(1)
        } else {
            available.iter().find(|path| path.rated.hops.is_direct())
        };
        let mut figures = self.comparison(choice_key, chosen, compared);
        if let (StandingDecision::Degraded | StandingDecision::Unavailable, Some(previous)) = (verdict, previous) {
            let previous_path = available.iter().find(|path| path.rated.hops == previous);
            let predicted = previous_path.map(|path| to_duration(path.predicted));
            figures.other = Some((previous.to_candidate().name(&self.map), predicted));
            return ChoiceReason::Retreats(figures);
        }
        match verdict {
            StandingDecision::Kept => ChoiceReason::Kept(figures),
            _ if available.len() == 1 => ChoiceReason::Only(figures),
            _ => ChoiceReason::Best(figures),
        }
    }

    /// The size in bytes that the predictions of the ranking are for.
    fn rated_bytes(&self, choice_key: &ChoiceKey) -> u64 {
        self.rankings.peek(choice_key).map_or(choice_key.bytes(), |answer| answer.bytes)
    }

    pub(super) fn comparison(
        &self,
        choice_key: &ChoiceKey,
        chosen: &WeighedPath,
        compared: Option<&WeighedPath>,
    ) -> PathComparison {
        let name = |path: &WeighedPath| path.rated.hops.to_candidate().name(&self.map);
        PathComparison {
            name: name(chosen),
            predicted: to_duration(chosen.predicted),
            bytes: self.rated_bytes(choice_key),
            other: compared.map(|path| (name(path), Some(to_duration(path.predicted)))),
        }
    }
}

impl PathChooser {
    /// The candidates for such a session according to the latest ranking, the best first, each with whether it is out
    /// of use.
    #[must_use]
    pub fn ranked_candidates(
        &self,
        prefix: Prefix,
        predicted_size: TransferSize,
        now: Duration,
    ) -> Vec<(RankedCandidate, bool)> {
        let (available, unavailable) = self.weigh_all(&ChoiceKey::new(prefix, predicted_size), now);
        let available = available.iter().map(|path| (path.to_ranked(), false));
        available.chain(unavailable.iter().map(|path| (path.to_ranked(), true))).collect()
    }
}
