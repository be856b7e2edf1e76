//! For every map and every outcome, a choice contains valid paths.

use super::*;
use crate::aqm;

/// Figures from zero to far beyond possible values.
fn odd(dice: u64) -> f64 {
    let figures = [0.0, -1.0, 1e-300, 1e-9, 0.001, 0.5, 1.0, 1e3, 1e9, 1e300, f64::INFINITY];
    figures[(dice % figures.len() as u64) as usize]
}

fn odd_known(dice: u64) -> MapEntry {
    let section = SectionModel {
        rtt: Duration::try_from_secs_f64(odd(dice)).unwrap_or(Duration::MAX),
        loss: odd(dice >> 4),
        window: (dice >> 8 & 1 == 0).then_some(dice >> (dice >> 10 & 63)),
        line_rate: (dice >> 9 & 1 == 0).then_some(odd(dice >> 16)),
        congestion: [
            CongestionControl::Reno,
            CongestionControl::Cubic,
            CongestionControl::Ctcp,
            CongestionControl::Bbr,
        ][(dice >> 20 & 3) as usize],
        mss: (dice >> 24) as u16,
        connection: Connection::ready_if(dice >> 40 & 1 == 0),
    };
    MapEntry { section, confidence: odd(dice >> 44), is_own: dice >> 48 & 1 == 0 }
}

/// A map of five relays with arbitrary known sections.
fn odd_map(seed: u64) -> Arc<NetworkMap> {
    let mut map = NetworkMap::new(key(0), "here");
    for number in 1..5 {
        map.add_node(key(number), "there");
    }
    for draw in 0..40 {
        let dice = aqm::random_bits(seed, draw);
        let (from, to) = ((dice >> 50) as u32 % 6, (dice >> 55) as u32 % 6);
        let direction = if dice >> 62 & 1 == 0 { Direction::Down } else { Direction::Up };
        if dice >> 63 == 0 {
            map.set_section(from, to, direction, &odd_known(dice));
        } else {
            map.set_last_section(from, target(), direction, &odd_known(dice));
        }
    }
    Arc::new(map)
}

fn check(choice: &Choice, context: &dyn std::fmt::Debug) {
    assert!((1..=answer::MAX_RANKING + 1).contains(&choice.ranking.len()), "{context:?}: {choice:?}");
    assert!(choice.ranking.iter().any(|way| way.candidate.is_direct()), "{context:?}: {choice:?}");
    for (at, way) in choice.ranking.iter().enumerate() {
        let relays = &way.candidate.relays;
        let distinct: std::collections::HashSet<_> = relays.iter().collect();
        assert!(
            distinct.len() == relays.len() && relays.len() <= 3 && !relays.contains(&THIS_RELAY),
            "{context:?}: {choice:?}"
        );
        assert!(!choice.ranking[..at].iter().any(|before| before.candidate == way.candidate), "twice: {choice:?}");
        assert!(way.rate.is_finite() && (0.0..=1.0).contains(&way.confidence), "{context:?}: {choice:?}");
    }
    assert!(!choice.reason.to_string().is_empty());
}

#[test]
fn odd_maps_and_outcomes_never_break_a_choice() {
    for seed in 0..100 {
        let mut chooser = PathChooser::new(odd_map(seed), RelayCosts::default());
        for step in 0..60_u64 {
            let dice = aqm::random_bits(!seed, step);
            let now = Duration::try_from_secs_f64(odd(dice)).unwrap_or(Duration::MAX);
            let size = dice >> (dice >> 58);
            let likely = if dice & 1 == 0 { TransferSize::down(size) } else { TransferSize::up(size) };
            let choice = chooser.choose(target(), likely, now);
            check(&choice, &(seed, step));
            let way = &choice.ranking[(dice >> 8) as usize % choice.ranking.len()].candidate;
            let took = Duration::try_from_secs_f64(odd(dice >> 12)).unwrap_or(Duration::MAX);
            let (goes_on, limited_by_path) = (dice >> 18 & 1 == 0, dice >> 17 & 1 == 0);
            let outcome = TransferOutcome {
                transferred: likely,
                session_bytes: likely.bytes,
                elapsed: took,
                is_continuation: goes_on,
                limited_by_path,
            };
            match dice >> 20 & 7 {
                0 => chooser.record_failure(target(), way, now),
                1 => chooser.set_map(odd_map(seed + step)),
                2 => chooser.record_outcome(target(), &by(&[9, 9, 9, 9]), &outcome, now),
                _ => chooser.record_outcome(target(), way, &outcome, now),
            }
        }
    }
}
