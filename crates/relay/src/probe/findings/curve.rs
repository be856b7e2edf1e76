//! What a download tells by when its bytes came.

use std::time::Duration;

use crate::probe::download::Download;

/// From so many bytes on a download says something about the rate.
const MIN_RATE_BYTES: u64 = 256 << 10;

/// How long an object takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletionTime {
    /// From the client's wish to the last byte.
    pub time: Duration,
    /// Whether the download was over before, and went on in thought only.
    pub is_extrapolated: bool,
}

impl Download {
    /// Its second half, when it has found its pace: how much, in how long.
    pub(super) fn second_half(&self) -> Option<(u64, Duration)> {
        let (bytes, end) = *self.progress.last()?;
        let took = end.saturating_sub(self.time_at(bytes / 2)?);
        (bytes >= MIN_RATE_BYTES && !took.is_zero()).then_some((bytes - bytes / 2, took))
    }

    /// When so many bytes had come, or would have at this `rate` if it had not been stopped.
    pub(super) fn completion_time(&self, size: u64, rate: Option<f64>) -> Option<CompletionTime> {
        if let Some(time) = self.time_at(size) {
            return Some(CompletionTime { time, is_extrapolated: false });
        }
        let (bytes, end) = *self.progress.last()?;
        let rest = size.saturating_sub(bytes) as f64 / rate.filter(|_| !self.is_complete)?;
        Some(CompletionTime { time: end + Duration::from_secs_f64(rest), is_extrapolated: true })
    }

    /// When so many bytes had come, evenly between two looks.
    pub(super) fn time_at(&self, size: u64) -> Option<Duration> {
        let at = self.progress.iter().position(|(bytes, _)| *bytes >= size)?;
        let (bytes, time) = self.progress[at];
        let (before, then) = at.checked_sub(1).map_or((0, self.first_byte), |before| self.progress[before]);
        let part = (size - before) as f64 / (bytes - before).max(1) as f64;
        Some(then + time.saturating_sub(then).mul_f64(part.clamp(0.0, 1.0)))
    }
}
