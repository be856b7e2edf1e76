//! How much of a stream goes into one record.
//!
//! A relay can pass on nothing of a record before it has all of it. So the first records of a stream are small, and those
//! after a pause, which begin an answer that somebody waits for; a stream that goes on gets large ones, which cost least.

use std::time::Duration;

/// Plaintext of the first records of a stream, in bytes.
const FIRST_RECORD: usize = 4096;

/// For so many bytes of the stream a record may be one byte longer.
const GROWTH: u64 = 16;

/// What is a pause: longer than the gaps of a stream on a long path that still opens its window.
const IDLE_RESET: Duration = Duration::from_millis(500);

/// Most plaintext of a record behind so many bytes of a stream, and never more than `most`.
#[must_use]
pub fn max_record_size(behind: u64, most: usize) -> usize {
    usize::try_from(behind / GROWTH).map_or(most, |grown| (FIRST_RECORD + grown).min(most))
}

/// The records of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordSizer {
    /// Bytes since the last pause.
    run_bytes: u64,
    last: Duration,
}

impl RecordSizer {
    /// Most plaintext of the next record, made at `now`, and never more than `most`.
    pub fn next_size(&mut self, now: Duration, most: usize) -> usize {
        if now.saturating_sub(std::mem::replace(&mut self.last, now)) > IDLE_RESET {
            self.run_bytes = 0;
        }
        max_record_size(self.run_bytes, most)
    }

    /// So many bytes went into it.
    pub fn record(&mut self, bytes: usize) {
        self.run_bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 65_519;

    #[test]
    fn records_grow_with_the_run_and_are_small_after_a_pause() {
        let mut grain = RecordSizer::default();
        let mut now = Duration::ZERO;
        let mut before = 0;
        for _ in 0..200 {
            let room = grain.next_size(now, MOST);
            assert!(room >= before && (FIRST_RECORD..=MOST).contains(&room), "{room} after {before}");
            before = room;
            grain.record(room);
            now += IDLE_RESET;
        }
        assert_eq!(before, MOST, "bulk goes in whole records");
        assert_eq!(grain.next_size(now + IDLE_RESET, MOST), FIRST_RECORD, "{grain:?}");
    }

    #[test]
    fn the_bound_is_never_passed() {
        assert_eq!(RecordSizer::default().next_size(Duration::ZERO, 100), 100);
    }
}
