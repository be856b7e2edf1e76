//! Checks the decisions of the emulator by replaying its records through the slow models of
//! [`reference`](mod@crate::reference), and through a new pipeline of the emulator.
//!
//! Because the emulator itself makes the records, they are compared with the receiver: the packets missing at the
//! receiver must be exactly those recorded as dropped.

use super::probe::{ProbeSend, ProbeSeries};
use super::row::Finding;
use crate::reference::{self, ReferenceOutcome};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{Conditions, QueueKind, QueueLimit, TailDropSettings};
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::nanos;
use ekiden_emulator::packet::Packet;
use ekiden_emulator::pipeline::Pipeline;
use ekiden_emulator::records::{PacketOutcome, PacketRecord};
use ekiden_emulator::rng::SeededRng;

/// Load of successive quarters of a second, in per cent of the rate: the queue fills, stays full, drains and becomes
/// empty.
const LOAD_PERCENTS: [u64; 6] = [130, 90, 180, 110, 60, 140];
const PHASE_DURATION: Nanos = 250_000_000;

/// Maximum number of send calls per second. A small machine makes this many on time.
const MAX_CALLS_PER_SECOND: u64 = 4000;

/// Returns traffic that exercises the queue: eight flows, packets of three sizes, superpackets, and a changing load.
pub fn replay_traffic(rate: u64, mtu: u32, duration: Nanos, rng: SeededRng) -> Vec<ProbeSend> {
    let sizes = [100, 576, mtu];
    let mean = u64::from(sizes.iter().sum::<u32>()) / 3;
    let least = (rate / 8 / mean / MAX_CALLS_PER_SECOND + 1).min(20);
    let mut at = 0;
    let next_send = |number: u64| {
        let pick = |label: &str, modulus: u64| rng.derive(label).bits(number) % modulus;
        let bytes = sizes[pick("size", 3) as usize];
        let packets = least + pick("packets", 4);
        let load = LOAD_PERCENTS[(at / PHASE_DURATION) as usize % LOAD_PERCENTS.len()];
        let send = ProbeSend { at, bytes, packets: packets as u16, sender: pick("flow", 8) as u16 };
        at += u64::from(bytes) * packets * 8_000_000_000 / rate * 100 / load;
        send
    };
    (0..).map(next_send).take_while(|send| send.at < duration).collect()
}

/// Returns the records of packets that reached the queue.
fn records_at_queue(records: &[PacketRecord]) -> Vec<&PacketRecord> {
    let before = |record: &&PacketRecord| {
        !matches!(record.outcome, PacketOutcome::Dropped(DropCause::IngressLoss | DropCause::Down, _))
    };
    records.iter().filter(before).collect()
}

/// Replays all records of a direction through the reference model of the queue, and compares drops, causes, marks and
/// departures. Also compares the records of the last series with the packets that the receiver saw. Records before the
/// index `before` are older than that series. `rng` is the generator of the direction. Returns `None` without a rate or
/// a queue.
pub fn check_queue_decisions(
    records: &[PacketRecord],
    before: usize,
    series: &ProbeSeries,
    conditions: &Conditions,
    rng: SeededRng,
) -> Option<Finding> {
    let (rate, queue) = (conditions.rate?, conditions.queue.as_ref()?);
    let queued = records_at_queue(records);
    let arrivals: Vec<Packet> = queued.iter().map(|record| record.packet).collect();
    let outcomes = reference::simulate_line(&arrivals, rate, queue, rng.derive("queue"));
    let delay = has_exact_departures(conditions).then(|| conditions.delay.map_or(0, nanos));
    let same =
        |(record, outcome): (&&PacketRecord, &ReferenceOutcome)| is_same_decision(&record.outcome, outcome, delay);
    let differ = outcomes.len().abs_diff(queued.len())
        + queued.iter().zip(&outcomes).filter(|(record, outcome)| !same((record, outcome))).count();
    let unconfirmed = count_unconfirmed(&records[before..], series, conditions.count.overhead());
    let dropped = outcomes.iter().filter(|outcome| matches!(outcome, ReferenceOutcome::Dropped { .. })).count();
    let marked =
        outcomes.iter().filter(|outcome| matches!(outcome, ReferenceOutcome::Sent { marked: true, .. })).count();
    Some(Finding {
        wanted: "recorded arrivals through the reference: 0 decisions differ, 0 unlike at the receiver".to_owned(),
        measured: format!("{differ} and {unconfirmed} of {} ({dropped} dropped, {marked} marked)", arrivals.len()),
        pass: differ == 0 && unconfirmed == 0 && !arrivals.is_empty() && series.overflow == 0,
    })
}

/// Returns whether the departure from the line can be computed from the ideal time of a packet.
const fn has_exact_departures(conditions: &Conditions) -> bool {
    conditions.jitter.is_none() && conditions.reorder.is_none() && conditions.access_rate.is_none()
}

/// Returns whether the emulator and the model made the same decision. With a `delay`, departures are compared, too.
fn is_same_decision(recorded: &PacketOutcome, modelled: &ReferenceOutcome, delay: Option<Nanos>) -> bool {
    match (*recorded, *modelled) {
        (PacketOutcome::Dropped(DropCause::WireLoss, _), ReferenceOutcome::Sent { .. }) => true,
        (PacketOutcome::Dropped(cause, at), ReferenceOutcome::Dropped { at: expected_at, cause: expected }) => {
            cause == expected && (delay.is_none() || at == expected_at)
        }
        (PacketOutcome::Delivered { ideal, marked, .. }, ReferenceOutcome::Sent { at, marked: expected }) => {
            marked == expected && delay.is_none_or(|delay| ideal == at + delay)
        }
        _ => false,
    }
}

/// Returns the number of packets for which receiver and record differ. Records are in the order of sending.
fn count_unconfirmed(records: &[PacketRecord], series: &ProbeSeries, overhead: u32) -> usize {
    let mut marks = vec![None; series.sent.len()];
    for probe in &series.received {
        marks[probe.number] = Some(probe.marked);
    }
    let is_confirmed = |((record, sent), marks): &((&PacketRecord, &super::probe::SentProbe), &Option<bool>)| {
        let recorded = match record.outcome {
            PacketOutcome::Delivered { marked, .. } => Some(marked),
            PacketOutcome::Dropped(..) | PacketOutcome::InFlight => None,
        };
        record.packet.bytes == sent.bytes + overhead && record.segment == sent.segment && recorded == **marks
    };
    let pairs = records.iter().zip(&series.sent).zip(&marks);
    records.len().abs_diff(series.sent.len()) + pairs.filter(|pair| !is_confirmed(pair)).count()
}

/// Checks the maximum occupancy of a tail-drop queue, computed from the recorded times: the occupancy must reach the
/// limit, and not exceed it. Returns `None` for other queues, or if departures cannot be computed.
pub fn check_occupancy(records: &[PacketRecord], conditions: &Conditions) -> Option<Finding> {
    let (rate, Some(QueueKind::TailDrop(TailDropSettings { limit }))) = (conditions.rate?, conditions.queue.as_ref())
    else {
        return None;
    };
    if !has_exact_departures(conditions) {
        return None;
    }
    let delay = conditions.delay.map_or(0, nanos);
    let amount = |packet: &Packet| match limit {
        QueueLimit::Packets(_) => 1,
        QueueLimit::Bytes(_) => u64::from(packet.bytes),
    };
    let intervals = records_at_queue(records).into_iter().filter_map(|record| {
        let departure = match record.outcome {
            PacketOutcome::Delivered { ideal, .. } => ideal,
            PacketOutcome::Dropped(DropCause::WireLoss, at) => at,
            _ => return None,
        };
        let start = departure - delay - reference::transmission_time(record.packet.bytes, rate);
        Some((record.packet.at, start, amount(&record.packet)))
    });
    // The sort puts a departure before an arrival at the same instant.
    let mut steps: Vec<(Nanos, bool, u64)> = intervals
        .filter(|(arrival, start, _)| start > arrival)
        .flat_map(|(arrival, start, n)| [(arrival, true, n), (start, false, n)])
        .collect();
    steps.sort_unstable();
    let (mut queued, mut most) = (0, 0);
    for (_, is_arrival, n) in steps {
        queued = if is_arrival { queued + n } else { queued - n };
        most = most.max(queued);
    }
    let full_drops =
        records.iter().filter(|record| matches!(record.outcome, PacketOutcome::Dropped(DropCause::Full, _)));
    // The largest packet that was dropped for lack of space bounds the free space.
    let largest_drop = full_drops.clone().map(|record| amount(&record.packet)).max();
    let allowed = match limit {
        QueueLimit::Packets(allowed) | QueueLimit::Bytes(allowed) => allowed,
    };
    let least = largest_drop.map_or(0, |largest_drop| (allowed + 1).saturating_sub(largest_drop));
    Some(Finding {
        wanted: format!("most that waits: {least} … {limit}"),
        measured: format!("{most}; {} dropped", full_drops.count()),
        pass: most <= *allowed && most >= least,
    })
}

/// Replays all records of a direction through a new pipeline of the same seed, which must drop the same packets for the
/// same reasons at the same times. Returns `None` if neither dropped a packet.
pub fn check_repeatability(records: &[PacketRecord], conditions: &Conditions, rng: SeededRng) -> Option<Finding> {
    let recorded: Vec<(u64, DropCause, Nanos)> = records
        .iter()
        .filter_map(|record| match record.outcome {
            PacketOutcome::Dropped(cause, at) => Some((record.packet.number, cause, at)),
            _ => None,
        })
        .collect();
    let last = records.iter().map(|record| record.packet.at).max()?;
    let mut pipeline = Pipeline::new(&[conditions], rng);
    for record in records {
        pipeline.push(record.packet);
        while pipeline.pop(record.packet.at).is_some() {}
    }
    while let Some(at) = pipeline.next_wakeup() {
        while pipeline.pop(at.max(last)).is_some() {}
    }
    let mut replayed: Vec<(u64, DropCause, Nanos)> =
        pipeline.events.dropped.iter().map(|drop| (drop.packet.number, drop.cause, drop.packet.at)).collect();
    replayed.sort_unstable();
    let is_equal = recorded == replayed;
    (!recorded.is_empty() || !is_equal).then(|| Finding {
        wanted: "same seed, same arrivals: identical drop list".to_owned(),
        measured: format!(
            "{} dropped, then {}{}",
            recorded.len(),
            replayed.len(),
            if is_equal { "" } else { "; they differ" }
        ),
        pass: is_equal,
    })
}

#[cfg(test)]
mod tests {
    use super::super::probe::{ReceivedProbe, SentProbe};
    use super::*;
    use ekiden_emulator::packet::Ecn;

    const TAIL_DROP: &str = "rate = '8Mbit/s'\ndelay = '3ms'\nqueue = { kind = 'tail-drop', limit = '5pkt' }";
    const RED: &str = "rate = '8Mbit/s'\nqueue = { kind = 'red', limit = '60pkt', min = '5pkt', max = '15pkt', p = 0.1, \
                   wq = 0.02, ecn = true }\nloss = { model = 'bernoulli', p = 0.05, at = 'ingress' }";

    fn conditions(text: &str) -> Conditions {
        toml::from_str(text).unwrap()
    }

    fn test_rng() -> SeededRng {
        SeededRng::new(4).derive("wan").derive("forward")
    }

    /// Passes the traffic of the check through the emulator's pipeline. Returns the records of the emulator, and the
    /// probes as the sender and the receiver see them.
    fn emulate(conditions: &Conditions) -> (Vec<PacketRecord>, ProbeSeries) {
        let shots = replay_traffic(8_000_000, 1500, 2_000_000_000, SeededRng::new(2));
        let mut pipeline = Pipeline::new(&[conditions], test_rng());
        let (mut records, mut series) = (Vec::<PacketRecord>::new(), ProbeSeries::default());
        for shot in shots {
            let ecn = if shot.sender % 2 == 1 { Ecn::Capable } else { Ecn::NotCapable };
            for i in 0..shot.packets {
                let number = records.len() as u64;
                let packet = Packet {
                    number,
                    at: shot.at,
                    bytes: shot.bytes,
                    flow: u32::from(shot.sender),
                    source: 0,
                    ecn,
                    tag: 0,
                };
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
        records
            .iter()
            .position(|record| matches!(record.outcome, PacketOutcome::Dropped(why, _) if why == cause))
            .unwrap()
    }

    #[test]
    fn traffic_exceeds_the_rate_on_average_with_quiet_phases() {
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
    fn correct_decisions_pass_and_one_wrong_decision_fails() {
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
    fn decisions_of_another_seed_fail() {
        let conditions = conditions(RED);
        let (records, series) = emulate(&conditions);
        assert!(!check_queue_decisions(&records, 0, &series, &conditions, SeededRng::new(5)).unwrap().pass);
        assert!(check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
        assert!(!check_repeatability(&records, &conditions, SeededRng::new(5)).unwrap().pass);
    }

    #[test]
    fn late_departures_missing_arrivals_and_wrong_marks_fail() {
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
    fn occupancy_below_or_above_the_limit_fails() {
        let (records, _) = emulate(&conditions(TAIL_DROP));
        let with =
            |limit: &str| check_occupancy(&records, &conditions(&TAIL_DROP.replace("5pkt", limit))).unwrap().pass;
        assert_eq!([with("4pkt"), with("5pkt"), with("6pkt")], [false, true, false]);
        let bytes = |limit: &str| conditions(&TAIL_DROP.replace("5pkt", limit));
        let (records, _) = emulate(&bytes("9000B"));
        assert!(check_occupancy(&records, &bytes("9000B")).unwrap().pass);
        assert!(!check_occupancy(&records, &bytes("8000B")).unwrap().pass);
        assert!(!check_occupancy(&records, &bytes("11000B")).unwrap().pass);
        assert!(check_occupancy(&records, &conditions(RED)).is_none());
    }

    #[test]
    fn repeatability_fails_if_a_drop_differs() {
        let conditions = conditions(TAIL_DROP);
        let (mut records, _) = emulate(&conditions);
        assert!(check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
        let dropped = first_dropped(&records, DropCause::Full);
        records[dropped].outcome = PacketOutcome::Dropped(DropCause::Early, records[dropped].packet.at);
        assert!(!check_repeatability(&records, &conditions, test_rng()).unwrap().pass);
        assert!(check_repeatability(&[], &conditions, test_rng()).is_none());
    }
}
