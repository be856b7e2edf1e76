//! The health of a next hop: whether it is reachable, and when the next attempt is due. The delays double and have
//! random jitter, so that relays do not all reconnect at the same time after an outage.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// The delays between attempts: the first delay, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySchedule {
    first: Duration,
    longest: Duration,
}

impl RetrySchedule {
    /// Schedule of the keeper, whose attempts delay no session.
    pub const KEEPER: Self = Self { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
    /// Schedule for hops that only sessions try, where each attempt delays one session.
    pub const SESSIONS: Self = Self { first: Duration::from_secs(5), longest: Duration::from_secs(60) };

    /// Returns the delay after `failures` consecutive failures.
    fn delay(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        with_jitter(doubled.min(self.longest))
    }
}

/// The health of a hop.
#[derive(Debug)]
pub struct HopHealth {
    schedule: RetrySchedule,
    down: Option<Downtime>,
}

#[derive(Debug)]
struct Downtime {
    since: Instant,
    failures: u32,
    retry: Instant,
    /// Whether an attempt is in progress.
    claimed: bool,
}

impl HopHealth {
    /// Creates the state of a hop without failures.
    #[must_use]
    pub fn new(schedule: RetrySchedule) -> Self {
        Self { schedule, down: None }
    }

    /// Returns whether the last attempt failed.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Time of the next attempt; `None` if the hop may be tried at any time.
    #[must_use]
    pub fn retry(&self) -> Option<Instant> {
        self.down.as_ref().map(|down| down.retry)
    }

    /// Returns whether the caller may try now. While the hop is down, one attempt is allowed in each delay.
    pub fn try_claim(&mut self, now: Instant) -> bool {
        let Some(down) = &mut self.down else { return true };
        let free = now >= down.retry;
        if free {
            down.claimed = true;
            down.retry = now + self.schedule.delay(down.failures);
        }
        free
    }

    /// Records a failed attempt. Returns true if the hop was up before. Only a claimed attempt increases the delay:
    /// other attempts began before the outage, or had no other hop to use.
    pub fn on_failure(&mut self, now: Instant) -> bool {
        let was_up = self.down.is_none();
        let down = self.down.get_or_insert(Downtime { since: now, failures: 0, retry: now, claimed: true });
        if std::mem::take(&mut down.claimed) {
            down.failures = down.failures.saturating_add(1);
            down.retry = now + self.schedule.delay(down.failures);
        }
        was_up
    }

    /// Records the success of an attempt that began at `started_at`. Returns the duration of the outage if the attempt
    /// ended one. An attempt that began before the outage does not end it: a relay may complete such an attempt while
    /// it restarts.
    pub fn on_success(&mut self, started_at: Instant, now: Instant) -> Option<Duration> {
        let down = self.down.take_if(|down| started_at >= down.since)?;
        Some(now.saturating_duration_since(down.since))
    }
}

/// Returns `span` reduced by a random part of up to a quarter.
#[must_use]
pub fn with_jitter(span: Duration) -> Duration {
    // Each hash table has random keys, which is enough randomness for jitter.
    let random = (RandomState::new().hash_one(()) >> 32) as u32;
    span - span.mul_f64(f64::from(random) / f64::from(u32::MAX) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn retry_delay_doubles_up_to_a_maximum_with_jitter() {
        for (failures, whole) in [(1, 100), (2, 200), (3, 400), (7, 6400), (8, 10_000), (u32::MAX, 10_000)] {
            let whole = Duration::from_millis(whole);
            let pause = RetrySchedule::KEEPER.delay(failures);
            assert!(pause <= whole && pause >= whole * 3 / 4, "{failures} failures: {pause:?}");
        }
        let pauses: std::collections::HashSet<_> = (0..20).map(|_| with_jitter(SECOND)).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn hop_is_down_from_the_first_failure_to_the_next_success() {
        let now = Instant::now();
        let mut health = HopHealth::new(RetrySchedule::KEEPER);
        assert!(!health.is_down() && health.try_claim(now) && health.retry().is_none());
        assert_eq!(health.on_success(now, now), None);
        assert!(health.on_failure(now + SECOND) && health.is_down());
        assert!(!health.on_failure(now + SECOND), "reported once");
        assert_eq!(health.on_success(now, now + SECOND), None, "the attempt began before the failure");
        assert!(health.is_down());
        assert_eq!(health.on_success(now + SECOND, now + SECOND * 3), Some(SECOND * 2));
        assert!(!health.is_down());
    }

    #[test]
    fn one_retry_per_delay_is_allowed_and_only_retries_extend_delays() {
        let now = Instant::now();
        let mut health = HopHealth::new(RetrySchedule::SESSIONS);
        health.on_failure(now);
        let first = health.retry().unwrap();
        (0..50).for_each(|_| assert!(!health.on_failure(now)));
        assert_eq!(health.retry(), Some(first), "sessions that fail together are one failure");
        assert!(!health.try_claim(first - Duration::from_nanos(1)));
        assert!(health.try_claim(first) && !health.try_claim(first), "only one attempt");
        health.on_failure(first);
        assert!(health.retry().unwrap() - first > 5 * SECOND, "the second pause is longer");
    }

    #[test]
    fn success_resets_the_retry_delay() {
        let mut now = Instant::now();
        let mut health = HopHealth::new(RetrySchedule::KEEPER);
        for _ in 0..10 {
            health.on_failure(now);
            now = health.retry().unwrap();
            assert!(health.try_claim(now));
        }
        health.on_success(now, now);
        health.on_failure(now);
        assert!(health.retry().unwrap() - now <= RetrySchedule::KEEPER.first);
    }
}
