//! What a chooser is told: how sessions came out, and which paths failed.

use std::time::Duration;

use super::{Chooser, Way, log, seconds};
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::Outcome;
use crate::path::experience::{Access, Class, Past};
use crate::path::likely::Likely;
use crate::path::prefix::Prefix;
use crate::path::ranking::{self, Question, Rated};

impl Chooser {
    /// A session to `prefix`, or a part of it, has come through `candidate`.
    pub fn came(&mut self, prefix: Prefix, candidate: &Candidate, outcome: &Outcome, now: Duration) {
        let Some(hops) = Hops::of(candidate) else { return };
        let session = Likely { bytes: outcome.of, ..outcome.carried };
        let Some(rated) = ranking::rate(&self.map, &self.costs, hops, prefix, session) else {
            return self.works(prefix, hops);
        };
        let class = Class::of(session.bytes);
        let took = log(took_of(outcome, &rated, class));
        let promised = log(rated.reference);
        let is_open = self.pauses.peek(&(prefix, hops)).is_none_or(|pause| pause.access(now) == Access::Open);
        let way = Way { prefix, hops, direction: session.direction };
        let expected = log(self.weighed(prefix, session, &rated, now).predicted) + promised - log(rated.raw);
        if !outcome.limited_by_path && took > expected {
            return;
        }
        let experience = self.experiences.entry(way, Past::default).of(class);
        let disappoints = if is_open {
            experience.came(took, promised, expected, now)
        } else {
            experience.came_after_pause(took, promised, expected, now)
        };
        self.judge(&rated, way, class, took - promised, now);
        if (disappoints || !is_open) && self.has_better(prefix, hops, session, now) {
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

    fn works(&mut self, prefix: Prefix, hops: Hops) {
        if let Some(pause) = self.pauses.get(&(prefix, hops)) {
            pause.came();
        }
    }

    /// Whether another path is predicted to be sooner than this one has become.
    fn has_better(&mut self, prefix: Prefix, hops: Hops, likely: Likely, now: Duration) -> bool {
        let question = Question::of(prefix, likely);
        self.refresh(question);
        let (open, _) = self.weigh(&question, now);
        let this = ranking::rate(&self.map, &self.costs, hops, prefix, question.likely());
        let this = this.map_or(f64::INFINITY, |rated| self.weighed(prefix, question.likely(), &rated, now).predicted);
        open.first().is_some_and(|best| best.predicted < this)
    }

    /// What came tells whether the reports were true; where direct is slow as well, the target is.
    fn judge(&mut self, rated: &Rated, way: Way, class: Class, slower: f64, now: Duration) {
        let direct = self.experiences.peek(&Way { hops: Hops::DIRECT, ..way });
        let usual = direct.map_or(0.0, |direct| direct.slower(class, now).max(0.0));
        let reporters: Vec<u32> = rated.reporters().collect();
        self.trust.came(&reporters, rated.hops.nodes().len() + 1, slower - usual);
    }
}

/// How long a session of the size that stands for its class takes, in seconds, if it goes as this one did.
fn took_of(outcome: &Outcome, rated: &Rated, class: Class) -> f64 {
    let took = outcome.took.as_secs_f64();
    if outcome.goes_on {
        return rated.first_byte + took * class.bytes() as f64 / outcome.carried.bytes.max(1) as f64;
    }
    seconds(log(took) + log(rated.reference) - log(rated.raw))
}
