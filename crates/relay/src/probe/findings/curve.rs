//! What a download tells by when its bytes came.

use std::time::Duration;

use crate::probe::download::Download;

/// From so many bytes on a download says something about the rate.
const ENOUGH: u64 = 256 << 10;

/// How long an object takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// From the client's wish to the last byte.
    pub time: Duration,
    /// Whether the download was over before, and went on in thought only.
    pub continued: bool,
}

impl Download {
    /// Its second half, when it has found its pace: how much, in how long.
    pub(super) fn second_half(&self) -> Option<(u64, Duration)> {
        let (bytes, end) = *self.curve.last()?;
        let took = end.saturating_sub(self.reached(bytes / 2)?);
        (bytes >= ENOUGH && !took.is_zero()).then_some((bytes - bytes / 2, took))
    }

    /// When so many bytes had come, or would have at this `rate` if it had not been stopped.
    pub(super) fn time_of(&self, size: u64, rate: Option<f64>) -> Option<Time> {
        if let Some(time) = self.reached(size) {
            return Some(Time { time, continued: false });
        }
        let (bytes, end) = *self.curve.last()?;
        let rest = size.saturating_sub(bytes) as f64 / rate.filter(|_| !self.whole)?;
        Some(Time { time: end + Duration::from_secs_f64(rest), continued: true })
    }

    /// When so many bytes had come, evenly between two looks.
    pub(super) fn reached(&self, size: u64) -> Option<Duration> {
        let at = self.curve.iter().position(|(bytes, _)| *bytes >= size)?;
        let (bytes, time) = self.curve[at];
        let (before, then) = at.checked_sub(1).map_or((0, self.first_byte), |before| self.curve[before]);
        let part = (size - before) as f64 / (bytes - before).max(1) as f64;
        Some(then + time.saturating_sub(then).mul_f64(part.clamp(0.0, 1.0)))
    }
}
