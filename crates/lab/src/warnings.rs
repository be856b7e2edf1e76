//! What a reader should know about runs and results: each names the cause and the remedy.

use std::fmt;
use std::time::Duration;

/// From this share of busy processors on, a run says more about the machine than about the network.
pub const BUSY_SHARE: f64 = 0.9;
/// An interval wider than this share of the median says that runs disagree.
pub const MAX_INTERVAL_WIDTH: f64 = 0.2;

/// Something a reader should know.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// The processors were the bottleneck.
    CpuBound,
    /// The emulator handed packets over late.
    EmulatorLate {
        /// The link and direction.
        direction: String,
        /// What one packet in a hundred exceeded.
        late: Duration,
        /// What it may be.
        limit: Duration,
    },
    /// The interval is wide.
    WideInterval {
        /// The treatment and the levels.
        place: String,
        /// The width of the interval as a share of the median.
        spread: f64,
    },
    /// There are too few values for a 95 % interval.
    FewBlocks {
        /// How many there are.
        blocks: u32,
        /// What the interval really has, from 0 to 1.
        confidence: f64,
    },
    /// A link did not measure as its file says.
    LinkCheckFailed {
        /// The link, the direction and the property.
        what: String,
        /// What came out.
        measured: String,
        /// What was wanted.
        wanted: String,
    },
    /// Runs had to be repeated.
    RunsRepeated {
        /// How many.
        runs: usize,
        /// Why the first of them was invalid.
        reason: String,
    },
    /// A combination makes no sense.
    CellSkipped {
        /// The treatment and the levels.
        place: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuBound => write!(
                f,
                "CPU-bound, not network-bound: the processors were more than {:.0} % busy; slower links, or a machine with \
                 more cores",
                BUSY_SHARE * 100.0
            ),
            Self::EmulatorLate { direction, late, limit } => write!(
                f,
                "the emulator fell behind on {direction}: one packet in a hundred was {late:?} late or more (limit {limit:?}); \
                 a slower link, mode = \"fast\", or a machine that does nothing else"
            ),
            Self::WideInterval { place, spread } => write!(
                f,
                "runs disagree, {place}: the interval is {:.0} % of the median wide; more blocks, or a machine that does \
                 nothing else",
                spread * 100.0
            ),
            Self::FewBlocks { blocks, confidence } => write!(
                f,
                "{blocks} blocks are too few for a 95 % interval of the median: theirs has {:.0} %; --full, or --blocks 6",
                confidence * 100.0
            ),
            Self::LinkCheckFailed { what, measured, wanted } => write!(
                f,
                "the check before the first run found {what}: {measured}, where {wanted} was wanted; a slower link, or a \
                 machine that does nothing else"
            ),
            Self::RunsRepeated { runs, reason } => write!(
                f,
                "{runs} invalid runs were made again, the first because: {reason}; they are in runs.jsonl, and in no figure"
            ),
            Self::CellSkipped { place, reason } => write!(f, "{place} is not run: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_cause_and_remedy() {
        let text = Warning::CpuBound.to_string();
        assert!(text.starts_with("CPU-bound, not network-bound: ") && text.contains("90 % busy; slower"), "{text}");
        let few = Warning::FewBlocks { blocks: 3, confidence: 0.75 }.to_string();
        assert!(few.contains("3 blocks") && few.contains("75 %") && few.contains("--full"), "{few}");
    }
}
