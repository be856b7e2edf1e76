//! Which path a session takes: the one that is predicted to be the soonest, by what is measured and, before that, by what
//! came.
//!
//! [`Chooser::choose`] answers from a table by prefix, size and direction; the table is filled when somebody goes there, and
//! again after each [`Chooser::adopt`]. What came is told by [`Chooser::came`] and [`Chooser::failed`]. The layers, from the
//! bottom up: the map says what a path would take if all reports were true; [`Trust`] doubts reports; own experience
//! corrects both; hysteresis keeps what was chosen; a small budget explores.

mod answer;
mod outlook;

use std::sync::Arc;
use std::time::Duration;

use answer::{Weighed, explore, go_back};

use super::bounded::Bounded;
use super::candidates::{Candidate, Fronts, Hops};
use super::choice::{Choice, Outcome, Ranked, Why};
use super::experience::{Access, Experience, Pause};
use super::hysteresis::{Open, Stand, Verdict};
use super::likely::Likely;
use super::map::Map;
use super::model::Costs;
use super::prefix::Prefix;
use super::ranking::{self, Question, Rated};
use super::trust::Trust;

/// Prefixes and sizes with an answer, at most.
const MOST_QUESTIONS: usize = 1 << 17;

/// Paths to prefixes with an experience, at most; and as many that are out.
const MOST_EXPERIENCES: usize = 1 << 16;

/// One session of so many may explore, of all and of those to one prefix.
const EXPLORES: u32 = 20;

/// A session of so many bytes or more shows a path's rate, a smaller one its delay.
const BULK: u64 = 256 << 10;

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
    experiences: Bounded<Way, Experience>,
    pauses: Bounded<(Prefix, Hops), Pause>,
    trust: Trust,
    /// Sessions since one has explored.
    credit: u32,
}

/// A path to a prefix, as far as sessions tell of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    prefix: Prefix,
    hops: Hops,
    direction: crate::limiting::Direction,
    bulk: bool,
}

/// The answer to a question, as long as the map is the same, and the standing choice.
#[derive(Debug, Clone, Default)]
struct Answer {
    generation: u64,
    rated: Vec<Rated>,
    stand: Stand,
    credit: u32,
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
            credit: 0,
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

    /// The ways for a session to `prefix` that will probably carry `likely`. The same `dice` and history give the same
    /// choice.
    pub fn choose(&mut self, prefix: Prefix, likely: Likely, now: Duration, dice: u64) -> Choice {
        let question = Question::of(prefix, likely);
        self.refresh(question, dice);
        let (open, out) = self.weigh(&question, now);
        let is_direct = |way: &Weighed| way.rated.hops.is_direct();
        let direct_is_known = open.iter().chain(&out).any(is_direct) || self.has_failed(prefix, Hops::DIRECT);
        if !direct_is_known || (open.is_empty() && out.is_empty()) {
            return Choice { ways: self.ways(&open, None), race: true, why: Why::Unmeasured, former: None };
        }
        self.credit = self.credit.saturating_add(1);
        let Some(answer) = self.answers.get(&question) else { return self.only(&question, &open) };
        answer.credit = answer.credit.saturating_add(1);
        if open.is_empty() {
            self.pauses.entry((prefix, Hops::DIRECT), Pause::default).tries(now);
            return self.only(&question, &out);
        }
        let before = answer.stand.kept();
        let options: Vec<Open> = open.iter().map(Weighed::open).collect();
        let (at, verdict) = answer.stand.decide(&options, now);
        let may_explore = answer.credit >= EXPLORES && self.credit >= EXPLORES;
        let explored = go_back(&out, open[at].predicted)
            .or_else(|| may_explore.then(|| explore(&open, &out, open[at].predicted, dice)).flatten());
        let former = before.filter(|before| *before != open[at].rated.hops);
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

    /// A session to `prefix`, or a part of it, has come through `candidate`.
    pub fn came(&mut self, prefix: Prefix, candidate: &Candidate, outcome: &Outcome, now: Duration) {
        let Some(hops) = Hops::of(candidate) else { return };
        let Some(rated) = ranking::rate(&self.map, &self.costs, hops, prefix, outcome.carried) else {
            return self.works(prefix, hops);
        };
        let predicted = if outcome.goes_on { outcome.carried.bytes as f64 / rated.rate } else { rated.raw };
        let slower = ((outcome.took.as_secs_f64() + NOISE) / (predicted + NOISE)).ln();
        let doubt = rated.doubt(&self.trust);
        let way = Way::of(prefix, hops, outcome.carried);
        let level = rated.level(way.bulk);
        let experience = self.experiences.entry(way, Experience::default);
        let expected = experience.correction(doubt, level, now);
        if !outcome.limited_by_path && slower > expected {
            return;
        }
        let is_open = self.pauses.peek(&(prefix, hops)).is_none_or(|pause| pause.access(now) == Access::Open);
        let disappoints = if is_open {
            experience.came(slower, expected, level, now)
        } else {
            experience.came_after_pause(slower, expected, level, now)
        };
        self.judge(&rated, way, slower, now);
        if (disappoints || !is_open) && self.has_better(prefix, hops, outcome.carried, now) {
            self.pause(prefix, hops, true, now);
        } else {
            self.works(prefix, hops);
        }
    }

    /// A session to `prefix` could not be made through `candidate`, or broke because of it: it is out for a while, longer
    /// each time.
    pub fn failed(&mut self, prefix: Prefix, candidate: &Candidate, now: Duration) {
        if let Some(hops) = Hops::of(candidate) {
            self.pause(prefix, hops, true, now);
        }
    }

    /// The standing choices: of which prefix, direction and size in bytes, and which path.
    pub fn standing(&self) -> impl Iterator<Item = (Prefix, Likely, Candidate)> {
        self.answers.iter().filter_map(|(question, answer)| {
            answer.stand.kept().map(|kept| (question.prefix, question.likely(), kept.candidate()))
        })
    }

    /// Sees to it that there is an answer by the present map. What was chosen is in it, even if others are better now.
    fn refresh(&mut self, question: Question, dice: u64) {
        let answer = self.answers.entry(question, || Answer { credit: dice as u32 % EXPLORES, ..Answer::default() });
        if answer.generation == self.generation {
            return;
        }
        answer.generation = self.generation;
        answer.rated = ranking::rank(&self.map, &self.fronts, &self.costs, &question);
        let missing = answer.stand.kept().filter(|kept| answer.rated.iter().all(|rated| rated.hops != *kept));
        let rate = |hops| ranking::rate(&self.map, &self.costs, hops, question.prefix, question.likely());
        answer.rated.extend(missing.and_then(rate));
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
        let doubt = rated.doubt(&self.trust);
        let way = Way::of(prefix, rated.hops, likely);
        let experience = self.experiences.peek(&way);
        let sessions = experience.map_or(0.0, |experience| experience.weight(now));
        let log = experience.map_or(doubt, |experience| experience.correction(doubt, rated.level(way.bulk), now));
        Weighed {
            rated: *rated,
            predicted: corrected(rated.raw, log),
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

    fn works(&mut self, prefix: Prefix, hops: Hops) {
        if let Some(pause) = self.pauses.get(&(prefix, hops)) {
            pause.came();
        }
    }

    /// Whether sessions have come notably slower than the map says. Then its word is not enough to go back.
    fn is_overrated(&self, question: &Question, hops: Hops, now: Duration) -> bool {
        let way = Way::of(question.prefix, hops, question.likely());
        let correction = self.experiences.peek(&way).map_or(0.0, |experience| experience.of_promises(now));
        correction > OVERRATED.ln()
    }

    /// Whether another path is predicted to be sooner than this one has become.
    fn has_better(&mut self, prefix: Prefix, hops: Hops, likely: Likely, now: Duration) -> bool {
        let question = Question::of(prefix, likely);
        self.refresh(question, 0);
        let (open, _) = self.weigh(&question, now);
        let this = ranking::rate(&self.map, &self.costs, hops, prefix, question.likely());
        let this = this.map_or(f64::INFINITY, |rated| self.weighed(prefix, question.likely(), &rated, now).predicted);
        open.first().is_some_and(|best| best.predicted < this)
    }

    /// What came tells whether the reports were true; where direct is slow as well, the target is.
    fn judge(&mut self, rated: &Rated, way: Way, slower: f64, now: Duration) {
        let direct = self.experiences.peek(&Way { hops: Hops::DIRECT, ..way });
        let usual = direct.map_or(0.0, |direct| direct.of_promises(now).max(0.0));
        let reporters: Vec<u32> = rated.reporters().collect();
        self.trust.came(&reporters, rated.hops.nodes().len() + 1, slower - usual);
    }

    fn explores(&mut self, question: &Question, way: Weighed, open: &[Weighed], now: Duration) -> Choice {
        self.credit = 0;
        if let Some(answer) = self.answers.get(question) {
            answer.credit = 0;
        }
        if way.on_trial {
            self.pauses.entry((question.prefix, way.rated.hops), Pause::default).tries(now);
        }
        let figures = self.figures(question, &way, Some(&open[0]));
        Choice { ways: self.ways(open, Some(&way)), race: false, why: Why::Explores(figures), former: None }
    }
}

/// What is predicted, in seconds, where the map says `raw`, and sessions came slower by the factor of this logarithm.
fn corrected(raw: f64, log: f64) -> f64 {
    // The factor was worked out with what hosts take on both sides.
    if log > 0.0 { (raw + NOISE) * log.exp() - NOISE } else { raw * log.exp() }
}

impl Way {
    const fn of(prefix: Prefix, hops: Hops, likely: Likely) -> Self {
        Self { prefix, hops, direction: likely.direction, bulk: likely.bytes >= BULK }
    }
}

#[cfg(test)]
mod tests;
