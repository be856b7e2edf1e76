//! When to change: a better path has to be better by a margin and for some time, and longer the more often it went to and
//! fro. A path that has become much worse than it was is left at once, and so is one that sessions show to be worse than
//! direct.

use std::time::Duration;

use super::candidates::Hops;

/// A gain below this is no reason to change,
const MARGIN: f64 = 1.04;

/// but a small loss against direct is: relays cost others something, too.
const MARGIN_TO_DIRECT: f64 = 1.02;

/// A path that nobody has taken yet is predicted by what is said of it: of many such the best is the one of which too much is
/// said.
const UNTRIED: f64 = 1.3;

/// So long the gain has to last, if it did not change of late.
const DWELL: f64 = 3.0;

/// And so long at most, in seconds as well.
const LONGEST_DWELL: f64 = 300.0;

/// After so many seconds a change counts half.
const CALMS_IN: f64 = 300.0;

/// Nobody went there for so long: the choice is made anew.
const IDLE: Duration = Duration::from_secs(30);

/// So much worse than it was of late, and than the best, is a path that has degraded.
const DEGRADED: f64 = 1.5;
const BEATEN: f64 = 1.25;

/// What was of late: so many seconds.
const LATE: f64 = 60.0;

/// A choice that is none of so many before it is a new one: who learns does not flap.
const LEFT: usize = 3;

/// A path that may be taken, and how many seconds are predicted for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Open {
    pub hops: Hops,
    pub predicted: f64,
    /// Whether this relay knows that from sessions of its own.
    pub experienced: bool,
}

/// What became of the standing choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The best is taken, or was already.
    Best,
    /// Another is better, but not by enough or not for long enough.
    Kept,
    /// It has become much worse than it was.
    Degraded,
    /// It is not open any more.
    Gone,
}

/// The standing choice of one prefix and size.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stand {
    kept: Option<Hops>,
    /// What was predicted for it of late, in seconds.
    usual: f64,
    /// When somebody last asked.
    asked: Duration,
    /// Since when another one is better.
    beaten_since: Option<Duration>,
    /// Changes, the older ones counted less.
    changes: f64,
    /// The choices before it.
    left: [Option<Hops>; LEFT],
}

impl Stand {
    /// The standing choice.
    pub const fn kept(&self) -> Option<Hops> {
        self.kept
    }

    /// Decides which of `open` to take, which is sorted, the best first, and not empty: its place, and why.
    pub fn decide(&mut self, open: &[Open], now: Duration) -> (usize, Verdict) {
        let quiet = now.saturating_sub(std::mem::replace(&mut self.asked, now));
        self.changes *= (-quiet.as_secs_f64() / CALMS_IN).exp2();
        let Some(kept) = self.kept else { return self.take(open, Verdict::Best) };
        let Some(at) = open.iter().position(|open| open.hops == kept) else { return self.take(open, Verdict::Gone) };
        let verdict = self.judge(open, at, quiet, now);
        if at > 0 && verdict != Verdict::Kept {
            if self.left.contains(&Some(open[0].hops)) {
                self.changes += 1.0;
            }
            self.left.rotate_right(1);
            self.left[0] = self.kept;
            return self.take(open, verdict);
        }
        self.usual += (open[at].predicted - self.usual) * (quiet.as_secs_f64() / LATE).min(1.0);
        (at, verdict)
    }

    fn judge(&mut self, open: &[Open], at: usize, quiet: Duration, now: Duration) -> Verdict {
        let (best, kept) = (&open[0], &open[at]);
        let gain = kept.predicted / best.predicted;
        let margin = match best {
            Open { experienced: false, .. } if kept.experienced => UNTRIED,
            best if best.hops.is_direct() => MARGIN_TO_DIRECT,
            _ => MARGIN,
        };
        if at == 0 || gain < margin {
            self.beaten_since = None;
            return if at == 0 { Verdict::Best } else { Verdict::Kept };
        }
        if gain >= BEATEN && kept.predicted >= DEGRADED * self.usual {
            return Verdict::Degraded;
        }
        let is_beaten =
            |by: &Open| kept.predicted > by.predicted * MARGIN_TO_DIRECT && by.experienced && kept.experienced;
        let worse_than_direct = open.iter().find(|open| open.hops.is_direct()).is_some_and(is_beaten);
        let since = *self.beaten_since.get_or_insert(now);
        let dwell = (DWELL * self.changes.exp2()).min(LONGEST_DWELL);
        let lasts = now.saturating_sub(since).as_secs_f64() >= dwell;
        if worse_than_direct || lasts || quiet >= IDLE { Verdict::Best } else { Verdict::Kept }
    }

    fn take(&mut self, open: &[Open], verdict: Verdict) -> (usize, Verdict) {
        self.kept = Some(open[0].hops);
        self.usual = open[0].predicted;
        self.beaten_since = None;
        (0, verdict)
    }
}

#[cfg(test)]
mod tests;
