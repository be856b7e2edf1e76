//! What this relay has experienced itself with one path to one prefix: how long sessions took, by their size, and for how
//! long a path that failed is out. It beats whatever others say.

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

/// Before there are so many, what is slower than this may be bad luck, and counts half.
const LUCK: f64 = 1.4;

/// So much faster after a pause is no luck: nothing comes faster than the path carries it.
const SURPRISES: f64 = 1.5;

/// Sessions of a class tell so much less of the next one, and so on.
const NEXT: f64 = 0.7;

/// Sizes that are taken for alike: those that have the same power of two next to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Class(u8);

/// Smaller and larger sizes are taken for these: 1 KiB and 1 TiB.
const LEAST_BITS: f64 = 10.0;
const MOST_BITS: f64 = 40.0;

impl Class {
    pub fn of(bytes: u64) -> Self {
        Self((bytes as f64).log2().round().clamp(LEAST_BITS, MOST_BITS) as u8)
    }

    /// The size that stands for it, in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }
}

/// How sessions of one class came by one path to one prefix. All times are logarithms of seconds, for the size that stands
/// for the class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Experience {
    class: Class,
    /// Mean of what they took.
    log: f64,
    /// Mean of what they took over what the map had promised.
    slower: f64,
    /// Sessions behind it, the older ones counted less.
    weight: f64,
    /// Sessions in a row that disappointed, and the mean of these.
    row: u8,
    row_log: f64,
    at: Duration,
}

/// Experiences with one path to one prefix, by class.
#[derive(Debug, Clone, Default)]
pub(super) struct Past(Vec<Experience>);

impl Past {
    /// That of the class.
    pub fn of(&mut self, class: Class) -> &mut Experience {
        let at = self.0.iter().position(|it| it.class == class).unwrap_or_else(|| {
            self.0.push(Experience::new(class));
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// That of the class, or of the one next to it of which there is one, and how much of its weight it has there.
    pub fn near(&self, class: Class) -> Option<(&Experience, f64)> {
        let distance = |it: &Experience| it.class.0.abs_diff(class.0);
        let near = self.0.iter().filter(|it| it.weight > 0.0).min_by_key(|it| distance(it))?;
        Some((near, NEXT.powi(distance(near).into())))
    }

    /// By how much sessions came slower than promised, as a logarithm: of those of the class or next to it.
    pub fn slower(&self, class: Class, now: Duration) -> f64 {
        self.near(class).map_or(0.0, |(near, share)| {
            let weight = near.weight(now) * share;
            near.slower * weight / (weight + HEARSAY)
        })
    }
}

impl Experience {
    const fn new(class: Class) -> Self {
        Self { class, log: 0.0, slower: 0.0, weight: 0.0, row: 0, row_log: 0.0, at: Duration::ZERO }
    }

    pub const fn class(&self) -> Class {
        self.class
    }

    /// Sessions behind it.
    pub fn weight(&self, now: Duration) -> f64 {
        self.weight * halves(now.saturating_sub(self.at), HALF_LIFE)
    }

    /// What a session will take where others' word alone would make it `hearsay`, and the experience counts as `share` of
    /// what it is.
    pub fn expected(&self, hearsay: f64, share: f64, now: Duration) -> f64 {
        let weight = self.weight(now) * share;
        (weight * self.log + HEARSAY * hearsay) / (weight + HEARSAY)
    }

    /// A session took `log`, while `promised` was what the map said and `expected` what was made of that. Says whether
    /// sessions disappoint.
    pub fn came(&mut self, log: f64, promised: f64, expected: f64, now: Duration) -> bool {
        if !(log - promised).is_finite() {
            return false;
        }
        self.weight = self.weight(now);
        self.at = self.at.max(now);
        self.weight = (self.weight + 1.0).min(MEMORY);
        let luck = (log - expected - LUCK.ln()).max(0.0) / 2.0;
        let believed = log - luck;
        self.log += (believed - self.log) / self.weight;
        self.slower += (believed - promised - self.slower) / self.weight;
        self.counts_in_row(log, promised, expected)
    }

    /// The same of a session after a pause: when that has passed for which there was one, all before is forgotten.
    pub fn came_after_pause(&mut self, log: f64, promised: f64, expected: f64, now: Duration) -> bool {
        if log < expected - SURPRISES.ln() {
            *self = Self { log, slower: log - promised, weight: MEMORY, at: now, ..Self::new(self.class) };
        }
        self.came(log, promised, expected, now)
    }

    /// Sessions that disappoint in a row: when there are enough, they are what is believed.
    fn counts_in_row(&mut self, log: f64, promised: f64, expected: f64) -> bool {
        if log < expected + DISAPPOINTS.ln() {
            (self.row, self.row_log) = (0, 0.0);
            return false;
        }
        self.row = self.row.saturating_add(1);
        self.row_log += (log - self.row_log) / f64::from(self.row);
        if self.row < ROW {
            return false;
        }
        (self.log, self.slower) = (self.row_log, self.row_log - promised);
        (self.weight, self.row) = (MEMORY, 0);
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
