//! Which session takes another path than the chosen one, to see whether it is better: a few at the beginning, when nothing is
//! known, and then one of twenty.

use super::answer::Weighed;

/// A path that was out is missed if what is taken instead takes so much longer.
const MISSED: f64 = 1.5;

/// One session of so many may explore.
pub(super) const EXPLORES: u32 = 20;

/// So many may be saved up: at the beginning all paths that look good are to be tried soon.
pub(super) const BURST: u32 = 10;

/// And of all prefixes together.
const BURST_OF_ALL: u32 = 64;

/// How many sessions may explore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// In sessions of which one may.
    saved: u32,
    most: u32,
    /// The session before has explored, or there was none.
    just_spent: bool,
}

impl Default for Budget {
    /// That of one prefix and size, where the first session takes the best.
    fn default() -> Self {
        let most = BURST * EXPLORES;
        Self { saved: most, most, just_spent: true }
    }
}

impl Budget {
    /// That of all prefixes together.
    pub const fn of_all() -> Self {
        let most = BURST_OF_ALL * EXPLORES;
        Self { saved: most, most, just_spent: false }
    }

    /// A session comes. Says whether it may explore: never two in a row to one prefix.
    pub fn earns(&mut self) -> bool {
        self.saved = (self.saved + 1).min(self.most);
        !std::mem::take(&mut self.just_spent) && self.allows()
    }

    pub const fn allows(&self) -> bool {
        self.saved >= EXPLORES
    }

    pub const fn spends(&mut self) {
        self.saved = self.saved.saturating_sub(EXPLORES);
        self.just_spent = true;
    }
}

/// A path that was out, may be tried, and is known to have been so much sooner than `predicted` that nobody should have to
/// wait until somebody explores. Pauses between trials grow.
pub(super) fn go_back(out: &[Weighed], predicted: f64) -> Option<Weighed> {
    out.iter().filter(|way| way.on_trial && way.experienced).find(|way| way.predicted * MISSED < predicted).copied()
}

/// A path that could beat the `chosen` one: one that was out and would by the map goes first, else the one with most hope.
pub(super) fn explore(open: &[Weighed], out: &[Weighed], chosen: &Weighed) -> Option<Weighed> {
    if let Some(way) = out.iter().filter(|way| way.on_trial).find(|way| way.rated.raw < chosen.predicted) {
        return Some(*way);
    }
    let could_win = |way: &&Weighed| way.rated.hops != chosen.rated.hops && way.hoped() < chosen.predicted;
    open.iter().filter(could_win).min_by(|one, other| one.hoped().total_cmp(&other.hoped())).copied()
}
