//! A rate limit that the sessions of all threads share. Each flow takes a turn to transfer a few bytes, and turns are
//! scheduled one after another at the rate.
//!
//! This is the virtual scheduling algorithm of ITU-T I.371 (GCRA): the state is the time at which the next turn begins.
//! A turn is taken before its bytes are transferred and is queued behind the turns of other flows, so that flows share
//! the rate equally and none starves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ekiden_proto::units::Rate;

/// Unused time that flows may catch up in a burst. It is much longer than the resolution of timers, a millisecond, and
/// less than 0.2 % of a minute.
const BURST: Duration = Duration::from_millis(100);

/// Time by which datagrams may be ahead of the rate, because they arrive in bursts and cannot wait. Less than 0.5 % of
/// a minute.
const DATAGRAM_LEAD: Duration = Duration::from_millis(250);

/// Turns per second, within the bounds on the size of a turn.
const TURNS_PER_SECOND: u64 = 100;

/// The smallest turn, in bytes: a small packet.
const MIN_TURN: u64 = 512;

/// The largest turn, in bytes: one large read.
const MAX_TURN: u64 = 64 * 1024;

/// The rate limiter of one direction.
#[derive(Debug)]
pub struct RateLimiter {
    began: Instant,
    /// Bytes per second; 0 for no limit.
    rate: AtomicU64,
    /// When the next turn begins, in nanoseconds after `began`.
    next: AtomicU64,
    /// When the next datagram conforms to the rate, in nanoseconds after `began`. Turns of waiting flows do not count.
    next_datagram: AtomicU64,
}

impl RateLimiter {
    /// Returns a limiter without a limit.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            rate: AtomicU64::new(0),
            next: AtomicU64::new(0),
            next_datagram: AtomicU64::new(0),
        }
    }

    /// Sets the rate for all future turns; `None` removes the limit.
    pub fn set_rate(&self, rate: Option<Rate>) {
        let rate = rate.map_or(0, Rate::bytes_per_second);
        if self.rate.swap(rate, Ordering::Relaxed) != rate {
            self.next.store(0, Ordering::Relaxed);
            self.next_datagram.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of a turn; `None` without a limit.
    pub fn turn_size(&self) -> Option<u64> {
        let rate = self.rate.load(Ordering::Relaxed);
        (rate > 0).then(|| (rate / TURNS_PER_SECOND).clamp(MIN_TURN, MAX_TURN))
    }

    /// Returns whether a datagram may pass now; datagrams do not wait for a turn.
    pub fn may_pass(&self, now: Instant) -> bool {
        let next = self.next_datagram.load(Ordering::Relaxed);
        self.rate.load(Ordering::Relaxed) == 0 || next <= self.offset(now + DATAGRAM_LEAD)
    }

    /// Charges a passing datagram of `bytes`. While flows wait, it costs twice its time, which leaves half of the rate
    /// to the flows. After the datagram was sent, [`Self::settle`] delays the turns of flows.
    pub fn take_datagram(&self, bytes: u64, now: Instant) {
        let flows_wait = self.next.load(Ordering::Relaxed) > self.next_datagram.load(Ordering::Relaxed);
        self.advance(&self.next_datagram, if flows_wait { 2 * bytes } else { bytes }, now);
    }

    /// Takes a turn for `bytes`. Returns the time from which they may be transferred.
    pub fn take(&self, bytes: u64, now: Instant) -> Instant {
        self.advance(&self.next, bytes, now)
    }

    /// Advances `next` by the time of `bytes`. Returns the previous value.
    fn advance(&self, next: &AtomicU64, bytes: u64, now: Instant) -> Instant {
        let Some(cost) = self.cost(bytes) else { return now };
        let earliest = self.offset(now.checked_sub(BURST).unwrap_or(now));
        let moved = |next: u64| Some(next.max(earliest).saturating_add(cost));
        let previous = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        let start = previous.unwrap_or_else(|next| next).max(earliest);
        self.began + Duration::from_nanos(start)
    }

    /// Settles a turn of `taken` bytes in which `moved` bytes were transferred: refunds the unused bytes, or charges
    /// the additional bytes.
    pub fn settle(&self, taken: u64, moved: u64) {
        if self.rate.load(Ordering::Relaxed) == 0 {
            return;
        }
        match self.cost(taken.saturating_sub(moved)) {
            None | Some(0) => {
                self.take(moved.saturating_sub(taken), Instant::now());
            }
            Some(rest) => {
                let earlier = |next: u64| Some(next.saturating_sub(rest));
                // Always succeeds: the function has a value for each state.
                let _ = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
            }
        }
    }

    /// Returns the time of `bytes` at the rate, in nanoseconds; `None` without a limit.
    fn cost(&self, bytes: u64) -> Option<u64> {
        let cost = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.rate.load(Ordering::Relaxed)))?;
        Some(u64::try_from(cost).unwrap_or(u64::MAX))
    }

    fn offset(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(rate: &str) -> RateLimiter {
        let limiter = RateLimiter::new();
        limiter.set_rate(Some(rate.parse().unwrap()));
        limiter
    }

    /// Returns the bytes that a flow moves in a minute if each of its timers expires late by `late`.
    fn bytes_in_a_minute(limiter: &RateLimiter, late: Duration) -> u64 {
        let (mut now, mut moved) = (limiter.began, 0);
        let size = limiter.turn_size().unwrap();
        while now < limiter.began + 60 * SECOND {
            let at = limiter.take(size, now);
            if at > now {
                now = at + late;
            }
            moved += size;
        }
        moved
    }

    #[test]
    fn late_timers_do_not_change_the_rate_over_a_minute() {
        for (rate, bytes) in [("8kbit/s", 60_000.0), ("1Mbit/s", 7.5e6), ("100Mbit/s", 750e6), ("10Gbit/s", 75e9)] {
            for late in [0, 2, 50].map(Duration::from_millis) {
                let moved = bytes_in_a_minute(&limiter(rate), late) as f64;
                assert!((moved / bytes - 1.0).abs() < 0.02, "{moved} of {bytes} at {rate}, late by {late:?}");
            }
        }
    }

    #[test]
    fn turns_are_queued_and_unused_bytes_are_refunded() {
        let limiter = limiter("8Mbit/s");
        let now = limiter.began + 10 * SECOND;
        let begin = now - BURST;
        assert_eq!(limiter.take(1_000_000, now), begin, "a burst passes without a wait");
        assert_eq!(limiter.take(500_000, now), begin + SECOND);
        limiter.settle(500_000, 100_000);
        assert_eq!(limiter.take(1, now), begin + SECOND * 11 / 10);
        limiter.set_rate(None);
        assert_eq!((limiter.take(1 << 40, now), limiter.turn_size()), (now, None), "no limit");
        assert!(limiter.may_pass(now));
    }

    #[test]
    fn new_rate_starts_without_debt() {
        let limiter = limiter("8kbit/s");
        let now = limiter.began + SECOND;
        limiter.take(1 << 30, now);
        limiter.take_datagram(1 << 30, now);
        limiter.set_rate(Some("8kbit/s".parse().unwrap()));
        assert!(!limiter.may_pass(now), "the same rate");
        limiter.set_rate(Some("16kbit/s".parse().unwrap()));
        assert_eq!(limiter.take(0, now), now - BURST);
        assert!(limiter.may_pass(now));
    }

    /// Returns the bytes of 1000-byte datagrams that pass in a minute, sent at ten times the rate beside `flows` flows
    /// that always have bytes to send, and the longest wait of a flow.
    fn datagrams_in_a_minute(limiter: &RateLimiter, flows: usize) -> (u64, Duration) {
        let size = limiter.turn_size().unwrap();
        let mut turns = vec![limiter.began; flows];
        let (mut now, mut passed, mut longest) = (limiter.began, 0, Duration::ZERO);
        let interval = Duration::from_nanos(limiter.cost(100).unwrap());
        while now < limiter.began + 60 * SECOND {
            for turn in turns.iter_mut().filter(|turn| **turn <= now) {
                *turn = limiter.take(size, now);
                longest = longest.max(turn.saturating_duration_since(now));
            }
            if limiter.may_pass(now) {
                limiter.take_datagram(1000, now);
                limiter.settle(0, 1000);
                passed += 1000;
            }
            now += interval;
        }
        (passed, longest)
    }

    #[test]
    fn datagrams_and_waiting_flows_share_the_rate() {
        for (rate, bytes) in [("8kbit/s", 60e3), ("1Mbit/s", 7.5e6)] {
            for (flows, share) in [(0, 0.98..1.05), (1, 0.48..1.05), (100, 0.48..0.55)] {
                let (passed, longest) = datagrams_in_a_minute(&limiter(rate), flows);
                let passed = passed as f64 / bytes;
                assert!(share.contains(&passed), "{passed} of {rate} beside {flows} flows");
                let turns = Duration::from_secs_f64((flows + 2) as f64 * 2.0 * 1250.0 * 60.0 / bytes);
                assert!(longest <= turns + 2 * DATAGRAM_LEAD, "a wait of {longest:?} at {rate} among {flows} flows");
            }
        }
    }
}
