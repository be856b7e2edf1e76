//! Selects the sessions that explore: they use another path than the chosen one to measure it. Some of the first
//! sessions do, when no path has been measured, and later one in twenty.

use super::answer::WeighedPath;

/// A failed path is tried early if its replacement takes longer by this factor.
const RECOVERED_FACTOR: f64 = 1.5;

/// One in this number of sessions may explore, on average.
pub(super) const SESSIONS_PER_EXPLORE: u32 = 20;

/// Maximum number of explorations in the budget: at the beginning all promising paths are to be tried soon.
pub(super) const BURST: u32 = 10;

/// Number of sessions between two explorations if the second is of a path with an experience of one session. It grows
/// with the square of the experience, since a path that seems nearly as good as the best would otherwise be tried again
/// and again.
const SESSIONS_PER_RETRY: f64 = 2.0;

/// Maximum number of explorations in the budget that all prefixes share.
const GLOBAL_BURST: u32 = 64;

/// The budget of explorations, a token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExploreBudget {
    /// In sessions; an exploration costs [`SESSIONS_PER_EXPLORE`].
    tokens: u32,
    capacity: u32,
    /// Number of sessions since the last exploration, or since the first session.
    sessions_since: u32,
}

impl Default for ExploreBudget {
    /// The budget of one prefix and size class, whose first session uses the best path.
    fn default() -> Self {
        let burst = BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: burst, capacity: burst, sessions_since: 0 }
    }
}

impl ExploreBudget {
    /// The budget that all prefixes share.
    pub const fn global() -> Self {
        let capacity = GLOBAL_BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: capacity, capacity, sessions_since: 0 }
    }

    /// Adds a token for a session. Returns whether the session may explore: never directly after an exploration.
    pub fn on_session(&mut self) -> bool {
        self.tokens = (self.tokens + 1).min(self.capacity);
        self.sessions_since = self.sessions_since.saturating_add(1);
        self.sessions_since > 1 && self.can_explore()
    }

    pub const fn can_explore(&self) -> bool {
        self.tokens >= SESSIONS_PER_EXPLORE
    }

    /// Whether a path with this experience, in sessions, may be tried again.
    fn may_retry(&self, experience: f64) -> bool {
        let spacing = SESSIONS_PER_RETRY * experience * experience;
        f64::from(self.sessions_since) >= spacing.min(f64::from(SESSIONS_PER_EXPLORE))
    }

    pub const fn spend(&mut self) {
        self.tokens = self.tokens.saturating_sub(SESSIONS_PER_EXPLORE);
        self.sessions_since = 0;
    }
}

/// Returns a path that needs a trial, and whose predicted time is so much shorter than `predicted` that sessions should
/// not wait for the next exploration. The breaker's pauses between trials grow.
pub(super) fn find_recovered(unavailable: &[WeighedPath], predicted: f64) -> Option<WeighedPath> {
    unavailable
        .iter()
        .filter(|path| path.is_half_open && path.is_experienced())
        .find(|path| path.predicted * RECOVERED_FACTOR < predicted)
        .copied()
}

/// Returns a path that may be faster than `chosen`: a path that needs a trial and is faster by the map or by its
/// sessions, or else the path with the best optimistic estimate.
pub(super) fn find_promising(
    available: &[WeighedPath],
    unavailable: &[WeighedPath],
    chosen: &WeighedPath,
    budget: &ExploreBudget,
) -> Option<WeighedPath> {
    let is_faster = |path: &&WeighedPath| path.predicted.min(path.rated.predicted) < chosen.predicted;
    if let Some(path) = unavailable.iter().filter(|path| path.is_half_open).find(is_faster) {
        return Some(*path);
    }
    // While the windows of a path are opening, its next sessions yield more information than sessions after a pause.
    let may_retry = |path: &WeighedPath| path.is_opening || budget.may_retry(path.experience);
    let could_win = |path: &&WeighedPath| {
        path.rated.hops != chosen.rated.hops && path.optimistic() < chosen.predicted && may_retry(path)
    };
    available.iter().filter(could_win).min_by(|one, other| one.optimistic().total_cmp(&other.optimistic())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_between_explorations_grows_with_experience() {
        let mut budget = ExploreBudget::default();
        let first_retry = |experience: f64| {
            budget.spend();
            (1..100).find(|_| {
                let may_explore = budget.on_session();
                may_explore && budget.may_retry(experience)
            })
        };
        let spacings: Vec<_> = [0.0, 1.0, 1.9, 2.9, 8.0].map(first_retry).into_iter().flatten().collect();
        assert_eq!(spacings, [2, 2, 8, 17, 20]);
    }
}
