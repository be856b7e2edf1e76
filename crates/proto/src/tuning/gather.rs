//! Whether what has arrived of a stream waits for more.
//!
//! Who writes byte by byte makes work for every relay on the way: a read, a record with its tag, a packet, for each write.
//! Where such pieces follow each other closely, and nobody answers in between, a wait of a tenth of a millisecond makes
//! one of many. A piece by itself, or the beginning of a row, never waits, nor does a question that waits for its answer.

use std::time::Duration;

/// Less than this is a small piece, bytes.
const SMALL: usize = 4096;

/// And less than this where pieces were waited for.
const STILL_SMALL: usize = 8 * 1024;

/// So many small pieces make a row.
const ROW: u32 = 4;

/// They follow each other as closely as this,
const CLOSE: Duration = Duration::from_micros(100);

/// and where pieces are waited for, as this.
const STILL_CLOSE: Duration = Duration::from_micros(400);

/// What is known of the pieces of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gather {
    last: Duration,
    /// What the other direction had moved by then.
    answers: u64,
    /// Small pieces that followed each other.
    row: u32,
}

impl Gather {
    /// Whether a piece that has arrived by `now` is to wait for others; `answers` is what the other direction has moved.
    #[must_use]
    pub fn waits(&self, now: Duration, answers: u64) -> bool {
        self.in_row() && self.follows(now, answers)
    }

    /// A piece of so many bytes was taken.
    pub fn took(&mut self, now: Duration, bytes: usize, answers: u64) {
        let small = bytes < if self.in_row() { STILL_SMALL } else { SMALL };
        self.row = if small && self.follows(now, answers) { self.row.saturating_add(1) } else { 0 };
        (self.last, self.answers) = (now, answers);
    }

    fn in_row(&self) -> bool {
        self.row >= ROW
    }

    fn follows(&self, now: Duration, answers: u64) -> bool {
        let close = if self.in_row() { STILL_CLOSE } else { CLOSE };
        now.saturating_sub(self.last) <= close && answers == self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(at: u64) -> Duration {
        Duration::from_micros(at)
    }

    /// After so many pieces of `bytes`, one each `gap` microseconds, whether the next waits.
    fn after(pieces: u64, bytes: usize, gap: u64, answered: bool) -> bool {
        let mut gather = Gather::default();
        let (start, answers) = (1_000_000, |at| if answered { at } else { 0 });
        for at in 0..pieces {
            gather.took(micros(start + at * gap), bytes, answers(at));
        }
        gather.waits(micros(start + pieces * gap), answers(pieces))
    }

    #[test]
    fn only_a_row_of_small_pieces_waits() {
        assert!(after(5, 17, 50, false), "one came, four followed");
        assert!(!after(4, 17, 50, false), "the beginning of a row");
        assert!(!after(1, 17, 50, false) && !after(0, 17, 50, false), "a piece by itself");
        assert!(!after(50, 17, 150, false), "not as close");
        assert!(!after(50, SMALL, 50, false), "not small");
        assert!(!after(50, 17, 50, true), "each is answered");
    }

    #[test]
    fn a_row_goes_on_with_what_was_gathered_and_ends_with_a_pause() {
        let mut gather = Gather::default();
        let row = (0..5).map(|at| (micros(1_000_000 + at * 50), 17));
        let gathered = (1..20).map(|at| (micros(1_000_200 + at * 150), STILL_SMALL - 1));
        for (now, bytes) in row.chain(gathered) {
            gather.took(now, bytes, 0);
        }
        let last = gather.last;
        assert!(gather.waits(last + micros(400), 0));
        assert!(!gather.waits(last + micros(401), 0), "a pause");
        gather.took(last + micros(150), STILL_SMALL, 0);
        assert!(!gather.waits(last + micros(200), 0), "bulk");
    }
}
