//! What a chooser expects, for whoever looks at it: status, and the comparison of what came with what was predicted.

use std::time::Duration;

use super::Chooser;
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::Ranked;
use crate::path::likely::Likely;
use crate::path::prefix::Prefix;
use crate::path::ranking::{self, Question, duration};

impl Chooser {
    /// What `candidate` is predicted to take for `likely`; none where it is not measured.
    #[must_use]
    pub fn predicted(&self, prefix: Prefix, candidate: &Candidate, likely: Likely, now: Duration) -> Option<Duration> {
        let rated = ranking::rate(&self.map, &self.costs, Hops::of(candidate)?, prefix, likely)?;
        Some(duration(self.weighed(prefix, likely, &rated, now).predicted))
    }

    /// The candidates of the latest answer for such a session, the best first, and whether each is out for now.
    #[must_use]
    pub fn outlook(&self, prefix: Prefix, likely: Likely, now: Duration) -> Vec<(Ranked, bool)> {
        let (open, out) = self.weigh(&Question::of(prefix, likely), now);
        let open = open.iter().map(|way| (way.ranked(), false));
        open.chain(out.iter().map(|way| (way.ranked(), true))).collect()
    }
}
