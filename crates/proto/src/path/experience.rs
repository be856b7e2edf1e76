//! What this relay has experienced itself with one path to one prefix: by what factor things came slower than predicted,
//! and for how long a path that failed is out. It beats whatever others say.

use std::time::Duration;

/// After this long what came counts half.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// What others say weighs as much as so many sessions.
const HEARSAY: f64 = 0.5;

/// Sessions remembered at most.
const MEMORY: f64 = 8.0;

/// So much slower than expected disappoints,
const DISAPPOINTS: f64 = 1.5;

/// and so many in a row are no chance.
const ROW: u8 = 3;

/// Before there are so many, a session counts as no slower than this: it may have had bad luck.
const LUCK: f64 = 1.4;

/// So much faster after a pause is no luck: nothing comes faster than the path carries it.
const SURPRISES: f64 = 1.5;

/// No session says more than this factor. A map that knows no rate may be wrong by a lot.
const MOST: f64 = 65_536.0;

/// How one path to one prefix came out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Experience {
    /// Mean logarithm of what came over what was predicted.
    log: f64,
    /// Mean of what was predicted then, as [`Rated::level`](super::ranking::Rated::level) has it.
    level: f64,
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

    /// By what to multiply a prediction of this level, as a logarithm, where others' word alone would make it `hearsay`. A
    /// map that promises more than when the sessions came has to show it: until others have come, it is no sooner than they
    /// were. One that promises less is believed at once, and if it had promised too much, it is only right by now.
    pub fn correction(&self, hearsay: f64, level: f64, now: Duration) -> f64 {
        let weight = self.weight(now);
        let slower = level - self.level;
        let log = if slower <= 0.0 { self.log - slower } else { self.log.min((self.log - slower).max(0.0)) };
        (weight * log + HEARSAY * hearsay) / (weight + HEARSAY)
    }

    /// By how much sessions came slower than what was promised for each of them, as a logarithm.
    pub fn of_promises(&self, now: Duration) -> f64 {
        self.correction(0.0, self.level, now)
    }

    /// A session came `log` (a logarithm) slower than predicted at this level, while `expected` was. Says whether sessions
    /// disappoint.
    pub fn came(&mut self, log: f64, expected: f64, level: f64, now: Duration) -> bool {
        let log = log.clamp(-MOST.ln(), MOST.ln());
        self.weight = self.weight(now);
        self.at = self.at.max(now);
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.log += (log.min(expected + LUCK.ln()) - self.log) / self.weight;
        self.level += (level - self.level) / self.weight;
        self.counts_in_row(log, expected, level)
    }

    /// The same of a session after a pause: when that has passed for which there was one, all before is forgotten.
    pub fn came_after_pause(&mut self, log: f64, expected: f64, level: f64, now: Duration) -> bool {
        if log < expected - SURPRISES.ln() {
            *self = Self { log, level, weight: MEMORY, at: now, ..Self::default() };
        }
        self.came(log, expected, level, now)
    }

    /// Sessions that disappoint in a row: when there are enough, they are what is believed.
    fn counts_in_row(&mut self, log: f64, expected: f64, level: f64) -> bool {
        if log < expected + DISAPPOINTS.ln() {
            (self.row, self.row_log) = (0, 0.0);
            return false;
        }
        self.row = self.row.saturating_add(1);
        self.row_log += (log - self.row_log) / f64::from(self.row);
        if self.row < ROW {
            return false;
        }
        (self.log, self.level, self.weight, self.row) = (self.row_log, level, MEMORY, 0);
        true
    }
}

/// What is left of one after `age`, if half of it goes in `life`.
fn halves(age: Duration, life: Duration) -> f64 {
    (-age.as_secs_f64() / life.as_secs_f64()).exp2()
}

/// A path to a prefix that was found wanting: it is out for a pause, which is longer each time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pause {
    length: Duration,
    until: Duration,
    /// Nobody takes it after the pause before one session has shown that it works.
    needs_trial: bool,
    /// A session tries.
    is_tried: bool,
    /// It works again; how long it was out is remembered.
    is_over: bool,
}

/// Whether a path may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It may.
    Open,
    /// One session may try.
    Trial,
    /// It may not.
    Out,
}

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

impl Pause {
    /// It is out from `now` on. What goes wrong during a pause was under way before, and makes it no longer.
    pub fn begin(&mut self, needs_trial: bool, now: Duration) {
        if self.access(now) == Access::Out {
            self.needs_trial |= needs_trial;
            return;
        }
        let is_forgotten = now > self.until.saturating_add(LONGEST);
        let before = if is_forgotten { Duration::ZERO } else { self.length };
        let length = (before * 2).clamp(FIRST, LONGEST);
        *self = Self { length, until: now.saturating_add(length), needs_trial, is_tried: false, is_over: false };
    }

    /// Whether the path may be taken.
    pub fn access(&self, now: Duration) -> Access {
        match self {
            Self { is_over: true, .. } => Access::Open,
            Self { until, .. } if now < *until => Access::Out,
            Self { needs_trial, .. } => {
                if *needs_trial {
                    Access::Trial
                } else {
                    Access::Open
                }
            }
        }
    }

    /// One session tries, and the others wait for a longer pause, unless it comes.
    pub fn tries(&mut self, now: Duration) {
        self.length = (self.length * 2).clamp(FIRST, LONGEST);
        self.until = now.saturating_add(self.length);
        self.is_tried = true;
    }

    /// A session has come. One that was under way before the pause proves nothing.
    pub fn came(&mut self) {
        self.is_over |= self.is_tried;
    }
}

#[cfg(test)]
mod tests;
