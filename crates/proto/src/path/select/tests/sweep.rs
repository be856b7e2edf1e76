//! For every map and every outcome, a choice contains valid paths.

use super::*;
use crate::aqm;

/// Returns one of several values, from negative to far above every possible value.
fn arbitrary_value(bits: u64) -> f64 {
    let figures = [0.0, -1.0, 1e-300, 1e-9, 0.001, 0.5, 1.0, 1e3, 1e9, 1e300, f64::INFINITY];
    figures[(bits % figures.len() as u64) as usize]
}

fn arbitrary_entry(bits: u64) -> MapEntry {
    let section = SectionModel {
        rtt: Duration::try_from_secs_f64(arbitrary_value(bits)).unwrap_or(Duration::MAX),
        loss: arbitrary_value(bits >> 4),
        window: (bits >> 8 & 1 == 0).then_some(bits >> (bits >> 10 & 63)),
        line_rate: (bits >> 9 & 1 == 0).then_some(arbitrary_value(bits >> 16)),
        congestion: [
            CongestionControl::Reno,
            CongestionControl::Cubic,
            CongestionControl::Ctcp,
            CongestionControl::Bbr,
        ][(bits >> 20 & 3) as usize],
        mss: (bits >> 24) as u16,
        connection: Connection::ready_if(bits >> 40 & 1 == 0),
    };
    MapEntry { section, confidence: arbitrary_value(bits >> 44), is_own: bits >> 48 & 1 == 0 }
}

/// A map of five relays with arbitrary known sections.
fn arbitrary_map(seed: u64) -> Arc<NetworkMap> {
    let mut map = NetworkMap::new(key(0), "here");
    for number in 1..5 {
        map.add_node(key(number), "there");
    }
    for draw in 0..40 {
        let bits = aqm::random_bits(seed, draw);
        let (from, to) = ((bits >> 50) as u32 % 6, (bits >> 55) as u32 % 6);
        let direction = if bits >> 62 & 1 == 0 { Direction::Down } else { Direction::Up };
        if bits >> 63 == 0 {
            map.set_section(from, to, direction, &arbitrary_entry(bits));
        } else {
            map.set_last_section(from, target(), direction, &arbitrary_entry(bits));
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
fn odd_maps_and_outcomes_give_valid_choices() {
    for seed in 0..100 {
        let mut chooser = PathChooser::new(arbitrary_map(seed), RelayCosts::default());
        for step in 0..60_u64 {
            let bits = aqm::random_bits(!seed, step);
            let now = Duration::try_from_secs_f64(arbitrary_value(bits)).unwrap_or(Duration::MAX);
            let size = bits >> (bits >> 58);
            let predicted_size = if bits & 1 == 0 { TransferSize::down(size) } else { TransferSize::up(size) };
            let choice = chooser.choose(target(), predicted_size, now);
            check(&choice, &(seed, step));
            let way = &choice.ranking[(bits >> 8) as usize % choice.ranking.len()].candidate;
            let took = Duration::try_from_secs_f64(arbitrary_value(bits >> 12)).unwrap_or(Duration::MAX);
            let (continues, limited_by_path) = (bits >> 18 & 1 == 0, bits >> 17 & 1 == 0);
            let outcome = TransferOutcome {
                transferred: predicted_size,
                session_bytes: predicted_size.bytes,
                elapsed: took,
                is_continuation: continues,
                limited_by_path,
            };
            match bits >> 20 & 7 {
                0 => chooser.record_failure(target(), way, now),
                1 => chooser.set_map(arbitrary_map(seed + step)),
                2 => chooser.record_outcome(target(), &candidate_through(&[9, 9, 9, 9]), &outcome, now),
                _ => chooser.record_outcome(target(), way, &outcome, now),
            }
        }
    }
}
