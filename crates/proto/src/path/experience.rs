//! What this relay has experienced itself with one path to one prefix: by what factor things came slower than predicted,
//! and for how long a path that failed is out. It beats whatever others say.

use std::time::Duration;

/// After this long what came counts half.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// What others say weighs as much as so many sessions.
const HEARSAY: f64 = 0.25;

/// Sessions remembered at most.
const MEMORY: f64 = 8.0;

/// So much slower than expected disappoints,
const DISAPPOINTS: f64 = 1.5;

/// and so many in a row are no chance.
const ROW: u8 = 3;

/// No session says more than this factor.
const MOST: f64 = 64.0;

/// How one path to one prefix came out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Experience {
    /// Mean logarithm of what came over what was predicted.
    log: f64,
    /// Sessions behind it, the older ones counted less.
    weight: f64,
    /// Sessions in a row that disappointed, and the mean logarithm of these.
    row: u8,
    row_log: f64,
    at: Duration,
}

impl Experience {
    /// Sessions behind it.
    pub fn weight(&self, now: Duration) -> f64 {
        self.weight * halves(now.saturating_sub(self.at), HALF_LIFE)
    }

    /// By what to multiply a prediction, as a logarithm, where others' word alone would make it `hearsay`.
    pub fn correction(&self, hearsay: f64, now: Duration) -> f64 {
        let weight = self.weight(now);
        (weight * self.log + HEARSAY * hearsay) / (weight + HEARSAY)
    }

    /// A session came `log` (a logarithm) slower than predicted, while `expected` was. Says whether sessions disappoint.
    pub fn came(&mut self, log: f64, expected: f64, now: Duration) -> bool {
        let log = log.clamp(-MOST.ln(), MOST.ln());
        self.weight = self.weight(now);
        self.at = self.at.max(now);
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.log += (log - self.log) / self.weight;
        if log < expected + DISAPPOINTS.ln() {
            (self.row, self.row_log) = (0, 0.0);
            return false;
        }
        self.row = self.row.saturating_add(1);
        self.row_log += (log - self.row_log) / f64::from(self.row);
        if self.row < ROW {
            return false;
        }
        (self.log, self.row) = (self.row_log, 0);
        true
    }
}

/// What is left of one after `age`, if half of it goes in `life`.
fn halves(age: Duration, life: Duration) -> f64 {
    (-age.as_secs_f64() / life.as_secs_f64()).exp2()
}

/// How long a path to a prefix is not taken: longer each time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pause {
    length: Duration,
    until: Duration,
}

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

impl Pause {
    /// It is out from `now` on. What goes wrong during a pause was under way before, and makes it no longer.
    pub fn begin(&mut self, now: Duration) {
        if !self.is_out(now) {
            self.length = (self.length * 2).clamp(FIRST, LONGEST);
            self.until = now.saturating_add(self.length);
        }
    }

    /// Whether it is out.
    pub fn is_out(&self, now: Duration) -> bool {
        now < self.until
    }

    /// After a pause one session tries, and the others wait for as long again, unless it comes.
    pub fn tries(&mut self, now: Duration) {
        self.until = now.saturating_add(self.length);
    }

    /// Whether it is not out for good: nothing has come since it was.
    pub fn is_on_trial(&self) -> bool {
        !self.length.is_zero()
    }
}

#[cfg(test)]
#[path = "experience/tests.rs"]
mod tests;
