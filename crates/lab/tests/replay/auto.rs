//! Replays of the `auto` queue. It keeps state for seconds, so further patterns are long and have many connections.

use super::arrivals::RandomDraws;
use super::*;

const LIMITS: [&str; 5] = [
    "kind = 'auto'\nlimit = '400pkt'",
    "kind = 'auto'\nlimit = '300pkt'\necn = true",
    "kind = 'auto'\nlimit = '150000B'\ntarget = '1ms'\necn = true",
    "kind = 'auto'\nlimit = '2000pkt'\ntarget = '0ms'",
    "kind = 'auto'\nlimit = '60pkt'\ntarget = '500ms'",
];

/// About six seconds of traffic for a line of 12 Mbit/s. Connections start and end, change their rate, and pause. In
/// most patterns the connections together exceed the rate of the line.
fn changing_connections(seed: u64) -> Vec<Packet> {
    let mut draws = RandomDraws::new(seed, "crowd");
    let mut below = |limit| draws.below(limit);
    let connections = 1 + below(40);
    let mut packets = Vec::new();
    for flow in 0..connections {
        let ecn = [Ecn::NotCapable, Ecn::Capable, Ecn::Marked][below(3) as usize];
        let bytes = [1500, 1500, 64, 900][below(4) as usize];
        let mut at = below(3_000_000_000);
        while at < 6_000_000_000 {
            let gap = connections * (1 + below(2_000_000)) / (1 + below(3));
            for _ in 0..1 + below(200) {
                packets.push(Packet { number: 0, at, bytes, flow: flow as u32 * 77, source: 0, ecn, tag: 0 });
                at += below(2 * gap) + 1;
            }
            at += below(8) / 7 * below(1_500_000_000);
        }
    }
    packets.sort_by_key(|packet| packet.at);
    (0..).zip(packets).map(|(number, packet)| Packet { number, ..packet }).collect()
}

/// Single packets of more connections than the table has slots, mixed with three connections of many packets.
fn table_overflow() -> Vec<Packet> {
    let mut draws = RandomDraws::new(0, "overflow");
    let mut below = |limit| draws.below(limit);
    let flow = |number: u64, draw: u64| if draw == 0 { number as u32 % 3 } else { number as u32 * 2 };
    let packet = |number| Packet {
        number,
        at: number * 60_000,
        bytes: 1500,
        flow: flow(number, below(2)),
        source: 0,
        ecn: Ecn::NotCapable,
        tag: 0,
    };
    (0..60_000).map(packet).collect()
}

fn replay_long(text: &str, arrivals: &[Packet], rate: &str) -> Tally {
    let (kind, rate): (QueueKind, Rate) = (toml::from_str(text).unwrap(), rate.parse().unwrap());
    let rng = SeededRng::new(1);
    let wanted = reference::simulate_line(arrivals, rate, &kind, rng);
    assert_same(text, arrivals, &wanted, &MinimalLine::run(&kind, rate, rng, arrivals));
    let mut tally = Tally::default();
    tally.add(arrivals, &wanted);
    tally
}

#[test]
fn auto_matches_its_model() {
    for text in LIMITS {
        let mut tally = replay(text);
        for seed in 0..12 {
            let long = replay_long(text, &changing_connections(seed), "12Mbit/s");
            (tally.early, tally.full, tally.marked) =
                (tally.early + long.early, tally.full + long.full, tally.marked + long.marked);
        }
        assert!(tally.sent > 1000 && (tally.full > 100 || text.contains("2000pkt")), "{text}: {tally:?}");
        assert!(tally.early > 100 || text.contains("500ms"), "{text}: {tally:?}");
        assert_eq!(tally.marked > 20, text.contains("ecn"), "{text}: {tally:?}");
    }
}

#[test]
fn auto_matches_its_model_with_more_connections_than_slots() {
    let tally = replay_long("kind = 'auto'\nlimit = '1000pkt'", &table_overflow(), "100Mbit/s");
    assert!(tally.early > 1000, "{tally:?}");
}
