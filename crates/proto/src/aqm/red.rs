//! Random early detection (Floyd, Jacobson: Random early detection gateways for congestion avoidance, IEEE/ACM
//! Transactions on Networking 1(4), 1993), gentle and with marks, for connections of two classes.
//!
//! The specification, and the differences from the paper and from Linux, are the head comment of `queue/red.rs` in the
//! emulator.

use super::{FRACTION_BITS, ONE, scale, to_fixed, to_probability};
use crate::aqm::virtual_queue::TYPICAL_PACKET;
use crate::aqm::{self, ArrivingPacket, DropReason, MAX_LEVEL, QueueLimit, Verdict};

/// Number of powers of the decay factor: an idle time of 2^24 packets resets the average.
pub const DECAY_POWERS: usize = 24;

/// The class of connections that are hit with the probability of RED.
pub const OTHERS: usize = 0;
/// The class of heavy connections, which are hit `n` times as often.
pub const HEAVY: usize = 1;

/// Upper bound of `count`, so that its product with a probability fits in 64 bits.
const MAX_COUNT: u64 = 1 << 31;

/// The user's settings. Levels are in the unit of `queue_limit`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedConfig {
    /// The limit of the queue.
    pub queue_limit: QueueLimit,
    /// The average level at which hits begin.
    pub min: u64,
    /// The average level at which the probability of a hit is `p`; above `min`.
    pub max: u64,
    /// The probability at `max`, from 0 to 1.
    pub p: f64,
    /// The weight of a new sample in the average, from 2^-24 to 1.
    pub wq: f64,
    /// Whether the probability continues to rise from `p` to 1 between `max` and twice `max`.
    pub gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped early.
    pub ecn: bool,
    /// Factor on the probability for heavy connections, from 1 to 10,000.
    pub n: f64,
}

/// A linear rise of the probability with the average level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Slope {
    /// The average level at which the rise begins, in 2^-24.
    pub from: u64,
    /// The probability at `from`, in 2^-32.
    pub base: u64,
    /// The increase of the probability over the slope, in 2^-32.
    pub rise: u64,
    /// The length of the slope in average level, shifted right by `shift` to less than 2^32.
    pub span: u64,
    /// Number of bits by which `span` is shifted.
    pub shift: u64,
}

/// Constant parameters of RED, computed from [`RedConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RedParams {
    /// The key of the random numbers, see [`aqm::random_bits`].
    pub key: u64,
    /// The limit of the queue.
    pub queue_limit: QueueLimit,
    /// The weight of a sample, in 2^-24.
    pub weight: u64,
    /// The average level below which no packet is hit, in 2^-24.
    pub min: u64,
    /// The average level at which the first slope ends, in 2^-24.
    pub max: u64,
    /// The average level from which on every packet is dropped, in 2^-24.
    pub top: u64,
    /// The slope of the probability from `min` to `max`.
    pub rise: Slope,
    /// The slope of the probability from `max` to `top`.
    pub gentle: Slope,
    /// Factor on the probability for heavy connections, in 2^-16.
    pub n: u64,
    /// 1 if ECN-capable packets are marked, otherwise 0.
    pub ecn: u64,
    /// The transmission time of a typical packet, in nanoseconds; at least 1.
    pub typical_packet_time: u64,
    /// The factors on the average after an idle time of 2^k typical packets, in 2^-24.
    pub decay_factors: [u64; DECAY_POWERS],
}

/// The state, initially all 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RedState {
    /// The average level, in 2^-24.
    pub average: u64,
    /// Idle time, in nanoseconds, that has not decayed the average yet: less than the transmission time of a typical
    /// packet.
    pub idle_remainder: u64,
    /// For each class, the `count` of its next packet: 1 after a hit, 0 after an average below `min`, and one more with
    /// each packet that is not hit.
    pub count: [u64; 2],
}

impl Slope {
    fn new([from, to]: [u64; 2], [base, top]: [u64; 2]) -> Self {
        let span = to - from;
        let shift = u64::from(32_u32.saturating_sub(span.leading_zeros()));
        Self { from, base, rise: top - base, span: (span >> shift).max(1), shift }
    }

    const fn at(&self, average: u64) -> u64 {
        self.base + ((average - self.from) >> self.shift) * self.rise / self.span
    }
}

impl RedParams {
    /// Computes the parameters from `settings`, for a line with a rate in bits per second; `key` selects the random
    /// numbers.
    #[must_use]
    pub fn new(settings: &RedConfig, bits_per_second: Option<u64>, key: u64) -> Self {
        let level = |level: u64| level.min(MAX_LEVEL) << FRACTION_BITS;
        let (min, max) = (level(settings.min), level(settings.max));
        let top = if settings.gentle { level(settings.max.saturating_mul(2)) } else { max };
        let p = to_probability(settings.p);
        Self {
            key,
            queue_limit: settings.queue_limit,
            weight: to_fixed(settings.wq, FRACTION_BITS),
            min,
            max,
            top,
            rise: Slope::new([min, max], [0, p]),
            gentle: Slope::new([max, top], [p, ONE]),
            n: to_fixed(settings.n, 16),
            ecn: u64::from(settings.ecn),
            typical_packet_time: typical_packet_time(bits_per_second),
            decay_factors: decay_powers(1.0 - settings.wq),
        }
    }
}

/// The transmission time of a typical packet, in nanoseconds; at least 1, also for a line without a rate (`None`).
#[must_use]
pub fn typical_packet_time(bits_per_second: Option<u64>) -> u64 {
    bits_per_second.map_or(1, |rate| (TYPICAL_PACKET * 8_000_000_000 / rate.max(1)).max(1))
}

/// Returns `base`, its square, the square of the square, and so on, in 2^-24.
fn decay_powers(base: f64) -> [u64; DECAY_POWERS] {
    let mut power = base;
    [(); DECAY_POWERS].map(|()| {
        let keep = to_fixed(power, FRACTION_BITS);
        power *= power;
        keep
    })
}

/// Decides on a packet without a distinction of classes.
pub fn judge_any(params: &RedParams, state: &mut RedState, arrival: &ArrivingPacket) -> Verdict {
    judge(params, state, arrival, OTHERS)
}

/// Decides on a packet of a connection of the class `class`.
pub fn judge(params: &RedParams, state: &mut RedState, arrival: &ArrivingPacket, class: usize) -> Verdict {
    update_average(params, state, arrival);
    let verdict = red_verdict(params, state, arrival, class);
    match verdict {
        Verdict::Pass | Verdict::Mark if !params.queue_limit.fits(arrival) => Verdict::Drop(DropReason::Full),
        _ => verdict,
    }
}

fn update_average(params: &RedParams, state: &mut RedState, arrival: &ArrivingPacket) {
    let level = params.queue_limit.level(arrival.backlog);
    if level > 0 {
        state.average = state.average - scale(state.average, params.weight) + level * params.weight;
        state.idle_remainder = 0;
    } else {
        let idle = state.idle_remainder + arrival.idle;
        state.average = decay(params, state.average, idle / params.typical_packet_time);
        state.idle_remainder = idle % params.typical_packet_time;
    }
}

/// The average after an idle time of `packets` typical packets.
fn decay(params: &RedParams, average: u64, packets: u64) -> u64 {
    if packets >> DECAY_POWERS != 0 {
        return 0;
    }
    let mut average = average;
    for power in 0..DECAY_POWERS {
        if packets >> power & 1 != 0 {
            average = scale(average, params.decay_factors[power]);
        }
    }
    average
}

fn red_verdict(params: &RedParams, state: &mut RedState, arrival: &ArrivingPacket, class: usize) -> Verdict {
    if state.average < params.min {
        state.count = [0, 0];
        return Verdict::Pass;
    }
    if state.average >= params.top {
        state.count = [1, 1];
        return Verdict::Drop(DropReason::Forced);
    }
    let slope = if state.average < params.max { &params.rise } else { &params.gentle };
    let mut base = slope.at(state.average);
    if class == HEAVY {
        base = ((base * params.n) >> 16).min(ONE);
    }
    let count = state.count[class];
    if !is_hit(base, count, aqm::random_bits(params.key, arrival.number) >> 32) {
        state.count[class] = (count + 1).min(MAX_COUNT);
        return Verdict::Pass;
    }
    state.count[class] = 1;
    if params.ecn != 0 && arrival.ecn_capable != 0 { Verdict::Mark } else { Verdict::Drop(DropReason::Early) }
}

/// Whether a packet is hit, with the probability `base / (1 - count * base)`, which spreads hits evenly. `random` has
/// 32 random bits.
const fn is_hit(base: u64, count: u64, random: u64) -> bool {
    let used = count * base;
    base >= ONE || used >= ONE || random * (ONE - used) < base << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::Backlog;

    const SETTINGS: RedConfig = RedConfig {
        queue_limit: QueueLimit { limit: 40, in_bytes: 0 },
        min: 5,
        max: 15,
        p: 0.25,
        wq: 1.0,
        gentle: false,
        ecn: false,
        n: 3.0,
    };

    /// A packet of 1500 bytes that arrives while `packets` others are queued.
    fn arrival(number: u64, packets: u64) -> ArrivingPacket {
        let waiting = Backlog { bytes: packets * 1500, packets };
        ArrivingPacket { number, bytes: 1500, backlog: waiting, ..ArrivingPacket::default() }
    }

    /// The share of packets of a class that is marked or dropped while `packets` are queued, without an earlier hit.
    fn hits(settings: &RedConfig, packets: u64, class: usize) -> f64 {
        let params = RedParams::new(settings, Some(10_000_000), 1);
        let hit = |number| {
            let mut state = RedState::default();
            judge(&params, &mut state, &arrival(number, packets), class) != Verdict::Pass
        };
        f64::from((0..100_000).map(|number| u32::from(hit(number))).sum::<u32>()) / 100_000.0
    }

    #[test]
    fn the_probability_rises_from_min_to_max_and_gently_to_twice_max() {
        let gentle = RedConfig { gentle: true, ..SETTINGS };
        for (settings, level, wanted) in [
            (SETTINGS, 4, 0.0),
            (SETTINGS, 5, 0.0),
            (SETTINGS, 10, 0.125),
            (SETTINGS, 14, 0.225),
            (SETTINGS, 15, 1.0),
            (gentle, 10, 0.125),
            (gentle, 15, 0.25),
            (gentle, 21, 0.55),
            (gentle, 30, 1.0),
        ] {
            for (class, n) in [(OTHERS, 1.0), (HEAVY, 3.0)] {
                let (wanted, got) = (f64::min(1.0, wanted * n), hits(&settings, level, class));
                assert!((got - wanted).abs() < 0.005, "{level}, class {class}: {got} instead of {wanted}");
            }
        }
    }

    #[test]
    fn hit_probability_grows_with_the_packets_since_the_last_hit() {
        let (tenth, draw) = (ONE / 10, |p: f64| to_probability(p));
        for (count, wanted) in [(0, 0.1), (5, 0.2), (8, 0.5)] {
            assert!(is_hit(tenth, count, draw(wanted - 0.001)), "{count}");
            assert!(!is_hit(tenth, count, draw(wanted + 0.001)), "{count}");
        }
        assert!(is_hit(tenth, 11, ONE - 1));
        assert!(!is_hit(0, MAX_COUNT, 0), "never");
        assert!(is_hit(ONE, 0, ONE - 1), "always");
    }

    /// The arguments give the largest products; an overflow would panic.
    #[test]
    fn extremes_do_not_overflow() {
        for (limit, min, max) in [(MAX_LEVEL, MAX_LEVEL - 1, MAX_LEVEL), (u64::MAX, 0, u64::MAX), (1, 0, 1)] {
            for (p, wq, n) in [(1.0, 1.0, 10_000.0), (1e-9, 1e-7, 1.0), (0.5, 0.002, 7.5)] {
                let room = QueueLimit { limit, in_bytes: 1 };
                let settings = RedConfig { queue_limit: room, min, max, p, wq, gentle: true, ecn: true, n };
                let params = RedParams::new(&settings, Some(1), 9);
                let mut state = RedState::default();
                for (number, bytes) in
                    [MAX_LEVEL, 0, MAX_LEVEL, MAX_LEVEL - 1, 1, MAX_LEVEL / 2, 0].into_iter().enumerate()
                {
                    let waiting = Backlog { bytes, packets: 1 };
                    let idle = if bytes == 0 { u64::MAX / 4 } else { 0 };
                    let number = number as u64;
                    let arrival =
                        ArrivingPacket { number, backlog: waiting, idle, bytes: 1500, ..ArrivingPacket::default() };
                    judge(&params, &mut state, &arrival, HEAVY);
                    assert!(state.average <= (MAX_LEVEL << FRACTION_BITS) + (1 << FRACTION_BITS), "{settings:?}");
                }
            }
        }
    }

    /// With a small weight and long idle times, the decay is that of the formula.
    #[test]
    fn idle_time_decays_the_average_by_the_formula() {
        let settings = RedConfig { wq: 0.002, ..SETTINGS };
        let params = RedParams::new(&settings, Some(12_000_000), 1);
        for packets in [0_u32, 1, 2, 3, 100, 1000, 4095, 10_000] {
            let mut state = RedState { average: 1000 << FRACTION_BITS, ..RedState::default() };
            let idle = u64::from(packets) * 1_000_000 + 999_999;
            judge_any(&params, &mut state, &ArrivingPacket { idle, bytes: 1500, ..ArrivingPacket::default() });
            let wanted = 1000.0 * 0.998_f64.powf(f64::from(packets));
            let got = state.average as f64 / f64::from(1 << FRACTION_BITS);
            assert!((got - wanted).abs() < 1e-3, "{packets}: {got} instead of {wanted}");
            assert_eq!(state.idle_remainder, 999_999);
        }
    }
}
