//! The status of the path selector: the selected path and its alternatives for each network of targets.

use std::cmp::Reverse;

use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::path::transfer_size::TransferSize;
use serde::Serialize;

use super::PathSelector;
use super::state::SelectorState;

/// Maximum number of networks in the status.
const MAX_PREFIXES: usize = 500;

/// A network of targets, and the path that sessions of a given size take to it.
#[derive(Debug, Clone, Serialize)]
pub struct ChoiceView {
    /// The network of the targets.
    pub prefix: Prefix,
    /// The size of the sessions, in bytes.
    pub likely_bytes: u64,
    /// The direction of most of these bytes: `down` or `up`.
    pub likely_direction: &'static str,
    /// The path that is selected for these sessions.
    pub path: String,
    /// All known paths, best first.
    pub candidates: Vec<CandidateView>,
}

/// One path that the selector can choose.
#[derive(Debug, Clone, Serialize)]
pub struct CandidateView {
    /// The names of the relays on the path, or `direct`.
    pub path: String,
    /// Predicted time from the client's request to the last byte, in seconds.
    pub predicted_seconds: f64,
    /// The predicted bulk rate, in bytes per second.
    pub rate: f64,
    /// The confidence in the prediction, 0 to 1.
    pub confidence: f64,
    /// Whether the path is avoided at present, because a session on it has failed or was slower than predicted.
    pub out: bool,
}

impl PathSelector {
    /// Returns the current choices for `ekiden status`.
    #[must_use]
    pub fn views(&self) -> Vec<ChoiceView> {
        let now = self.shared.estimates.now();
        let views = self.shared.with_state(|state| {
            let mut choices: Vec<_> = state.chooser.standing_choices().collect();
            choices.sort_by_key(|(prefix, predicted_size, _)| (*prefix, Reverse(predicted_size.bytes)));
            choices.truncate(MAX_PREFIXES);
            Some(
                choices
                    .into_iter()
                    .map(|(prefix, predicted_size, path)| {
                        let path = path.name(state.chooser.map());
                        choice_view(state, prefix, predicted_size, path, now)
                    })
                    .collect(),
            )
        });
        views.unwrap_or_default()
    }
}

fn choice_view(
    state: &SelectorState,
    prefix: Prefix,
    predicted_size: TransferSize,
    path: String,
    now: std::time::Duration,
) -> ChoiceView {
    let ranked_candidates = state.chooser.ranked_candidates(prefix, predicted_size, now).into_iter();
    let candidates = ranked_candidates.map(|(ranked, out)| CandidateView {
        path: ranked.candidate.name(state.chooser.map()),
        predicted_seconds: ranked.predicted.as_secs_f64(),
        rate: ranked.rate,
        confidence: ranked.confidence,
        out,
    });
    ChoiceView {
        prefix,
        likely_bytes: predicted_size.bytes,
        likely_direction: predicted_size.direction.as_str(),
        path,
        candidates: candidates.collect(),
    }
}
