//! Which session takes another path than the chosen one, to see whether it is better: a few at the beginning, when nothing is
//! known, and then one of twenty.

use super::answer::WeighedPath;

/// A failed path is tried early if its replacement takes longer by this factor.
const RECOVERED_FACTOR: f64 = 1.5;

/// One session of so many may explore.
pub(super) const SESSIONS_PER_EXPLORE: u32 = 20;

/// So many may be saved up: at the beginning all paths that look good are to be tried soon.
pub(super) const BURST: u32 = 10;

/// And of all prefixes together.
const GLOBAL_BURST: u32 = 64;

/// How many sessions may explore.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExploreBudget {
    /// In sessions of which one may.
    tokens: u32,
    capacity: u32,
    /// The session before has explored, or there was none.
    just_spent: bool,
}

impl Default for ExploreBudget {
    /// That of one prefix and size, where the first session takes the best.
    fn default() -> Self {
        let most = BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: most, capacity: most, just_spent: true }
    }
}

impl ExploreBudget {
    /// That of all prefixes together.
    pub const fn global() -> Self {
        let capacity = GLOBAL_BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: capacity, capacity, just_spent: false }
    }

    /// A session comes. Says whether it may explore: never two in a row to one prefix.
    pub fn on_session(&mut self) -> bool {
        self.tokens = (self.tokens + 1).min(self.capacity);
        !std::mem::take(&mut self.just_spent) && self.can_explore()
    }

    pub const fn can_explore(&self) -> bool {
        self.tokens >= SESSIONS_PER_EXPLORE
    }

    pub const fn spend(&mut self) {
        self.tokens = self.tokens.saturating_sub(SESSIONS_PER_EXPLORE);
        self.just_spent = true;
    }
}

/// A path that was out, may be tried, and was so much faster than `predicted` that sessions should not wait for the
/// next exploration. Pauses between trials grow.
pub(super) fn find_recovered(out: &[WeighedPath], predicted: f64) -> Option<WeighedPath> {
    out.iter()
        .filter(|way| way.is_half_open && way.is_experienced)
        .find(|way| way.predicted * RECOVERED_FACTOR < predicted)
        .copied()
}

/// A path that could beat the `chosen` one: one that was out and would by the map goes first, else the one with most hope.
pub(super) fn find_promising(open: &[WeighedPath], out: &[WeighedPath], chosen: &WeighedPath) -> Option<WeighedPath> {
    if let Some(way) = out.iter().filter(|way| way.is_half_open).find(|way| way.rated.predicted < chosen.predicted) {
        return Some(*way);
    }
    let could_win = |way: &&WeighedPath| way.rated.hops != chosen.rated.hops && way.optimistic() < chosen.predicted;
    open.iter().filter(could_win).min_by(|one, other| one.optimistic().total_cmp(&other.optimistic())).copied()
}
