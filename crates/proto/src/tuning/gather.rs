//! Record sizes of a stream, and the decision whether small pieces wait for more data.
//!
//! A sender that writes byte by byte causes a read, a record with its tag and a packet at every relay for each write.
//! If such pieces follow each other closely and no byte arrives in the reverse direction, a wait of a tenth of a
//! millisecond combines many of them into one. A single piece, the first pieces of a burst, and a request that waits
//! for its response are never delayed.
//!
//! A relay can forward a record only after it has received all of it. Therefore the first records of a stream, and
//! those after a pause, are small; a continuing stream gets large records, which cost least CPU time per byte.

use std::time::Duration;

/// A piece with fewer bytes is small.
const SMALL_PIECE: usize = 4096;

/// A piece with fewer bytes is small during a burst, in which pieces are combined.
const SMALL_IN_BURST: usize = 8 * 1024;

/// Number of consecutive small pieces that make a burst.
const MIN_BURST: u32 = 4;

/// Longest gap between the pieces that begin a burst.
const MAX_GAP: Duration = Duration::from_micros(100);

/// Longest gap between the pieces during a burst, while the relay waits for further pieces.
const MAX_GAP_IN_BURST: Duration = Duration::from_micros(400);

/// The recent pieces of one direction, from which [`WriteCoalescer::should_wait`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteCoalescer {
    last: Duration,
    /// Byte count of the reverse direction at `last`.
    reverse_bytes: u64,
    /// Number of consecutive small pieces that followed each other closely.
    burst: u32,
}

impl WriteCoalescer {
    /// Whether a piece that arrived at `now` should wait for more data; `reverse_bytes` is the byte count of the
    /// reverse direction.
    #[must_use]
    pub fn should_wait(&self, now: Duration, reverse_bytes: u64) -> bool {
        self.is_in_burst() && self.is_close(now, reverse_bytes)
    }

    /// Records that a piece of `bytes` bytes was read at `now`.
    pub fn record(&mut self, now: Duration, bytes: usize, reverse_bytes: u64) {
        let is_small = bytes < if self.is_in_burst() { SMALL_IN_BURST } else { SMALL_PIECE };
        self.burst = if is_small && self.is_close(now, reverse_bytes) { self.burst.saturating_add(1) } else { 0 };
        (self.last, self.reverse_bytes) = (now, reverse_bytes);
    }

    fn is_in_burst(&self) -> bool {
        self.burst >= MIN_BURST
    }

    fn is_close(&self, now: Duration, reverse_bytes: u64) -> bool {
        let max_gap = if self.is_in_burst() { MAX_GAP_IN_BURST } else { MAX_GAP };
        now.saturating_sub(self.last) <= max_gap && reverse_bytes == self.reverse_bytes
    }
}

/// Plaintext of the first records of a stream, in bytes.
const FIRST_RECORD: usize = 4096;

/// Stream bytes for each byte by which the largest record grows.
const GROWTH: u64 = 16;

/// The shortest pause that resets the record size: longer than the gaps of a stream on a long path in slow start.
const IDLE_RESET: Duration = Duration::from_millis(500);

/// Largest plaintext of a record after `position` bytes of a stream, in bytes; at most `max_size`.
#[must_use]
pub fn max_record_size(position: u64, max_size: usize) -> usize {
    usize::try_from(position / GROWTH).map_or(max_size, |growth| (FIRST_RECORD + growth).min(max_size))
}

/// The record size of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordSizer {
    /// Bytes since the last pause.
    run_bytes: u64,
    last: Duration,
}

impl RecordSizer {
    /// Returns the largest plaintext of the record to be made at `now`, in bytes; at most `max_size`.
    pub fn next_size(&mut self, now: Duration, max_size: usize) -> usize {
        if now.saturating_sub(std::mem::replace(&mut self.last, now)) > IDLE_RESET {
            self.run_bytes = 0;
        }
        max_record_size(self.run_bytes, max_size)
    }

    /// Records that the record contained `bytes` bytes of plaintext.
    pub fn record(&mut self, bytes: usize) {
        self.run_bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(at: u64) -> Duration {
        Duration::from_micros(at)
    }

    /// Whether the next piece waits after `pieces` pieces of `bytes`, `gap` microseconds apart.
    fn after(pieces: u64, bytes: usize, gap: u64, answered: bool) -> bool {
        let mut coalescer = WriteCoalescer::default();
        let (start, answers) = (1_000_000, |at| if answered { at } else { 0 });
        for at in 0..pieces {
            coalescer.record(micros(start + at * gap), bytes, answers(at));
        }
        coalescer.should_wait(micros(start + pieces * gap), answers(pieces))
    }

    #[test]
    fn only_a_burst_of_small_pieces_waits() {
        assert!(after(5, 17, 50, false), "four pieces closely follow the first");
        assert!(!after(4, 17, 50, false), "the beginning of a burst");
        assert!(!after(1, 17, 50, false) && !after(0, 17, 50, false), "a single piece");
        assert!(!after(50, 17, 150, false), "not close enough");
        assert!(!after(50, SMALL_PIECE, 50, false), "not small");
        assert!(!after(50, 17, 50, true), "each is answered");
    }

    #[test]
    fn burst_continues_with_gathered_pieces_and_ends_with_a_pause() {
        let mut coalescer = WriteCoalescer::default();
        let burst = (0..5).map(|at| (micros(1_000_000 + at * 50), 17));
        let gathered = (1..20).map(|at| (micros(1_000_200 + at * 150), SMALL_IN_BURST - 1));
        for (now, bytes) in burst.chain(gathered) {
            coalescer.record(now, bytes, 0);
        }
        let last = coalescer.last;
        assert!(coalescer.should_wait(last + micros(400), 0));
        assert!(!coalescer.should_wait(last + micros(401), 0), "a pause");
        coalescer.record(last + micros(150), SMALL_IN_BURST, 0);
        assert!(!coalescer.should_wait(last + micros(200), 0), "bulk");
    }

    const MOST: usize = 65_519;

    #[test]
    fn record_size_grows_in_a_run_and_resets_after_a_pause() {
        let mut sizer = RecordSizer::default();
        let mut now = Duration::ZERO;
        let mut before = 0;
        for _ in 0..200 {
            let room = sizer.next_size(now, MOST);
            assert!(room >= before && (FIRST_RECORD..=MOST).contains(&room), "{room} after {before}");
            before = room;
            sizer.record(room);
            now += IDLE_RESET;
        }
        assert_eq!(before, MOST, "bulk data fills the largest records");
        assert_eq!(sizer.next_size(now + IDLE_RESET, MOST), FIRST_RECORD, "{sizer:?}");
    }

    #[test]
    fn record_size_never_exceeds_the_bound() {
        assert_eq!(RecordSizer::default().next_size(Duration::ZERO, 100), 100);
    }
}
