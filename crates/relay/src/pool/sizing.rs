//! How many connections to have ready: pure arithmetic over what was taken when, and how long one takes to make.
//!
//! While one is made, `r d` others are taken on average (r of them a second, d seconds to make one). Were arrivals
//! independent of each other, their number would be Poisson, and four standard deviations above the mean leave one in
//! ten thousand without; half the mean on top is for what is not independent. Browsers are not: they come in bursts, of
//! which the largest is remembered.

use std::time::{Duration, Instant};

/// What is wanted however quiet it is: one to take, and one for whoever comes while that is made up for.
const LEAST: usize = 2;

/// Takes a second below which a pool is idle: an exponential never gets to zero.
const IDLE: f64 = 1.0 / 60.0;

/// How long making one takes, until that has been seen.
const GUESS: Duration = Duration::from_millis(100);

/// A burst lasts at least that long: on a short path a refill is quicker than a browser.
const BURST: Duration = Duration::from_millis(100);

/// How long a burst counts in full, and in which time it counts half after that.
const REMEMBERED: Duration = Duration::from_secs(60);
const HALVED: Duration = Duration::from_secs(30);

/// Most that are made at once when nobody takes any, as after a restart of the relay.
const AT_ONCE: usize = 64;

/// How many to have ready, of at most `most`.
///
/// `rate` is that of taking, a second; `making` the time it takes to make one; `burst` a number that was taken at once.
#[must_use]
pub fn wanted(rate: f64, making: Duration, burst: usize, most: usize) -> usize {
    let meanwhile = rate * making.as_secs_f64();
    // A cast from f64 stops at the ends of the range, and takes what is no number for 0.
    let steady = (1.5 * meanwhile + 4.0 * meanwhile.sqrt()).ceil() as usize;
    steady.saturating_add(LEAST).max(burst).min(most)
}

/// How many may be made at once: a full refill is no stampede, and a steady demand is still met.
#[must_use]
pub fn at_once(rate: f64, making: Duration) -> usize {
    ((1.5 * rate * making.as_secs_f64()).ceil() as usize).max(AT_ONCE)
}

/// What one pool is asked for.
#[derive(Debug)]
pub struct Demand {
    /// Follows a rise within a second, and forgets as fast.
    fast: Window,
    /// Keeps what a pause of a few seconds would make the other forget.
    slow: Window,
    burst: Burst,
    making: Option<Duration>,
}

impl Demand {
    /// Nothing has been asked for.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let window = |seconds| Window { seconds, weight: 0.0, at: now };
        Self { fast: window(1.0), slow: window(10.0), burst: Burst::new(now), making: None }
    }

    /// One was asked for.
    pub fn taken(&mut self, now: Instant) {
        self.fast.add(now);
        self.slow.add(now);
        self.burst.add(now, self.making().max(BURST));
    }

    /// One was made, and that took so long.
    pub fn made(&mut self, took: Duration) {
        self.making = Some(self.making.map_or(took, |before| (before * 7 + took) / 8));
    }

    /// How many to have ready.
    #[must_use]
    pub fn wanted(&self, now: Instant, most: usize) -> usize {
        wanted(self.rate(now), self.making(), self.burst.remembered(now), most)
    }

    /// How many may be made at once.
    #[must_use]
    pub fn at_once(&self, now: Instant) -> usize {
        at_once(self.rate(now), self.making())
    }

    fn rate(&self, now: Instant) -> f64 {
        let rate = self.fast.rate(now).max(self.slow.rate(now));
        if rate < IDLE { 0.0 } else { rate }
    }

    fn making(&self) -> Duration {
        self.making.unwrap_or(GUESS)
    }
}

/// Counts events, and forgets them exponentially.
#[derive(Debug)]
struct Window {
    seconds: f64,
    weight: f64,
    at: Instant,
}

impl Window {
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

/// The largest number that was taken within one refill.
#[derive(Debug)]
struct Burst {
    begun: Instant,
    taken: usize,
    largest: usize,
    at: Instant,
}

impl Burst {
    fn new(now: Instant) -> Self {
        Self { begun: now, taken: 0, largest: 0, at: now }
    }

    fn add(&mut self, now: Instant, refill: Duration) {
        if now.saturating_duration_since(self.begun) > refill {
            (self.begun, self.taken) = (now, 0);
        }
        self.taken += 1;
        if self.taken >= self.remembered(now) {
            (self.largest, self.at) = (self.taken, now);
        }
    }

    fn remembered(&self, now: Instant) -> usize {
        let age = now.saturating_duration_since(self.at).saturating_sub(REMEMBERED);
        (self.largest as f64 * (-age.as_secs_f64() / HALVED.as_secs_f64()).exp2()).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256;
    const D: Duration = Duration::from_millis(100);

    /// Evenly spread takes, `rate` a second, from `from` on; returns when the last was.
    fn take(demand: &mut Demand, from: Instant, rate: u32, count: u32) -> Instant {
        let at = |n| from + Duration::from_secs(1) * n / rate;
        (0..count).for_each(|n| demand.taken(at(n)));
        at(count - 1)
    }

    #[test]
    fn the_formula_is_that_of_the_head_comment() {
        assert_eq!(wanted(0.0, D, 0, MOST), 2);
        assert_eq!(wanted(1000.0, D, 0, MOST), 192);
        assert_eq!(wanted(1000.0, D, 0, 50), 50);
        assert_eq!(wanted(0.0, D, 30, MOST), 30);
        assert_eq!(wanted(f64::NAN, D, 0, MOST), 2);
        assert_eq!(wanted(f64::MAX, Duration::MAX, usize::MAX, MOST), MOST);
    }

    #[test]
    fn more_demand_never_wants_less() {
        let mut before = 0;
        for rate in 0..2000 {
            let now = wanted(f64::from(rate), D, 0, MOST);
            assert!(now >= before && (2..=MOST).contains(&now), "{rate}/s wants {now}, less by one wants {before}");
            assert!(wanted(f64::from(rate), D * 2, 0, MOST) >= now, "a slower path wants no less");
            before = now;
        }
    }

    #[test]
    fn a_refill_is_no_stampede_and_a_steady_demand_is_met() {
        assert_eq!(at_once(0.0, D), 64);
        assert_eq!(at_once(1000.0, D), 150);
    }

    #[test]
    fn a_sudden_rise_is_followed_within_seconds_and_forgotten_within_a_minute() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        assert_eq!(demand.wanted(start, MOST), 2);
        let now = take(&mut demand, start, 1000, 3000);
        let wanted = demand.wanted(now, MOST);
        assert!((180..=200).contains(&wanted), "after three seconds of 1000/s: {wanted}");
        let pause = demand.wanted(now + Duration::from_secs(5), MOST);
        assert!(pause > 20, "a pause of seconds is no reason to give up: {pause}");
        assert_eq!(demand.wanted(now + Duration::from_secs(600), MOST), 2);
    }

    #[test]
    fn a_burst_is_remembered_for_a_minute() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        demand.made(Duration::from_millis(20));
        let now = take(&mut demand, start, 1000, 30);
        for (later, least, most) in [(1, 30, 40), (59, 30, 30), (90, 14, 16), (600, 2, 2)] {
            let wanted = demand.wanted(now + Duration::from_secs(later), MOST);
            assert!((least..=most).contains(&wanted), "{later} s after the burst: {wanted}");
        }
        let slow = take(&mut demand, now + Duration::from_secs(600), 1, 5);
        assert!(demand.wanted(slow, MOST) < 10, "what comes one by one is no burst");
    }

    #[test]
    fn the_time_to_make_one_is_smoothed() {
        let mut demand = Demand::new(Instant::now());
        assert_eq!(demand.making(), GUESS);
        demand.made(Duration::from_millis(80));
        assert_eq!(demand.making(), Duration::from_millis(80));
        demand.made(Duration::from_millis(160));
        assert_eq!(demand.making(), Duration::from_millis(90));
    }
}
