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

/// A packet of 1500 bytes that finds so many of them.
fn arrival(number: u64, packets: u64) -> ArrivingPacket {
    let waiting = Backlog { bytes: packets * 1500, packets };
    ArrivingPacket { number, bytes: 1500, backlog: waiting, ..ArrivingPacket::default() }
}

/// The share of packets of a class that is hit while so many wait, if no hit is remembered.
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
fn hits_are_the_likelier_the_longer_the_last_is_ago() {
    let (tenth, throw) = (ONE / 10, |p: f64| to_probability(p));
    for (count, wanted) in [(0, 0.1), (5, 0.2), (8, 0.5)] {
        assert!(is_hit(tenth, count, throw(wanted - 0.001)), "{count}");
        assert!(!is_hit(tenth, count, throw(wanted + 0.001)), "{count}");
    }
    assert!(is_hit(tenth, 11, ONE - 1));
    assert!(!is_hit(0, MAX_COUNT, 0), "never");
    assert!(is_hit(ONE, 0, ONE - 1), "always");
}

/// Where the products are largest: none overflows, which would be a panic here.
#[test]
fn extremes_do_not_overflow() {
    for (limit, min, max) in [(MAX_LEVEL, MAX_LEVEL - 1, MAX_LEVEL), (u64::MAX, 0, u64::MAX), (1, 0, 1)] {
        for (p, wq, n) in [(1.0, 1.0, 10_000.0), (1e-9, 1e-7, 1.0), (0.5, 0.002, 7.5)] {
            let room = QueueLimit { limit, in_bytes: 1 };
            let settings = RedConfig { queue_limit: room, min, max, p, wq, gentle: true, ecn: true, n };
            let params = RedParams::new(&settings, Some(1), 9);
            let mut state = RedState::default();
            for (number, bytes) in [MAX_LEVEL, 0, MAX_LEVEL, MAX_LEVEL - 1, 1, MAX_LEVEL / 2, 0].into_iter().enumerate()
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
fn idle_time_decays_the_average_as_its_formula_says() {
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
