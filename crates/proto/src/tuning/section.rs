//! The tuner of a section: the state of the path by the kernel's counters, and the settings that follow.

use std::time::Duration;

use super::{Tuning, TuningSample};

/// Smallest `rto_min`: above the longest delay of a peer that is tuned as well, plus one tick of the kernel's clock on
/// each side.
const MIN_RTO_MIN: Duration = Duration::from_millis(28);

/// Largest `rto_min` that a socket accepts (`TCP_RTO_MIN_US`): the kernel's default.
const MAX_RTO_MIN: Duration = Duration::from_millis(200);

/// Allowance added to the round trips in `rto_min`: the timer of the tail loss probe adds two ticks of 4 ms and rounds
/// up (tcp_schedule_loss_probe()), and the rest is for scheduling delays.
const RTO_SLACK: Duration = Duration::from_millis(24);

/// Round trips in `rto_min`. The tail is probed two round trips after it was sent, and the answer takes a third (RFC
/// 8985, 7.2). An earlier timeout would shrink the window to one segment, which a probe would not, and would undo this
/// too late if only the acknowledgement was lost.
const ROUND_TRIPS: u32 = 2;

/// The longest timeout as a multiple of the shortest: long enough that almost nothing is sent into an outage.
const RTO_MAX_FACTOR: u32 = 8;

/// Bounds of `rto_max`: the smallest value that a socket accepts (`TCP_RTO_MAX_MS`), and the longest acceptable wait
/// after an outage.
const MIN_RTO_MAX: Duration = Duration::from_secs(1);
const MAX_RTO_MAX: Duration = Duration::from_secs(10);

/// Longest delay of ACKs where few segments arrive in a round trip, or some are lost: the smallest value that a socket
/// accepts, because without ACKs the sender can neither continue nor detect losses.
const PROMPT_DELACK: Duration = Duration::from_millis(8);

/// Longest delay of ACKs where many segments arrive on a clean path: every second segment is acknowledged at once
/// there, and the delay concerns only the last segment.
const RELAXED_DELACK: Duration = Duration::from_millis(20);

/// Segments in a round trip that count as many.
const MANY_SEGMENTS: f64 = 32.0;

/// A path becomes lossy above the first share of lost segments, and clean again at the second or below.
const LOSSY: f64 = 0.003;
const CLEAN: f64 = 0.001;

/// Smallest number of losses for which a path can become lossy; fewer may be chance.
const CHANCE_LOSSES: f64 = 2.0;

/// The half-life of a sample's weight.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Time in which the excess of the caution halves while no timeout is spurious.
const CAUTION_HALF_LIFE: Duration = Duration::from_secs(60);

/// A setting stays unchanged if its new value differs by less than this factor.
const NOTABLE: f64 = 1.25;

/// A lower bound is already raised from this smaller factor on, because a bound that is too short causes harm.
const TOO_SHORT: f64 = 1.05;

/// Tunes one section from samples of its counters.
#[derive(Debug, Clone, PartialEq)]
pub struct SectionTuner {
    previous: TuningSample,
    sending: LossShare,
    receiving: LossShare,
    /// The factor on `rto_min`: 1 unless timeouts were spurious.
    caution: f64,
    current: Tuning,
}

/// The share of lost segments; the weight of old samples decays exponentially.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct LossShare {
    segments: f64,
    lost: f64,
    lossy: bool,
}

impl SectionTuner {
    /// Returns a tuner of a section whose socket has the settings `current`.
    #[must_use]
    pub fn new(current: Tuning) -> Self {
        Self {
            previous: TuningSample::default(),
            sending: LossShare::default(),
            receiving: LossShare::default(),
            caution: 1.0,
            current,
        }
    }

    /// The settings of the last decision.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.current
    }

    /// Computes the settings from the counters since the last sample.
    pub fn update(&mut self, now: TuningSample) -> Tuning {
        let previous = std::mem::replace(&mut self.previous, now);
        if now.rtt.is_zero() {
            return self.current;
        }
        let span = now.taken_at.saturating_sub(previous.taken_at);
        let delta = |count: fn(&TuningSample) -> u32| f64::from(count(&now).wrapping_sub(count(&previous)));
        let (retransmitted, spurious) = (delta(|s| s.retransmitted), delta(|s| s.spurious));
        let received = delta(|s| s.segments_received);
        self.sending.record(delta(|s| s.segments_sent), (retransmitted - spurious).max(0.0), span);
        self.receiving.record(received, delta(|s| s.out_of_order), span);
        self.update_caution(retransmitted, spurious, span);
        let round_trips = (span.as_secs_f64() / now.rtt.as_secs_f64()).max(1.0);
        let has_many_segments = received / round_trips >= MANY_SEGMENTS;
        let target = self.decide(&now, has_many_segments);
        self.current = notable_changes(self.current, target);
        self.current
    }

    /// Raises `rto_min` while timeouts are spurious. A few spurious timeouts are chance: answers are lost, too, and a
    /// probe of the tail may cross with an answer.
    fn update_caution(&mut self, retransmitted: f64, spurious: f64, span: Duration) {
        let max_caution = MAX_RTO_MIN.as_secs_f64() / MIN_RTO_MIN.as_secs_f64();
        if spurious > 0.0 && spurious * 4.0 >= retransmitted {
            self.caution = (self.caution * 2.0).min(max_caution);
        } else {
            self.caution = (self.caution * decay_factor(span, CAUTION_HALF_LIFE)).max(1.0);
        }
    }

    fn decide(&self, now: &TuningSample, has_many_segments: bool) -> Tuning {
        let rto_min_seconds = MIN_RTO_MIN.max(now.rtt * ROUND_TRIPS + RTO_SLACK).as_secs_f64() * self.caution;
        let rto_min = Duration::from_secs_f64(rto_min_seconds).min(MAX_RTO_MIN);
        let timeout = now.rtt + rto_min.max(now.rttvar * 4);
        Tuning {
            rto_min,
            rto_max: (timeout * RTO_MAX_FACTOR).clamp(MIN_RTO_MAX, MAX_RTO_MAX),
            delack_max: if has_many_segments && !self.receiving.lossy { RELAXED_DELACK } else { PROMPT_DELACK },
            thin_linear_timeouts: self.sending.lossy,
        }
    }
}

impl LossShare {
    fn record(&mut self, segments: f64, lost: f64, span: Duration) {
        let factor = decay_factor(span, HALF_LIFE);
        (self.segments, self.lost) = (self.segments * factor + segments, self.lost * factor + lost);
        let threshold = self.segments * if self.lossy { CLEAN } else { LOSSY };
        self.lossy = self.lost > threshold && (self.lossy || self.lost >= CHANCE_LOSSES);
    }
}

/// The factor that remains of a value after `span`, with the half-life `half_life`.
fn decay_factor(span: Duration, half_life: Duration) -> f64 {
    (-span.as_secs_f64() / half_life.as_secs_f64()).exp2()
}

/// The settings of `target` that differ enough from `current` to be worth a system call.
fn notable_changes(current: Tuning, target: Tuning) -> Tuning {
    let choose = |old: Duration, new: Duration, too_short: f64| {
        let (old_seconds, new_seconds) = (old.as_secs_f64(), new.as_secs_f64());
        let differs = new_seconds > old_seconds * too_short || old_seconds > new_seconds * NOTABLE;
        if differs { new } else { old }
    };
    Tuning {
        rto_min: choose(current.rto_min, target.rto_min, TOO_SHORT),
        rto_max: choose(current.rto_max, target.rto_max, NOTABLE),
        delack_max: target.delack_max,
        thin_linear_timeouts: target.thin_linear_timeouts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Setting;

    /// A connection on a simulated path; events are counted as the kernel does.
    struct Path {
        sample: TuningSample,
        section: SectionTuner,
    }

    impl Path {
        fn of(rtt: u64) -> Self {
            let rtt = Duration::from_millis(rtt);
            let sample = TuningSample { rtt, rttvar: rtt / 50, ..TuningSample::default() };
            Self { sample, section: SectionTuner::new(Tuning::INITIAL) }
        }

        /// Records a tenth of a second with `sent` segments, `retransmitted` of them sent again.
        fn record_sent(&mut self, sent: u32, retransmitted: u32, spurious: u32) -> Tuning {
            self.sample.taken_at += Duration::from_millis(100);
            self.sample.segments_sent += sent;
            self.sample.retransmitted += retransmitted;
            self.sample.spurious += spurious;
            self.section.update(self.sample)
        }

        fn record_received(&mut self, received: u32, out_of_order: u32) -> Tuning {
            self.sample.taken_at += Duration::from_millis(100);
            self.sample.segments_received += received;
            self.sample.out_of_order += out_of_order;
            self.section.update(self.sample)
        }
    }

    /// Pseudorandom numbers that are equal in every run (Marsaglia: Xorshift RNGs, 2003).
    fn numbers(mut seed: u64) -> impl Iterator<Item = u32> {
        std::iter::repeat_with(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u32
        })
    }

    #[test]
    fn tuning_stays_within_kernel_bounds_for_any_sample() {
        let mut numbers = numbers(7);
        for _ in 0..200 {
            let mut section = SectionTuner::new(Tuning::INITIAL);
            let mut at = Duration::ZERO;
            for _ in 0..50 {
                let mut next = |most: u32| numbers.next().unwrap_or(0) % most;
                at += Duration::from_millis(u64::from(next(5000)));
                let micros = |value: u32| Duration::from_micros(u64::from(value));
                let sample = TuningSample {
                    taken_at: at,
                    rtt: micros(next(5_000_000)),
                    min_rtt: Duration::ZERO,
                    rttvar: micros(next(5_000_000)),
                    segments_sent: next(u32::MAX),
                    retransmitted: next(u32::MAX),
                    spurious: next(u32::MAX),
                    segments_received: next(u32::MAX),
                    out_of_order: next(u32::MAX),
                };
                let tuning = section.update(sample);
                assert!((MIN_RTO_MIN..=MAX_RTO_MIN).contains(&tuning.rto_min), "{sample:?} {tuning:?}");
                let initial = Tuning::INITIAL.rto_max;
                assert!((MIN_RTO_MAX..=MAX_RTO_MAX.max(initial)).contains(&tuning.rto_max), "{sample:?} {tuning:?}");
                assert!(tuning.rto_max >= tuning.rto_min && tuning.delack_max < tuning.rto_min, "{tuning:?}");
                assert!(tuning.delack_max >= Duration::from_millis(8), "{tuning:?}");
            }
        }
    }

    #[test]
    fn tuning_stays_initial_without_a_round_trip() {
        let mut section = SectionTuner::new(Tuning::INITIAL);
        let sample = TuningSample {
            taken_at: Duration::from_secs(1),
            segments_sent: 3,
            retransmitted: 3,
            ..TuningSample::default()
        };
        assert_eq!(section.update(sample), Tuning::INITIAL);
    }

    #[test]
    fn longer_round_trips_never_mean_shorter_timeouts() {
        let tuning = |rtt| {
            let mut path = Path::of(rtt);
            (0..20).map(|_| path.record_sent(100, 0, 0)).last().unwrap()
        };
        let all: Vec<Tuning> = [1, 5, 10, 40, 80, 150, 300, 600, 1200, 3000].map(tuning).to_vec();
        assert!(all.is_sorted_by_key(|tuning| tuning.rto_min), "{all:?}");
        assert!(all.is_sorted_by_key(|tuning| tuning.rto_max), "{all:?}");
        assert_eq!((all[2].rto_min, all[2].rto_max), (Duration::from_millis(44), MIN_RTO_MAX), "10 ms");
        assert_eq!(all[9].rto_max, MAX_RTO_MAX, "3 s");
    }

    /// A tail loss probe is sent after two round trips and answered after three.
    #[test]
    fn tail_loss_probe_is_answered_before_the_timeout() {
        for rtt in [1, 10, 40, 80] {
            let mut path = Path::of(rtt);
            let tuning = path.record_sent(100, 5, 0);
            let timeout = path.sample.rtt + tuning.rto_min;
            assert!(timeout >= path.sample.rtt * 3 + Duration::from_millis(20), "{rtt} ms: {timeout:?}");
            assert!(tuning.rto_min < MAX_RTO_MIN, "{rtt} ms: {tuning:?}");
        }
        assert_eq!(
            Path::of(150).record_sent(100, 5, 0).rto_min,
            MAX_RTO_MIN,
            "the largest value that the kernel accepts"
        );
    }

    #[test]
    fn losses_make_timeouts_linear_and_acknowledgements_prompt() {
        let mut path = Path::of(40);
        assert!(!path.record_sent(100, 1, 0).thin_linear_timeouts, "one loss is chance");
        assert!(path.record_sent(1000, 10, 0).thin_linear_timeouts);
        assert!(path.record_sent(1000, 0, 0).thin_linear_timeouts, "half a percent so far");
        let clean = (0..600).map(|_| path.record_sent(1000, 0, 0)).last().unwrap();
        assert!(!clean.thin_linear_timeouts, "after a minute without loss");

        assert_eq!(path.record_received(1000, 0).delack_max, RELAXED_DELACK, "bulk on a clean path");
        assert_eq!(path.record_received(10, 0).delack_max, PROMPT_DELACK, "few segments at a time");
        assert_eq!(path.record_received(1000, 30).delack_max, PROMPT_DELACK, "some segments are lost");
    }

    #[test]
    fn spurious_timeouts_raise_rto_min_for_a_while() {
        let mut path = Path::of(2);
        let usual = path.record_sent(100, 3, 0).rto_min;
        assert_eq!(usual, MIN_RTO_MIN);
        let values: Vec<Duration> = (0..6).map(|_| path.record_sent(100, 2, 2).rto_min).collect();
        assert!(values[0] > usual && values.is_sorted() && values[5] == MAX_RTO_MIN, "{values:?}");
        let soon = path.record_sent(100, 0, 0).rto_min;
        assert_eq!(soon, MAX_RTO_MIN, "not at once");
        let later = (0..6000).map(|_| path.record_sent(100, 0, 0).rto_min).last().unwrap();
        assert!(later < MIN_RTO_MIN.mul_f64(NOTABLE), "{later:?}");
    }

    #[test]
    fn few_spurious_among_many_losses_keep_rto_min() {
        let mut path = Path::of(2);
        assert_eq!(path.record_sent(1000, 50, 2).rto_min, MIN_RTO_MIN);
    }

    #[test]
    fn small_changes_are_not_applied() {
        let mut path = Path::of(600);
        let before = path.record_sent(100, 0, 0);
        for wobble in [610, 560, 640, 600] {
            path.sample.rtt = Duration::from_millis(wobble);
            let now = path.record_sent(100, 0, 0);
            assert_eq!(now.changes_from(before).collect::<Vec<Setting>>(), [], "{wobble} ms");
        }
        path.sample.rtt = Duration::from_millis(1000);
        let now = path.record_sent(100, 0, 0);
        let keys: Vec<&str> = now.changes_from(before).map(|setting| setting.key()).collect();
        assert_eq!(keys, ["rto_max"]);
    }
}
