//! Selects the sessions that explore: they use another path than the chosen one to measure it. A few do at the
//! beginning, when nothing is known, and one in twenty later.

use super::answer::WeighedPath;

/// A failed path is tried early if its replacement takes longer by this factor.
const RECOVERED_FACTOR: f64 = 1.5;

/// One in this number of sessions may explore.
pub(super) const SESSIONS_PER_EXPLORE: u32 = 20;

/// Explorations that may be saved up: at the beginning all promising paths are to be tried soon.
pub(super) const BURST: u32 = 10;

/// Explorations that all prefixes together may save up.
const GLOBAL_BURST: u32 = 64;

/// The budget of explorations, a token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExploreBudget {
    /// In units of sessions; an exploration costs [`SESSIONS_PER_EXPLORE`].
    tokens: u32,
    capacity: u32,
    /// The previous session has explored, or there was none.
    just_spent: bool,
}

impl Default for ExploreBudget {
    /// The budget of one prefix and size, whose first session takes the best path.
    fn default() -> Self {
        let most = BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: most, capacity: most, just_spent: true }
    }
}

impl ExploreBudget {
    /// The budget of all prefixes together.
    pub const fn global() -> Self {
        let capacity = GLOBAL_BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: capacity, capacity, just_spent: false }
    }

    /// Adds a token for a session. Returns whether it may explore: never two in a row to one prefix.
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

/// A path that could be faster than `chosen`: first one after a pause that is faster by the map, else the path with the
/// best optimistic estimate.
pub(super) fn find_promising(open: &[WeighedPath], out: &[WeighedPath], chosen: &WeighedPath) -> Option<WeighedPath> {
    if let Some(way) = out.iter().filter(|way| way.is_half_open).find(|way| way.rated.predicted < chosen.predicted) {
        return Some(*way);
    }
    let could_win = |way: &&WeighedPath| way.rated.hops != chosen.rated.hops && way.optimistic() < chosen.predicted;
    open.iter().filter(could_win).min_by(|one, other| one.optimistic().total_cmp(&other.optimistic())).copied()
}
