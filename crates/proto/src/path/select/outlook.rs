//! What a chooser expects, for whoever looks at it: status, and the comparison of what came with what was predicted.

use std::time::Duration;

use super::PathChooser;
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::RankedCandidate;
use crate::path::likely::TransferSize;
use crate::path::prefix::Prefix;
use crate::path::ranking::{self, ChoiceKey, to_duration};

impl PathChooser {
    /// What `candidate` is predicted to take for `likely`; none where it is not measured.
    #[must_use]
    pub fn predicted_time(
        &self,
        prefix: Prefix,
        candidate: &Candidate,
        likely: TransferSize,
        now: Duration,
    ) -> Option<Duration> {
        let rated = ranking::rate_path(&self.map, &self.costs, Hops::from_candidate(candidate)?, prefix, likely)?;
        Some(to_duration(self.weigh(prefix, likely, &rated, now).predicted))
    }

    /// The candidates of the latest answer for such a session, the best first, and whether each is out for now.
    #[must_use]
    pub fn ranked_candidates(
        &self,
        prefix: Prefix,
        likely: TransferSize,
        now: Duration,
    ) -> Vec<(RankedCandidate, bool)> {
        let (open, out) = self.weigh_all(&ChoiceKey::new(prefix, likely), now);
        let open = open.iter().map(|way| (way.to_ranked(), false));
        open.chain(out.iter().map(|way| (way.to_ranked(), true))).collect()
    }
}
