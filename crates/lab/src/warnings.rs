//! Warnings about runs and results. Each names the cause and the remedy.

use std::fmt;
use std::time::Duration;

/// Share of busy processor time from which a run measures the machine rather than the network.
pub const BUSY_SHARE: f64 = 0.9;
/// Width of a confidence interval, as a share of the median, above which runs disagree.
pub const MAX_INTERVAL_WIDTH: f64 = 0.2;

/// A warning about a run or a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// The processors were the bottleneck.
    CpuBound,
    /// The emulator forwarded packets late.
    EmulatorLate {
        /// Link and direction of the packets.
        direction: String,
        /// 99th percentile of the lateness.
        late: Duration,
        /// Limit of the lateness.
        limit: Duration,
    },
    /// The confidence interval is wide.
    WideInterval {
        /// Treatment and levels of its factors.
        place: String,
        /// Width of the interval as a share of the median.
        spread: f64,
    },
    /// There are too few values for a 95 % interval.
    FewBlocks {
        /// Number of blocks with values.
        blocks: u32,
    },
    /// A link does not measure as its file specifies.
    LinkCheckFailed {
        /// Link, direction and property.
        what: String,
        /// Measured value of the property.
        measured: String,
        /// Expected value of the property.
        wanted: String,
    },
    /// Invalid runs were repeated.
    RunsRepeated {
        /// Number of repeated runs.
        runs: usize,
        /// Reason of the first repetition.
        reason: String,
    },
    /// A combination of levels cannot run.
    CellSkipped {
        /// Treatment and levels of its factors.
        place: String,
        /// Reason for skipping the combination.
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
            Self::FewBlocks { blocks } => write!(
                f,
                "{blocks} blocks are too few for a 95 % interval of the median: the smallest and the largest value are shown; \
                 --full, or --blocks 6"
            ),
            Self::LinkCheckFailed { what, measured, wanted } => write!(
                f,
                "the check before the first run measured {what}: {measured}, expected {wanted}; use a slower link, or \
                 a machine that does nothing else"
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
        let few = Warning::FewBlocks { blocks: 3 }.to_string();
        assert!(few.contains("3 blocks") && few.contains("--full"), "{few}");
    }
}
