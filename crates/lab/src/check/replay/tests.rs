use super::super::probe::{ReceivedProbe, SentProbe};
use super::*;
use crate::packet::Ecn;

const TAIL_DROP: &str = "rate = '8Mbit/s'\ndelay = '3ms'\nqueue = { kind = 'tail-drop', limit = '5pkt' }";
const RED: &str = "rate = '8Mbit/s'\nqueue = { kind = 'red', limit = '60pkt', min = '5pkt', max = '15pkt', p = 0.1, \
                   wq = 0.02, ecn = true }\nloss = { model = 'bernoulli', p = 0.05, at = 'ingress' }";

fn conditions(text: &str) -> Conditions {
    toml::from_str(text).unwrap()
}

fn test_rng() -> SeededRng {
    SeededRng::new(4).derive("wan").derive("forward")
}

/// What the emulator would record of our traffic, and the receiver see.
fn emulate(conditions: &Conditions) -> (Vec<PacketRecord>, ProbeSeries) {
    let shots = replay_traffic(8_000_000, 1500, 2_000_000_000, SeededRng::new(2));
    let mut pipeline = Pipeline::new(&[conditions], test_rng());
    let (mut records, mut series) = (Vec::<PacketRecord>::new(), ProbeSeries::default());
    for shot in shots {
        let ecn = if shot.sender % 2 == 1 { Ecn::Capable } else { Ecn::NotCapable };
        for i in 0..shot.packets {
            let number = records.len() as u64;
            let packet =
                Packet { number, at: shot.at, bytes: shot.bytes, flow: u32::from(shot.sender), source: 0, ecn, tag: 0 };
            let segment = (i, shot.packets);
            records.push(PacketRecord { packet, segment, tcp: None, outcome: PacketOutcome::InFlight });
            series.sent.push(SentProbe { at: shot.at, call_time: 1, bytes: shot.bytes, segment });
            pipeline.push(packet);
        }
    }
    while let Some(packet) = pipeline.pop(Nanos::MAX - 1) {
        let marked = packet.ecn == Ecn::Marked;
        records[packet.number as usize].outcome =
            PacketOutcome::Delivered { ideal: packet.at, actual: packet.at, marked };
        series.received.push(ReceivedProbe { number: packet.number as usize, at: packet.at, marked });
    }
    for drop in &pipeline.events.dropped {
        records[drop.packet.number as usize].outcome = PacketOutcome::Dropped(drop.cause, drop.packet.at);
    }
    (records, series)
}

fn first_dropped(records: &[PacketRecord], cause: DropCause) -> usize {
    records.iter().position(|record| matches!(record.outcome, PacketOutcome::Dropped(why, _) if why == cause)).unwrap()
}

#[test]
fn the_traffic_exceeds_the_rate_in_the_mean_but_not_always() {
    let shots = replay_traffic(8_000_000, 1500, 3_000_000_000, SeededRng::new(2));
    let bytes = |shot: &ProbeSend| u64::from(shot.bytes) * u64::from(shot.packets);
    let load = |from: Nanos, to: Nanos| {
        let sum: u64 = shots.iter().filter(|shot| (from..to).contains(&shot.at)).map(bytes).sum();
        sum * 8_000 / (to - from) * 100 / 8
    };
    assert!((105..130).contains(&load(0, 3_000_000_000)), "{} %", load(0, 3_000_000_000));
    assert!(load(1_000_000_000, 1_250_000_000) < 80);
    assert!(shots.iter().any(|shot| shot.packets > 1) && shots.iter().any(|shot| shot.sender == 7));
}

#[test]
fn true_decisions_pass_and_one_wrong_one_fails() {
    for text in [TAIL_DROP, RED] {
        let conditions = conditions(text);
        let (records, series) = emulate(&conditions);
        let finding = check_queue_decisions(&records, 0, &series, &conditions, test_rng()).unwrap();
        assert!(finding.pass, "{finding:?}");
        assert!(!finding.measured.contains("(0 dropped"), "{finding:?}");

        let mut wrong = records.clone();
        let other = first_dropped(&records, if text == RED { DropCause::Early } else { DropCause::Full });
        wrong[other].outcome = PacketOutcome::Delivered { ideal: 0, actual: 0, marked: false };
        assert!(!check_queue_decisions(&wrong, 0, &series, &conditions, test_rng()).unwrap().pass);
    }
}

#[test]
fn other_dice_decide_otherwise() {
    let conditions = conditions(RED);
    let (records, series) = emulate(&conditions);
    assert!(!check_queue_decisions(&records, 0, &series, &conditions, SeededRng::new(5)).unwrap().pass);
    assert!(check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
    assert!(!check_repeatability(&records, &conditions, SeededRng::new(5)).unwrap().pass);
}

#[test]
fn a_departure_that_is_late_and_a_drop_that_the_receiver_knows_nothing_of_fail() {
    let conditions = conditions(TAIL_DROP);
    let (records, series) = emulate(&conditions);
    let mut late = records.clone();
    if let PacketOutcome::Delivered { ideal, .. } = &mut late[0].outcome {
        *ideal += 1;
    }
    assert!(!check_queue_decisions(&late, 0, &series, &conditions, test_rng()).unwrap().pass);
    let mut unseen = series.clone();
    unseen.received.pop();
    assert!(!check_queue_decisions(&records, 0, &unseen, &conditions, test_rng()).unwrap().pass);
    let mut unmarked = series;
    unmarked.received[3].marked ^= true;
    assert!(!check_queue_decisions(&records, 0, &unmarked, &conditions, test_rng()).unwrap().pass);
}

#[test]
fn a_queue_that_holds_less_or_more_than_its_limit_is_found() {
    let (records, _) = emulate(&conditions(TAIL_DROP));
    let with = |limit: &str| check_occupancy(&records, &conditions(&TAIL_DROP.replace("5pkt", limit))).unwrap().pass;
    assert_eq!([with("4pkt"), with("5pkt"), with("6pkt")], [false, true, false]);
    let bytes = |limit: &str| conditions(&TAIL_DROP.replace("5pkt", limit));
    let (records, _) = emulate(&bytes("9000B"));
    assert!(check_occupancy(&records, &bytes("9000B")).unwrap().pass);
    assert!(!check_occupancy(&records, &bytes("8000B")).unwrap().pass);
    assert!(!check_occupancy(&records, &bytes("11000B")).unwrap().pass);
    assert!(check_occupancy(&records, &conditions(RED)).is_none());
}

#[test]
fn a_repetition_that_drops_something_else_is_found() {
    let conditions = conditions(TAIL_DROP);
    let (mut records, _) = emulate(&conditions);
    assert!(check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
    let dropped = first_dropped(&records, DropCause::Full);
    records[dropped].outcome = PacketOutcome::Dropped(DropCause::Early, records[dropped].packet.at);
    assert!(!check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
    assert!(check_repeatability(&[], &conditions, test_rng()).is_none());
}
