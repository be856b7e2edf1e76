//! Which path a session takes: the one that is predicted to be the soonest, by what is measured and, before that, by what
//! came.
//!
//! [`Chooser::choose`] answers from a table by prefix, size and direction; the table is filled when somebody goes there, and
//! again after each [`Chooser::adopt`]. What came is told by [`Chooser::came`] and [`Chooser::failed`]. The layers, from the
//! bottom up: the map says what a path would take if all reports were true; [`Trust`] doubts reports; own experience
//! corrects both; hysteresis keeps what was chosen; a small budget explores.

mod answer;
mod explore;
mod outlook;
mod told;

use std::sync::Arc;
use std::time::Duration;

use answer::Weighed;
use explore::{Budget, explore, go_back};

use super::bounded::Bounded;
use super::candidates::{Candidate, Fronts, Hops};
use super::choice::{Choice, Ranked, Why};
use super::experience::{Access, Class, Past, Pause};
use super::hysteresis::{Open, Stand, Verdict};
use super::likely::Likely;
use super::map::Map;
use super::model::Costs;
use super::prefix::Prefix;
use super::ranking::{self, Question, Rated};
use super::trust::Trust;

/// Paths that are weighed for one session, at most: those that the map has for the best, and others that were tried.
const MOST_TRIED: usize = 16;

/// Prefixes and sizes with an answer, at most.
const MOST_QUESTIONS: usize = 1 << 17;

/// Paths to prefixes with an experience, at most; and as many that are out.
const MOST_EXPERIENCES: usize = 1 << 16;

/// A path that came so much slower than the map says is overrated by it.
const OVERRATED: f64 = 1.25;

/// Times below this are the work of hosts: they say nothing of a path.
const NOISE: f64 = 0.005;

/// Chooses paths. One for all threads, behind a short lock.
#[derive(Debug)]
pub struct Chooser {
    map: Arc<Map>,
    fronts: Fronts,
    costs: Costs,
    /// Counts the maps.
    generation: u64,
    answers: Bounded<Question, Answer>,
    experiences: Bounded<Way, Past>,
    pauses: Bounded<(Prefix, Hops), Pause>,
    trust: Trust,
    /// What all prefixes may explore.
    budget: Budget,
}

/// A path to a prefix, as far as sessions tell of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    prefix: Prefix,
    hops: Hops,
    direction: crate::direction::Direction,
}

/// The answer to a question, as long as the map is the same, and the standing choice.
#[derive(Debug, Clone, Default)]
struct Answer {
    generation: u64,
    rated: Vec<Rated>,
    stand: Stand,
    budget: Budget,
}

impl Chooser {
    /// One that knows nothing but who it is.
    #[must_use]
    pub fn new(map: Arc<Map>, costs: Costs) -> Self {
        let trust = Trust::default();
        Self {
            fronts: Fronts::of(&map, &costs, &trust),
            map,
            costs,
            generation: 1,
            answers: Bounded::new(MOST_QUESTIONS),
            experiences: Bounded::new(MOST_EXPERIENCES),
            pauses: Bounded::new(MOST_EXPERIENCES),
            trust,
            budget: Budget::of_all(),
        }
    }

    /// Goes by a new map from now on. Takes a tenth of a second with a thousand relays: where sessions wait meanwhile, work
    /// out [`Fronts::of`] beside them and [`Chooser::adopt`] both.
    pub fn recompute(&mut self, map: Arc<Map>) {
        let fronts = Fronts::of(&map, &self.costs, &self.trust);
        self.adopt(map, fronts);
    }

    /// Goes by a new map, of which `fronts` were worked out, from now on. Where its relays have other numbers, everything
    /// experienced is forgotten.
    pub fn adopt(&mut self, map: Arc<Map>, fronts: Fronts) {
        if !self.map.is_like(&map) {
            self.answers.clear();
            self.experiences.clear();
            self.pauses.clear();
            self.trust = Trust::default();
        }
        self.map = map;
        self.fronts = fronts;
        self.generation += 1;
    }

    /// The map it goes by.
    #[must_use]
    pub const fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// What relays cost, for [`Fronts::of`].
    #[must_use]
    pub const fn costs(&self) -> &Costs {
        &self.costs
    }

    /// How far relays are believed, for [`Fronts::of`] and for status.
    #[must_use]
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The ways for a session to `prefix` that will probably carry `likely`.
    pub fn choose(&mut self, prefix: Prefix, likely: Likely, now: Duration) -> Choice {
        let question = Question::of(prefix, likely);
        self.refresh(question);
        let (open, out) = self.weigh(&question, now);
        let is_direct = |way: &Weighed| way.rated.hops.is_direct();
        let direct_is_known = open.iter().chain(&out).any(is_direct) || self.has_failed(prefix, Hops::DIRECT);
        if !direct_is_known || (open.is_empty() && out.is_empty()) {
            return Choice { ways: self.ways(&open, None), race: true, why: Why::Unmeasured, former: None };
        }
        self.budget.earns();
        let Some(answer) = self.answers.get(&question) else { return self.only(&question, &open) };
        let may_explore = answer.budget.earns();
        if open.is_empty() {
            self.pauses.entry((prefix, Hops::DIRECT), Pause::default).tries(now);
            return self.only(&question, &out);
        }
        let before = answer.stand.kept();
        let options: Vec<Open> = open.iter().map(Weighed::open).collect();
        let (at, verdict) = answer.stand.decide(&options, now);
        let former = before.filter(|before| *before != open[at].rated.hops);
        let may_explore = may_explore && self.budget.allows();
        let explores = || may_explore.then(|| explore(&open, &out, &open[at])).flatten();
        // A session that changes to another path tells so, and tries nothing else.
        let explored = if former.is_none() { go_back(&out, open[at].predicted).or_else(explores) } else { None };
        if let (Verdict::Degraded, Some(former)) = (verdict, former) {
            self.pause(prefix, former, self.is_overrated(&question, former, now), now);
        }
        if let Some(way) = explored {
            return self.explores(&question, way, &open, now);
        }
        let why = self.why(&question, &open, at, verdict, former);
        Choice { ways: self.ways(&open, Some(&open[at])), race: false, why, former: former.map(Hops::candidate) }
    }

    /// What is predicted for one path: as the map, trust and own experience have it. None where a section of it is not known.
    #[must_use]
    pub fn predict(&self, prefix: Prefix, candidate: &Candidate, likely: Likely, now: Duration) -> Option<Ranked> {
        let hops = Hops::of(candidate)?;
        let rated = ranking::rate(&self.map, &self.costs, hops, prefix, likely)?;
        Some(self.weighed(prefix, likely, &rated, now).ranked())
    }

    /// The standing choices: of which prefix, direction and size in bytes, and which path.
    pub fn standing(&self) -> impl Iterator<Item = (Prefix, Likely, Candidate)> {
        self.answers.iter().filter_map(|(question, answer)| {
            answer.stand.kept().map(|kept| (question.prefix, question.likely(), kept.candidate()))
        })
    }

    /// Sees to it that there is an answer by the present map. What was chosen is in it, even if others are better now.
    fn refresh(&mut self, question: Question) {
        let answer = self.answers.entry(question, Answer::default);
        if answer.generation == self.generation {
            return;
        }
        answer.generation = self.generation;
        let rated = ranking::rank(&self.map, &self.fronts, &self.costs, &question);
        let before = std::mem::replace(&mut answer.rated, rated);
        let is_tried = |hops: &Hops| {
            let way = Way { prefix: question.prefix, hops: *hops, direction: question.direction };
            self.experiences.peek(&way).is_some()
        };
        let tried = before.iter().map(|rated| rated.hops).filter(is_tried);
        for hops in answer.stand.kept().into_iter().chain(tried) {
            let is_there = answer.rated.iter().any(|rated| rated.hops == hops);
            if !is_there && answer.rated.len() < MOST_TRIED {
                let rate = ranking::rate(&self.map, &self.costs, hops, question.prefix, question.likely());
                answer.rated.extend(rate);
            }
        }
    }

    /// The paths that may be taken, the best first, and those that are out or have to show that they work again.
    fn weigh(&self, question: &Question, now: Duration) -> (Vec<Weighed>, Vec<Weighed>) {
        let rated = self.answers.peek(question).map_or(&[][..], |answer| &answer.rated);
        let mut open: Vec<Weighed> = Vec::with_capacity(rated.len());
        let mut out = Vec::new();
        for rated in rated {
            let weighed = self.weighed(question.prefix, question.likely(), rated, now);
            match self.pauses.peek(&(question.prefix, rated.hops)).map_or(Access::Open, |pause| pause.access(now)) {
                Access::Open => open.push(weighed),
                Access::Trial => out.push(Weighed { on_trial: true, ..weighed }),
                Access::Out => out.push(weighed),
            }
        }
        open.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
        out.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
        (open, out)
    }

    fn weighed(&self, prefix: Prefix, likely: Likely, rated: &Rated, now: Duration) -> Weighed {
        let (doubt, class) = (rated.doubt(&self.trust), Class::of(likely.bytes));
        let way = Way { prefix, hops: rated.hops, direction: likely.direction };
        let near = self.experiences.peek(&way).and_then(|past| past.near(class));
        let Some((experience, share)) = near else {
            let confidence = rated.confidence * (-doubt).exp();
            return Weighed {
                rated: *rated,
                predicted: rated.raw * doubt.exp(),
                confidence,
                experienced: false,
                on_trial: false,
            };
        };
        let there = if experience.class() == class {
            rated.reference
        } else {
            let there = Likely { bytes: experience.class().bytes(), ..likely };
            ranking::rate(&self.map, &self.costs, rated.hops, prefix, there).map_or(rated.reference, |it| it.reference)
        };
        let sessions = experience.weight(now) * share;
        let slower = experience.expected(log(there) + doubt, share, now) - log(there);
        Weighed {
            rated: *rated,
            predicted: seconds(log(rated.raw) + slower),
            confidence: (rated.confidence * (-doubt).exp()).max(sessions / (sessions + 1.0)),
            experienced: sessions >= 1.0,
            on_trial: false,
        }
    }

    fn has_failed(&self, prefix: Prefix, hops: Hops) -> bool {
        self.pauses.peek(&(prefix, hops)).is_some()
    }

    fn pause(&mut self, prefix: Prefix, hops: Hops, needs_trial: bool, now: Duration) {
        self.pauses.entry((prefix, hops), Pause::default).begin(needs_trial, now);
    }

    /// Whether sessions have come notably slower than the map says. Then its word is not enough to go back.
    fn is_overrated(&self, question: &Question, hops: Hops, now: Duration) -> bool {
        let way = Way { prefix: question.prefix, hops, direction: question.direction };
        let past = self.experiences.peek(&way);
        past.is_some_and(|past| past.slower(question.class, now) > OVERRATED.ln())
    }

    fn explores(&mut self, question: &Question, way: Weighed, open: &[Weighed], now: Duration) -> Choice {
        self.budget.spends();
        if let Some(answer) = self.answers.get(question) {
            answer.budget.spends();
        }
        if way.on_trial {
            self.pauses.entry((question.prefix, way.rated.hops), Pause::default).tries(now);
        }
        let figures = self.figures(question, &way, Some(&open[0]));
        Choice { ways: self.ways(open, Some(&way)), race: false, why: Why::Explores(figures), former: None }
    }
}

/// The time in seconds of which this is the [`log`].
fn seconds(log: f64) -> f64 {
    (log.exp() - NOISE).max(1e-5)
}

/// The logarithm of a time in seconds. What hosts take is in it, so that it says nothing of short times.
fn log(seconds: f64) -> f64 {
    (seconds + NOISE).ln()
}

#[cfg(test)]
mod tests;
