//! Selects the sessions that explore: they use another path than the chosen one to measure it. A few do at the
//! beginning, when nothing is known, and one in twenty later.

use super::answer::WeighedPath;

/// A failed path is tried early if its replacement takes longer by this factor.
const RECOVERED_FACTOR: f64 = 1.5;

/// One in this number of sessions may explore.
pub(super) const SESSIONS_PER_EXPLORE: u32 = 20;

/// Explorations that may be saved up: at the beginning all promising paths are to be tried soon.
pub(super) const BURST: u32 = 10;

/// Sessions between two explorations if the second is of a path with one session of experience; the number grows with
/// the square of the experience. A path that looks nearly as good as the best would otherwise be tried again and again.
const SESSIONS_PER_RETRY: f64 = 2.0;

/// Explorations that all prefixes together may save up.
const GLOBAL_BURST: u32 = 64;

/// The budget of explorations, a token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExploreBudget {
    /// In units of sessions; an exploration costs [`SESSIONS_PER_EXPLORE`].
    tokens: u32,
    capacity: u32,
    /// Sessions since the last that explored, or since the first.
    sessions_since: u32,
}

impl Default for ExploreBudget {
    /// The budget of one prefix and size, whose first session takes the best path.
    fn default() -> Self {
        let burst = BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: burst, capacity: burst, sessions_since: 0 }
    }
}

impl ExploreBudget {
    /// The budget of all prefixes together.
    pub const fn global() -> Self {
        let capacity = GLOBAL_BURST * SESSIONS_PER_EXPLORE;
        Self { tokens: capacity, capacity, sessions_since: 0 }
    }

    /// Adds a token for a session. Returns whether it may explore: never two in a row to one prefix.
    pub fn on_session(&mut self) -> bool {
        self.tokens = (self.tokens + 1).min(self.capacity);
        self.sessions_since = self.sessions_since.saturating_add(1);
        self.sessions_since > 1 && self.can_explore()
    }

    pub const fn can_explore(&self) -> bool {
        self.tokens >= SESSIONS_PER_EXPLORE
    }

    /// Whether a path with the experience of this many sessions may be tried again.
    fn may_retry(&self, experience: f64) -> bool {
        let spacing = SESSIONS_PER_RETRY * experience * experience;
        f64::from(self.sessions_since) >= spacing.min(f64::from(SESSIONS_PER_EXPLORE))
    }

    pub const fn spend(&mut self) {
        self.tokens = self.tokens.saturating_sub(SESSIONS_PER_EXPLORE);
        self.sessions_since = 0;
    }
}

/// An unavailable path that may be tried and was so much faster than `predicted` that sessions should not wait for the
/// next exploration. Pauses between trials grow.
pub(super) fn find_recovered(unavailable: &[WeighedPath], predicted: f64) -> Option<WeighedPath> {
    unavailable
        .iter()
        .filter(|path| path.is_half_open && path.is_experienced())
        .find(|path| path.predicted * RECOVERED_FACTOR < predicted)
        .copied()
}

/// A path that could be faster than `chosen`: first one after a pause that is faster by the map or by its sessions, else
/// the path with the best optimistic estimate.
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
    // Once its windows begin to open, the next sessions are more informative than those after a pause.
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
