use super::super::probe::{Got, Sent};
use super::*;
use crate::packet::Ecn;

const TAIL_DROP: &str = "rate = '8Mbit/s'\ndelay = '3ms'\nqueue = { kind = 'tail-drop', limit = '5pkt' }";
const RED: &str = "rate = '8Mbit/s'\nqueue = { kind = 'red', limit = '60pkt', min = '5pkt', max = '15pkt', p = 0.1, \
                   wq = 0.02, ecn = true }\nloss = { model = 'bernoulli', p = 0.05, at = 'ingress' }";

fn conditions(text: &str) -> Conditions {
    toml::from_str(text).unwrap()
}

fn dice() -> Dice {
    Dice::new(4).of("wan").of("forward")
}

/// What the emulator would record of our traffic, and the receiver see.
fn emulate(conditions: &Conditions) -> (Vec<Record>, Series) {
    let shots = traffic(8_000_000, 1500, 2_000_000_000, Dice::new(2));
    let mut pipeline = Pipeline::new(&[conditions], dice());
    let (mut records, mut series) = (Vec::<Record>::new(), Series::default());
    for shot in shots {
        let ecn = if shot.flow % 2 == 1 { Ecn::Capable } else { Ecn::NotCapable };
        for i in 0..shot.packets {
            let number = records.len() as u64;
            let packet =
                Packet { number, at: shot.at, bytes: shot.bytes, flow: u32::from(shot.flow), source: 0, ecn, tag: 0 };
            let segment = (i, shot.packets);
            records.push(Record { packet, segment, tcp: None, fate: Fate::UnderWay });
            series.sent.push(Sent { at: shot.at, took: 1, bytes: shot.bytes, segment });
            pipeline.push(packet);
        }
    }
    while let Some(packet) = pipeline.pop(Nanos::MAX - 1) {
        let marked = packet.ecn == Ecn::Marked;
        records[packet.number as usize].fate = Fate::Delivered { ideal: packet.at, actual: packet.at, marked };
        series.got.push(Got { number: packet.number as usize, at: packet.at, marked });
    }
    for drop in &pipeline.ledger.dropped {
        records[drop.packet.number as usize].fate = Fate::Dropped(drop.cause, drop.packet.at);
    }
    (records, series)
}

fn first_dropped(records: &[Record], cause: Cause) -> usize {
    records.iter().position(|record| matches!(record.fate, Fate::Dropped(why, _) if why == cause)).unwrap()
}

#[test]
fn the_traffic_exceeds_the_rate_in_the_mean_but_not_always() {
    let shots = traffic(8_000_000, 1500, 3_000_000_000, Dice::new(2));
    let bytes = |shot: &Shot| u64::from(shot.bytes) * u64::from(shot.packets);
    let load = |from: Nanos, to: Nanos| {
        let sum: u64 = shots.iter().filter(|shot| (from..to).contains(&shot.at)).map(bytes).sum();
        sum * 8_000 / (to - from) * 100 / 8
    };
    assert!((105..130).contains(&load(0, 3_000_000_000)), "{} %", load(0, 3_000_000_000));
    assert!(load(1_000_000_000, 1_250_000_000) < 80);
    assert!(shots.iter().any(|shot| shot.packets > 1) && shots.iter().any(|shot| shot.flow == 7));
}

#[test]
fn true_decisions_pass_and_one_wrong_one_fails() {
    for text in [TAIL_DROP, RED] {
        let conditions = conditions(text);
        let (records, series) = emulate(&conditions);
        let finding = replay(&records, 0, &series, &conditions, dice()).unwrap();
        assert!(finding.pass, "{finding:?}");
        assert!(!finding.measured.contains("(0 dropped"), "{finding:?}");

        let mut wrong = records.clone();
        let other = first_dropped(&records, if text == RED { Cause::Early } else { Cause::Full });
        wrong[other].fate = Fate::Delivered { ideal: 0, actual: 0, marked: false };
        assert!(!replay(&wrong, 0, &series, &conditions, dice()).unwrap().pass);
    }
}

#[test]
fn other_dice_decide_otherwise() {
    let conditions = conditions(RED);
    let (records, series) = emulate(&conditions);
    assert!(!replay(&records, 0, &series, &conditions, Dice::new(5)).unwrap().pass);
    assert!(repeat(&records, &conditions, dice()).unwrap().pass);
    assert!(!repeat(&records, &conditions, Dice::new(5)).unwrap().pass);
}

#[test]
fn a_departure_that_is_late_and_a_drop_that_the_receiver_knows_nothing_of_fail() {
    let conditions = conditions(TAIL_DROP);
    let (records, series) = emulate(&conditions);
    let mut late = records.clone();
    if let Fate::Delivered { ideal, .. } = &mut late[0].fate {
        *ideal += 1;
    }
    assert!(!replay(&late, 0, &series, &conditions, dice()).unwrap().pass);
    let mut unseen = series.clone();
    unseen.got.pop();
    assert!(!replay(&records, 0, &unseen, &conditions, dice()).unwrap().pass);
    let mut unmarked = series;
    unmarked.got[3].marked ^= true;
    assert!(!replay(&records, 0, &unmarked, &conditions, dice()).unwrap().pass);
}

#[test]
fn a_queue_that_holds_less_or_more_than_its_limit_is_found() {
    let (records, _) = emulate(&conditions(TAIL_DROP));
    let with = |limit: &str| occupancy(&records, &conditions(&TAIL_DROP.replace("5pkt", limit))).unwrap().pass;
    assert_eq!([with("4pkt"), with("5pkt"), with("6pkt")], [false, true, false]);
    let bytes = |limit: &str| conditions(&TAIL_DROP.replace("5pkt", limit));
    let (records, _) = emulate(&bytes("9000B"));
    assert!(occupancy(&records, &bytes("9000B")).unwrap().pass);
    assert!(!occupancy(&records, &bytes("8000B")).unwrap().pass);
    assert!(!occupancy(&records, &bytes("11000B")).unwrap().pass);
    assert!(occupancy(&records, &conditions(RED)).is_none());
}

#[test]
fn a_repetition_that_drops_something_else_is_found() {
    let conditions = conditions(TAIL_DROP);
    let (mut records, _) = emulate(&conditions);
    assert!(repeat(&records, &conditions, dice()).unwrap().pass);
    let dropped = first_dropped(&records, Cause::Full);
    records[dropped].fate = Fate::Dropped(Cause::Early, records[dropped].packet.at);
    assert!(!repeat(&records, &conditions, dice()).unwrap().pass);
    assert!(repeat(&[], &conditions, dice()).is_none());
}
