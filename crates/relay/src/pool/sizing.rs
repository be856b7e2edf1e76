//! The number of connections to keep ready, computed from the demand and the time to establish a connection.
//!
//! While one connection is established, `r d` others are taken on average (r takes per second, d seconds of setup
//! time). For independent arrivals the number of takes has a Poisson distribution. With four standard deviations above
//! the mean, one session in ten thousand finds no connection; another half of the mean covers dependent arrivals.
//! Browsers open connections in bursts, so the largest recent burst is also covered.

use std::time::{Duration, Instant};

/// Minimum number of ready connections: one to take, and one for a session that arrives while the first is replaced.
const MIN_READY: usize = 2;

/// Takes per second below which a pool counts as idle: an exponential average never reaches zero.
const IDLE_RATE: f64 = 1.0 / 60.0;

/// Assumed setup time until the first measurement.
const INITIAL_SETUP_TIME: Duration = Duration::from_millis(100);

/// Minimum duration of a burst: on a short path, a refill takes less time than the burst of a browser.
const MIN_BURST_TIME: Duration = Duration::from_millis(100);

/// Time for which a burst counts in full; after that, its size halves in each `BURST_HALF_LIFE`.
const BURST_MEMORY: Duration = Duration::from_secs(60);
const BURST_HALF_LIFE: Duration = Duration::from_secs(30);

/// Maximum number of parallel connection attempts without demand, for example after a restart of the relay.
const MAX_PARALLEL_WHEN_IDLE: usize = 64;

/// Returns the number of connections to keep ready, at most `most`.
///
/// `rate` is the number of takes per second, and `burst` the size of the largest recent burst.
#[must_use]
pub fn target_size(rate: f64, setup_time: Duration, burst: usize, most: usize) -> usize {
    let expected_takes = rate * setup_time.as_secs_f64();
    // A cast from f64 saturates, and turns NaN into 0.
    let steady = (1.5 * expected_takes + 4.0 * expected_takes.sqrt()).ceil() as usize;
    steady.saturating_add(MIN_READY).max(burst).min(most)
}

/// Returns the maximum number of parallel connection attempts: a full refill does not overload the relay, and a steady
/// demand is still met.
#[must_use]
pub fn max_parallel(rate: f64, setup_time: Duration) -> usize {
    ((1.5 * rate * setup_time.as_secs_f64()).ceil() as usize).max(MAX_PARALLEL_WHEN_IDLE)
}

/// The demand on one pool.
#[derive(Debug)]
pub struct PoolDemand {
    /// Short-term rate, which follows a rise within a second and decays as fast.
    fast: EventRate,
    /// Long-term rate, which keeps the demand over pauses of a few seconds.
    slow: EventRate,
    burst: BurstPeak,
    setup_time: Option<Duration>,
}

impl PoolDemand {
    /// Creates the state of a pool without demand.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let window = |seconds| EventRate { seconds, weight: 0.0, at: now };
        Self { fast: window(1.0), slow: window(10.0), burst: BurstPeak::new(now), setup_time: None }
    }

    /// Records that a connection was taken.
    pub fn on_taken(&mut self, now: Instant) {
        self.fast.add(now);
        self.slow.add(now);
        self.burst.add(now, self.setup_time().max(MIN_BURST_TIME));
    }

    /// Records the setup time of a connection.
    pub fn on_made(&mut self, took: Duration) {
        self.setup_time = Some(self.setup_time.map_or(took, |before| (before * 7 + took) / 8));
    }

    /// Returns the number of connections to keep ready, at most `most`.
    #[must_use]
    pub fn target_size(&self, now: Instant, most: usize) -> usize {
        target_size(self.rate(now), self.setup_time(), self.burst.peak(now), most)
    }

    /// Returns the maximum number of parallel connection attempts.
    #[must_use]
    pub fn max_parallel(&self, now: Instant) -> usize {
        max_parallel(self.rate(now), self.setup_time())
    }

    fn rate(&self, now: Instant) -> f64 {
        let rate = self.fast.rate(now).max(self.slow.rate(now));
        if rate < IDLE_RATE { 0.0 } else { rate }
    }

    /// Returns the moving average of the setup time.
    pub fn setup_time(&self) -> Duration {
        self.setup_time.unwrap_or(INITIAL_SETUP_TIME)
    }
}

/// The rate of events, as an exponentially decaying count.
#[derive(Debug)]
struct EventRate {
    seconds: f64,
    weight: f64,
    at: Instant,
}

impl EventRate {
    fn weight(&self, now: Instant) -> f64 {
        self.weight * (-now.saturating_duration_since(self.at).as_secs_f64() / self.seconds).exp()
    }

    fn add(&mut self, now: Instant) {
        self.weight = self.weight(now) + 1.0;
        self.at = now;
    }

    fn rate(&self, now: Instant) -> f64 {
        self.weight(now) / self.seconds
    }
}

/// The largest recent number of connections that were taken within the time of one refill.
#[derive(Debug)]
struct BurstPeak {
    started_at: Instant,
    taken: usize,
    largest: usize,
    at: Instant,
}

impl BurstPeak {
    fn new(now: Instant) -> Self {
        Self { started_at: now, taken: 0, largest: 0, at: now }
    }

    fn add(&mut self, now: Instant, refill: Duration) {
        if now.saturating_duration_since(self.started_at) > refill {
            (self.started_at, self.taken) = (now, 0);
        }
        self.taken += 1;
        if self.taken >= self.peak(now) {
            (self.largest, self.at) = (self.taken, now);
        }
    }

    fn peak(&self, now: Instant) -> usize {
        let age = now.saturating_duration_since(self.at).saturating_sub(BURST_MEMORY);
        (self.largest as f64 * (-age.as_secs_f64() / BURST_HALF_LIFE.as_secs_f64()).exp2()).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256;
    const D: Duration = Duration::from_millis(100);

    /// Records `count` evenly spread takes, `rate` a second, from `from` on. Returns the time of the last take.
    fn take(demand: &mut PoolDemand, from: Instant, rate: u32, count: u32) -> Instant {
        let at = |n| from + Duration::from_secs(1) * n / rate;
        (0..count).for_each(|n| demand.on_taken(at(n)));
        at(count - 1)
    }

    #[test]
    fn target_size_follows_the_documented_formula() {
        assert_eq!(target_size(0.0, D, 0, MOST), 2);
        assert_eq!(target_size(1000.0, D, 0, MOST), 192);
        assert_eq!(target_size(1000.0, D, 0, 50), 50);
        assert_eq!(target_size(0.0, D, 30, MOST), 30);
        assert_eq!(target_size(f64::NAN, D, 0, MOST), 2);
        assert_eq!(target_size(f64::MAX, Duration::MAX, usize::MAX, MOST), MOST);
    }

    #[test]
    fn target_size_is_monotonic_in_demand_and_setup_time() {
        let mut before = 0;
        for rate in 0..2000 {
            let now = target_size(f64::from(rate), D, 0, MOST);
            assert!(
                now >= before && (2..=MOST).contains(&now),
                "{now} connections for {rate}/s, {before} for one less"
            );
            assert!(target_size(f64::from(rate), D * 2, 0, MOST) >= now, "a slower path needs at least as many");
            before = now;
        }
    }

    #[test]
    fn parallel_dials_are_bounded_and_grow_with_demand() {
        assert_eq!(max_parallel(0.0, D), 64);
        assert_eq!(max_parallel(1000.0, D), 150);
    }

    #[test]
    fn target_size_rises_within_seconds_and_falls_after_minutes() {
        let start = Instant::now();
        let mut demand = PoolDemand::new(start);
        assert_eq!(demand.target_size(start, MOST), 2);
        let now = take(&mut demand, start, 1000, 3000);
        let wanted = demand.target_size(now, MOST);
        assert!((180..=200).contains(&wanted), "after three seconds of 1000/s: {wanted}");
        let pause = demand.target_size(now + Duration::from_secs(5), MOST);
        assert!(pause > 20, "a pause of seconds keeps connections: {pause}");
        assert_eq!(demand.target_size(now + Duration::from_secs(600), MOST), 2);
    }

    #[test]
    fn a_burst_is_remembered_for_a_minute() {
        let start = Instant::now();
        let mut demand = PoolDemand::new(start);
        demand.on_made(Duration::from_millis(20));
        let now = take(&mut demand, start, 1000, 30);
        for (later, least, most) in [(1, 30, 40), (59, 30, 30), (90, 14, 16), (600, 2, 2)] {
            let wanted = demand.target_size(now + Duration::from_secs(later), MOST);
            assert!((least..=most).contains(&wanted), "{later} s after the burst: {wanted}");
        }
        let slow = take(&mut demand, now + Duration::from_secs(600), 1, 5);
        assert!(demand.target_size(slow, MOST) < 10, "single takes are no burst");
    }

    #[test]
    fn setup_time_is_smoothed() {
        let mut demand = PoolDemand::new(Instant::now());
        assert_eq!(demand.setup_time(), INITIAL_SETUP_TIME);
        demand.on_made(Duration::from_millis(80));
        assert_eq!(demand.setup_time(), Duration::from_millis(80));
        demand.on_made(Duration::from_millis(160));
        assert_eq!(demand.setup_time(), Duration::from_millis(90));
    }
}
