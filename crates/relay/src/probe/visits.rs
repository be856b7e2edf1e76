//! Two visits over one path, the second immediately after the first: relays reuse their sections, so that the second
//! visit begins with the congestion windows of the first.

use std::time::Duration;

use super::connect::ProbeContext;
use super::download::{self, Download};
use super::{ProbeBudget, ProbeTarget};
use crate::config::Config;
use crate::path::PathChoice;

/// Size of a visit in bytes, unless the budget is smaller. On a long path slow start takes most of the time of such a
/// transfer.
pub const VISIT_BYTES: u64 = 1 << 20;

/// The times of two visits, from the client's request to the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visits {
    /// Bytes of each visit: the requested number, or the size of a smaller file.
    pub bytes: u64,
    /// The time of the first visit.
    pub first: Duration,
    /// The time of the second visit.
    pub second: Duration,
    /// Whether the second visit began on the section that the first one had used.
    pub is_reuse: bool,
}

impl Visits {
    /// Returns the visits from two downloads of `visit_bytes` bytes; `None` if one of them ran out of time.
    fn from_downloads(visit_bytes: u64, first: &Download, second: &Download) -> Option<Self> {
        let bytes = first.progress.last()?.0.min(visit_bytes);
        let time_of =
            |download: &Download| download.time_at(bytes).filter(|_| download.is_complete || bytes == visit_bytes);
        Some(Self {
            bytes,
            first: time_of(first)?,
            second: time_of(second)?,
            is_reuse: second.earlier_sessions.is_some_and(|sessions| sessions > 0),
        })
    }
}

/// Fetches the beginning of the file twice, on connections that a relay would use for two consecutive clients.
///
/// # Errors
/// The error, and its remedy.
pub async fn visit_twice(
    config: &Config,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
    effort: ProbeBudget,
) -> Result<Option<Visits>, String> {
    // A new context has no sections of other candidates, so that the first visit reuses none.
    let context = ProbeContext::with_reuse(config, path_choice);
    let budget = ProbeBudget { bytes: effort.bytes.min(VISIT_BYTES), ..effort };
    let first = download::fetch_beginning(&context, path_choice, probe_target, budget).await?;
    if first.is_complete && first.earlier_sessions.is_some() {
        context.wait_section_pooled().await;
    }
    let second = download::fetch_beginning(&context, path_choice, probe_target, budget).await?;
    Ok(Visits::from_downloads(budget.bytes, &first, &second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download(bytes: u64, ms: u64, is_complete: bool, earlier_sessions: Option<u32>) -> Download {
        let progress = vec![(0, Duration::from_millis(10)), (bytes, Duration::from_millis(ms))];
        Download { progress, is_complete, earlier_sessions, ..Download::default() }
    }

    #[test]
    fn visits_need_two_sufficient_downloads() {
        let of = |first: &Download, second: &Download| Visits::from_downloads(VISIT_BYTES, first, second);
        let (first, second) = (download(VISIT_BYTES, 700, true, Some(0)), download(VISIT_BYTES, 200, true, Some(1)));
        let [slow, fast] = [700, 200].map(Duration::from_millis);
        let visits = Visits { bytes: VISIT_BYTES, first: slow, second: fast, is_reuse: true };
        assert_eq!(of(&first, &second), Some(visits));
        let elsewhere = Download { earlier_sessions: Some(0), ..second.clone() };
        assert_eq!(of(&first, &elsewhere), Some(Visits { is_reuse: false, ..visits }));
        // A server without range requests: the download is stopped after enough bytes.
        let stopped = download(VISIT_BYTES * 2, 700, false, None);
        let half = Duration::from_millis(355);
        assert_eq!(of(&stopped, &stopped), Some(Visits { first: half, second: half, is_reuse: false, ..visits }));
        let small = download(9000, 20, true, None);
        assert_eq!(of(&small, &small).map(|visits| visits.bytes), Some(9000));
        let late = download(9000, 5000, false, Some(0));
        assert_eq!((of(&late, &second), of(&first, &late)), (None, None), "out of time");
    }
}
