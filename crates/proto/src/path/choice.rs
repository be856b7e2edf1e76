//! The result of the path chooser: the paths to try, and the reason.

use std::fmt;
use std::time::Duration;

use super::candidates::Candidate;
use crate::quantity;

/// The paths for one session, and the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The candidates in the order to try; `direct` is always among them.
    pub ranking: Vec<RankedCandidate>,
    /// Whether there are too few measurements to choose, so that `direct` and the configured default race.
    pub race: bool,
    /// The reason for the first path of the ranking.
    pub reason: ChoiceReason,
    /// The previous standing choice for this prefix and size, if it has just changed.
    pub previous: Option<Candidate>,
}

/// A candidate and its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedCandidate {
    /// The relays of the path.
    pub candidate: Candidate,
    /// Time from the client's request to the last byte.
    pub predicted: Duration,
    /// The predicted bulk rate, in bytes/s.
    pub rate: f64,
    /// Confidence of the prediction, 0 to 1.
    pub confidence: f64,
}

/// The outcome of a session, or of a part of a running session, which may be reported every few seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferOutcome {
    /// The bytes of the session, and their main direction.
    pub transferred: super::transfer_size::TransferSize,
    /// The expected bytes of the whole session, as far as known.
    pub session_bytes: u64,
    /// Time from the client's request to the last byte, or the duration of the part.
    pub elapsed: Duration,
    /// Whether this is a later part of a session whose beginning was reported before.
    pub is_continuation: bool,
    /// Whether the path was the limit. Where client or server had no data to send, or a rate was limited by
    /// configuration, a slow result is no evidence, and only a fast one counts.
    pub limited_by_path: bool,
}

/// The reason for a choice. As text it is one line in plain words, with the figures.
#[derive(Debug, Clone, PartialEq)]
pub enum ChoiceReason {
    /// The direct path, or every path, has not been measured.
    Unmeasured,
    /// Only `direct` is known, or all other paths or all paths are out of use.
    Only(PathComparison),
    /// The path has the shortest predicted time.
    Best(PathComparison),
    /// Another path is predicted to be faster, but by too little or for too short a time.
    Kept(PathComparison),
    /// The path may be faster than estimated, or may have recovered: one session tries it.
    Explores(PathComparison),
    /// The previous path failed or was slower than expected.
    Retreats(PathComparison),
}

/// The predictions for the chosen path and for the path it was compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct PathComparison {
    /// The name of the chosen path.
    pub name: String,
    /// Time from the client's request to the last byte.
    pub predicted: Duration,
    /// The assumed size of the session, in bytes.
    pub bytes: u64,
    /// The other path: direct if a relay path is chosen, the best path if another one is chosen, and in a retreat the
    /// previous path. With its prediction, if known.
    pub other: Option<(String, Option<Duration>)>,
}

impl ChoiceReason {
    /// The reason as one word: `best`, `kept`, ...
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unmeasured => "unmeasured",
            Self::Only(_) => "only",
            Self::Best(_) => "best",
            Self::Kept(_) => "kept",
            Self::Explores(_) => "explores",
            Self::Retreats(_) => "retreats",
        }
    }

    /// The figures for the reason; `None` for [`ChoiceReason::Unmeasured`].
    #[must_use]
    pub const fn comparison(&self) -> Option<&PathComparison> {
        match self {
            Self::Unmeasured => None,
            Self::Only(f) | Self::Best(f) | Self::Kept(f) | Self::Explores(f) | Self::Retreats(f) => Some(f),
        }
    }
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmeasured => f.write_str("too few measurements: direct and the default path race"),
            Self::Only(figures) => write!(f, "{figures}; no other path is known to work"),
            Self::Best(figures) => figures.fmt(f),
            Self::Kept(figures) => write!(f, "{figures}; too small or too new a gain to change"),
            Self::Explores(figures) => write!(f, "{figures}; explored to refine its estimate"),
            Self::Retreats(figures) => write!(f, "{figures}; the latter failed or was slower than predicted"),
        }
    }
}

impl fmt::Display for PathComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |predicted: Duration| quantity::time(predicted.as_secs_f64());
        write!(f, "{}: {} predicted for {}", self.name, time(self.predicted), quantity::size(self.bytes))?;
        match &self.other {
            None => Ok(()),
            Some((name, Some(predicted))) => write!(f, ", {name} {}", time(*predicted)),
            Some((name, None)) => write!(f, ", instead of {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(other: Option<(&str, Option<u64>)>) -> PathComparison {
        let millis = Duration::from_millis;
        let other = other.map(|(name, predicted)| (name.to_owned(), predicted.map(millis)));
        PathComparison { name: "osaka".to_owned(), predicted: millis(1200), bytes: 8 << 20, other }
    }

    #[test]
    fn choice_reasons_display_the_predictions() {
        let direct = || figures(Some(("direct", Some(2900))));
        for (why, text) in [
            (ChoiceReason::Best(direct()), "osaka: 1.2 s predicted for 8 MiB, direct 2.9 s"),
            (
                ChoiceReason::Kept(figures(Some(("fukuoka", Some(1180))))),
                "osaka: 1.2 s predicted for 8 MiB, fukuoka 1.18 s; too small or too new a gain to change",
            ),
            (ChoiceReason::Only(figures(None)), "osaka: 1.2 s predicted for 8 MiB; no other path is known to work"),
            (
                ChoiceReason::Retreats(figures(Some(("fukuoka", None)))),
                "osaka: 1.2 s predicted for 8 MiB, instead of fukuoka; the latter failed or was slower than predicted",
            ),
        ] {
            assert_eq!(why.to_string(), text);
        }
        assert_eq!(ChoiceReason::Explores(direct()).as_str(), "explores");
    }
}
