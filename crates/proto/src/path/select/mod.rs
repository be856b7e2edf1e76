//! The path of a session: the one with the shortest predicted time, from measurements and from the outcomes of earlier
//! sessions.
//!
//! [`PathChooser::choose`] returns paths from a table by prefix, size and direction. An entry is computed for the first
//! session that needs it, and again after each [`PathChooser::install_map`]. Outcomes are reported by
//! [`PathChooser::record_outcome`] and [`PathChooser::record_failure`]. The layers, in the order of application: the
//! map predicts as if all reports were true; [`Trust`] discounts reports; the history of this relay's sessions corrects
//! both; hysteresis keeps the standing choice; a small budget permits exploration.

mod answer;
mod explore;
mod feedback;

use std::sync::Arc;
use std::time::Duration;

use answer::WeighedPath;
use explore::{ExploreBudget, find_promising, find_recovered};

use super::bounded::BoundedMap;
use super::candidates::{Candidate, Hops, ParetoFronts};
use super::choice::{Choice, ChoiceReason, RankedCandidate};
use super::experience::{BreakerState, CircuitBreaker, PathHistory, SizeClass};
use super::hysteresis::{AvailablePath, StandingChoice, StandingDecision};
use super::map::NetworkMap;
use super::model::RelayCosts;
use super::prefix::Prefix;
use super::ranking::{self, ChoiceKey, RatedPath};
use super::transfer_size::TransferSize;
use super::trust::Trust;
use super::visits::{Visit, VisitRate};

/// Maximum number of paths that are compared for one session: the best paths of the map, and others that were tried.
const MAX_WEIGHED: usize = 16;

/// Maximum number of rankings, one for each prefix, size class and direction.
const MAX_RANKINGS: usize = 1 << 17;

/// Maximum number of paths to prefixes with a history, and of those with a circuit breaker.
const MAX_HISTORIES: usize = 1 << 16;

/// The map overrates a path if its sessions are slower than predicted by this factor.
const OVERRATED: f64 = 1.25;

/// Time that hosts add to a session, in seconds; times below it do not depend on the path.
const HOST_NOISE: f64 = 0.005;

/// Chooses paths. All threads share one instance behind a lock that is held briefly.
#[derive(Debug)]
pub struct PathChooser {
    map: Arc<NetworkMap>,
    fronts: ParetoFronts,
    costs: RelayCosts,
    /// Number of the current map, incremented for each installed map.
    generation: u64,
    rankings: BoundedMap<ChoiceKey, CachedRanking>,
    histories: BoundedMap<PathKey, PathHistory>,
    visits: BoundedMap<Prefix, VisitRate>,
    breakers: BoundedMap<(Prefix, Hops), CircuitBreaker>,
    trust: Trust,
    /// The exploration budget that all prefixes share.
    budget: ExploreBudget,
}

/// The key of a history: sessions with equal keys are comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PathKey {
    prefix: Prefix,
    hops: Hops,
    direction: crate::direction::Direction,
}

/// The rated paths for one choice key, valid for one map, and the standing choice.
#[derive(Debug, Clone, Default)]
struct CachedRanking {
    generation: u64,
    /// The size in bytes that the paths are rated for: that of the first session after a new map.
    bytes: u64,
    rated: Vec<RatedPath>,
    /// The usual visit at the last choice, for which the standing choice's mean prediction holds.
    visit: Visit,
    standing: StandingChoice,
    budget: ExploreBudget,
}

impl CachedRanking {
    /// Converts the standing choice's mean prediction to one for `visit`.
    fn set_visit(&mut self, visit: Visit) {
        let previous_visit = std::mem::replace(&mut self.visit, visit);
        let current = self.rated.iter().find(|rated| Some(rated.hops) == self.standing.current());
        if let Some(current) = current.filter(|_| previous_visit != visit) {
            self.standing.rescale((current.log_gain * (previous_visit.openness() - visit.openness())).exp());
        }
    }
}

impl PathChooser {
    /// Creates a chooser without measurements or history.
    #[must_use]
    pub fn new(map: Arc<NetworkMap>, costs: RelayCosts) -> Self {
        let trust = Trust::default();
        Self {
            fronts: ParetoFronts::compute(&map, &costs, &trust),
            map,
            costs,
            generation: 1,
            rankings: BoundedMap::new(MAX_RANKINGS),
            histories: BoundedMap::new(MAX_HISTORIES),
            visits: BoundedMap::new(MAX_HISTORIES),
            breakers: BoundedMap::new(MAX_HISTORIES),
            trust,
            budget: ExploreBudget::global(),
        }
    }

    /// Installs a new map. This takes a tenth of a second for a thousand relays. To avoid blocking sessions for that
    /// time, run [`ParetoFronts::compute`] in parallel and pass its result to [`PathChooser::install_map`].
    pub fn set_map(&mut self, map: Arc<NetworkMap>) {
        let fronts = ParetoFronts::compute(&map, &self.costs, &self.trust);
        self.install_map(map, fronts);
    }

    /// Installs a new map and the `fronts` computed from it. If relays have other numbers than in the previous map, all
    /// history is dropped.
    pub fn install_map(&mut self, map: Arc<NetworkMap>, fronts: ParetoFronts) {
        if !self.map.is_prefix_of(&map) {
            self.rankings.clear();
            self.histories.clear();
            self.visits.clear();
            self.breakers.clear();
            self.trust = Trust::default();
        }
        self.map = map;
        self.fronts = fronts;
        self.generation += 1;
    }

    /// The current map of the network.
    #[must_use]
    pub const fn map(&self) -> &Arc<NetworkMap> {
        &self.map
    }

    /// The costs of relays, for [`ParetoFronts::compute`].
    #[must_use]
    pub const fn costs(&self) -> &RelayCosts {
        &self.costs
    }

    /// The trust in relays, for [`ParetoFronts::compute`] and for status.
    #[must_use]
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Chooses the paths for a session to `prefix` of `predicted_size`.
    pub fn choose(&mut self, prefix: Prefix, predicted_size: TransferSize, now: Duration) -> Choice {
        let choice_key = ChoiceKey::new(prefix, predicted_size);
        self.refresh_ranking(choice_key, predicted_size);
        let (available, unavailable) = self.weigh_all(&choice_key, now);
        let is_direct = |path: &WeighedPath| path.rated.hops.is_direct();
        let is_rated = available.iter().chain(&unavailable).any(is_direct);
        let direct_state = self.breaker_state(prefix, Hops::DIRECT, now);
        // Without measurements direct has no rating, so only a race can try it again after a failure.
        let retries_direct = !is_rated && !available.is_empty() && direct_state == Some(BreakerState::HalfOpen);
        if retries_direct {
            self.begin_trial(prefix, Hops::DIRECT, now);
        }
        let is_unknown = !is_rated && direct_state.is_none();
        if is_unknown || retries_direct || (available.is_empty() && unavailable.is_empty()) {
            return Choice {
                ranking: self.rank(&available, None),
                race: true,
                reason: ChoiceReason::Unmeasured,
                previous: None,
            };
        }
        self.budget.on_session();
        let answer = self.rankings.get_or_insert_with(choice_key, CachedRanking::default);
        let may_explore = answer.budget.on_session();
        if available.is_empty() {
            return self.last_resort(&choice_key, &unavailable, now);
        }
        let standing_hops = answer.standing.current();
        let options: Vec<AvailablePath> = available.iter().map(WeighedPath::available).collect();
        let (chosen, verdict) = answer.standing.decide(&options, now);
        let previous = standing_hops.filter(|standing_hops| *standing_hops != available[chosen].rated.hops);
        let may_explore = may_explore && self.budget.can_explore();
        let promising = || {
            may_explore.then(|| find_promising(&available, &unavailable, &available[chosen], &answer.budget)).flatten()
        };
        // A session that changes the standing choice is reported as such, so it does not explore.
        let explored = if previous.is_none() {
            find_recovered(&unavailable, available[chosen].predicted).or_else(promising)
        } else {
            None
        };
        // Direct is never disabled here, so that no session is slower than direct for long.
        if let (StandingDecision::Degraded, Some(previous)) =
            (verdict, previous.filter(|previous| !previous.is_direct()))
        {
            self.trip_breaker(prefix, previous, self.is_overrated(&choice_key, previous, now), now);
        }
        if let Some(path) = explored {
            return self.explore_with(&choice_key, path, &available, now);
        }
        let choice_reason = self.reason(&choice_key, &available, chosen, verdict, previous);
        Choice {
            ranking: self.rank(&available, Some(&available[chosen])),
            race: false,
            reason: choice_reason,
            previous: previous.map(Hops::to_candidate),
        }
    }

    /// The prediction for one path by map, trust and history; `None` if the map lacks one of its sections.
    #[must_use]
    pub fn predict(
        &self,
        prefix: Prefix,
        candidate: &Candidate,
        predicted_size: TransferSize,
        now: Duration,
    ) -> Option<RankedCandidate> {
        Some(self.weigh_hops(prefix, Hops::from_candidate(candidate)?, predicted_size, now)?.to_ranked())
    }

    /// The standing choices: prefix, direction and size class, and path.
    pub fn standing_choices(&self) -> impl Iterator<Item = (Prefix, TransferSize, Candidate)> {
        self.rankings.iter().filter_map(|(choice_key, answer)| {
            answer.standing.current().map(|hops| (choice_key.prefix, choice_key.transfer(), hops.to_candidate()))
        })
    }

    /// Computes the ranking from the current map, for the size of the first session that needs it. The standing choice
    /// is included even if other paths are better now.
    fn refresh_ranking(&mut self, choice_key: ChoiceKey, predicted_size: TransferSize) {
        let visit = self.usual_visit(choice_key.prefix);
        let answer = self.rankings.get_or_insert_with(choice_key, CachedRanking::default);
        answer.set_visit(visit);
        if answer.generation == self.generation {
            return;
        }
        (answer.generation, answer.bytes) = (self.generation, predicted_size.bytes);
        let rated = ranking::rank(&self.map, &self.fronts, &self.costs, &choice_key, predicted_size);
        let previous = std::mem::replace(&mut answer.rated, rated);
        let is_tried = |hops: &Hops| {
            let path_key = PathKey { prefix: choice_key.prefix, hops: *hops, direction: choice_key.direction };
            self.histories.peek(&path_key).is_some()
        };
        let tried_hops = previous.iter().map(|rated| rated.hops).filter(is_tried);
        for hops in answer.standing.current().into_iter().chain(tried_hops) {
            let is_rated = answer.rated.iter().any(|rated| rated.hops == hops);
            if !is_rated && answer.rated.len() < MAX_WEIGHED {
                let rate = ranking::rate_path(&self.map, &self.costs, hops, choice_key.prefix, predicted_size);
                answer.rated.extend(rate);
            }
        }
    }

    /// The usable paths, the best first, and the paths that are out of use or need a trial.
    fn weigh_all(&self, choice_key: &ChoiceKey, now: Duration) -> (Vec<WeighedPath>, Vec<WeighedPath>) {
        let rated = self.rankings.peek(choice_key).map_or(&[][..], |answer| &answer.rated);
        let openness = self.usual_visit(choice_key.prefix).openness();
        let mut available: Vec<WeighedPath> = Vec::with_capacity(rated.len());
        let mut unavailable = Vec::new();
        for rated in rated {
            let path = self.weigh(choice_key.prefix, choice_key.transfer(), rated, openness, now);
            match self.breaker_state(choice_key.prefix, rated.hops, now) {
                None | Some(BreakerState::Closed) => available.push(path),
                Some(BreakerState::HalfOpen) => unavailable.push(WeighedPath { is_half_open: true, ..path }),
                Some(BreakerState::Open) => unavailable.push(path),
            }
        }
        available.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
        unavailable.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
        (available, unavailable)
    }

    fn weigh_hops(
        &self,
        prefix: Prefix,
        hops: Hops,
        predicted_size: TransferSize,
        now: Duration,
    ) -> Option<WeighedPath> {
        let rated = ranking::rate_path(&self.map, &self.costs, hops, prefix, predicted_size)?;
        Some(self.weigh(prefix, predicted_size, &rated, self.usual_visit(prefix).openness(), now))
    }

    /// The prediction for one path and a session with windows of this `openness`.
    fn weigh(
        &self,
        prefix: Prefix,
        predicted_size: TransferSize,
        first_visit: &RatedPath,
        openness: f64,
        now: Duration,
    ) -> WeighedPath {
        let (log_distrust, class) = (first_visit.log_distrust(&self.trust), SizeClass::for_bytes(predicted_size.bytes));
        let rated = first_visit.at_openness(openness);
        let path_key = PathKey { prefix, hops: rated.hops, direction: predicted_size.direction };
        let nearest =
            self.histories.peek(&path_key).and_then(|history| history.nearest(class).map(|nearest| (history, nearest)));
        let Some((history, (experience, share))) = nearest else {
            let confidence = rated.confidence * (-log_distrust).exp();
            return WeighedPath {
                rated,
                predicted: rated.predicted * log_distrust.exp(),
                confidence,
                experience: 0.0,
                is_half_open: false,
                is_opening: false,
            };
        };
        let class_rated = if experience.class() == class {
            *first_visit
        } else {
            let class_size = TransferSize { bytes: experience.class().bytes(), ..predicted_size };
            ranking::rate_path(&self.map, &self.costs, rated.hops, prefix, class_size).unwrap_or(*first_visit)
        };
        let log_gain = class_rated.log_gain;
        let map_log = to_log(class_rated.at_openness(openness).class_predicted);
        let sessions = experience.weight(now) * share;
        let log_excess = experience.predict(openness, log_gain, map_log + log_distrust, share, now) - map_log;
        WeighedPath {
            rated,
            predicted: from_log(to_log(rated.predicted) + log_excess),
            confidence: (rated.confidence * (-log_distrust).exp()).max(answer::confidence_of(sessions)),
            experience: sessions,
            is_half_open: false,
            is_opening: openness > 0.0 && rated.log_gain > 0.0 && history.visits.is_opening(now),
        }
    }

    /// Whether sessions to `prefix` are usually first or later visits.
    fn usual_visit(&self, prefix: Prefix) -> Visit {
        self.visits.peek(&prefix).copied().unwrap_or_default().usual()
    }

    /// The state of the path's breaker; `None` if the path has never failed.
    fn breaker_state(&self, prefix: Prefix, hops: Hops, now: Duration) -> Option<BreakerState> {
        self.breakers.peek(&(prefix, hops)).map(|breaker| breaker.state(now))
    }

    fn trip_breaker(&mut self, prefix: Prefix, hops: Hops, needs_trial: bool, now: Duration) {
        self.breakers.get_or_insert_with((prefix, hops), CircuitBreaker::default).trip(needs_trial, now);
    }

    fn begin_trial(&mut self, prefix: Prefix, hops: Hops, now: Duration) {
        self.breakers.get_or_insert_with((prefix, hops), CircuitBreaker::default).begin_trial(now);
    }

    /// Whether sessions were much slower than the map predicts ([`OVERRATED`]). If so, the map alone does not justify a
    /// return to the path.
    fn is_overrated(&self, choice_key: &ChoiceKey, hops: Hops, now: Duration) -> bool {
        let path_key = PathKey { prefix: choice_key.prefix, hops, direction: choice_key.direction };
        let history = self.histories.peek(&path_key);
        history.is_some_and(|history| history.log_excess(choice_key.class, now) > OVERRATED.ln())
    }

    fn explore_with(
        &mut self,
        choice_key: &ChoiceKey,
        path: WeighedPath,
        available: &[WeighedPath],
        now: Duration,
    ) -> Choice {
        self.budget.spend();
        if let Some(answer) = self.rankings.get(choice_key) {
            answer.budget.spend();
        }
        if path.is_half_open {
            self.begin_trial(choice_key.prefix, path.rated.hops, now);
        }
        let figures = self.comparison(choice_key, &path, Some(&available[0]));
        Choice {
            ranking: self.rank(available, Some(&path)),
            race: false,
            reason: ChoiceReason::Explores(figures),
            previous: None,
        }
    }
}

/// The time in seconds, from its natural logarithm.
fn from_log(log: f64) -> f64 {
    (log.exp() - HOST_NOISE).max(1e-5)
}

/// The logarithm of a time in seconds. The time of hosts is added, so that differences between very short times do not
/// count.
fn to_log(seconds: f64) -> f64 {
    (seconds + HOST_NOISE).ln()
}

#[cfg(test)]
mod tests;
