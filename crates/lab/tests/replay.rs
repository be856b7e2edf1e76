//! Compares the emulator's queues and losses with the plain models of `reference`, over thousands of random arrival
//! patterns: every packet must have the same outcome at the same nanosecond.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::collections::BTreeMap;

use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{Conditions, Loss, LossPosition, QueueKind};
use ekiden_emulator::ledger::{DropCause, StageEvents};
use ekiden_emulator::packet::{Ecn, Packet};
use ekiden_emulator::pipeline::Pipeline;
use ekiden_emulator::queue::{self, Queue};
use ekiden_emulator::rng::SeededRng;
use ekiden_lab::reference::{self, ReferenceOutcome};
use ekiden_proto::units::Rate;

#[path = "replay/arrivals.rs"]
mod arrivals;
#[path = "replay/auto.rs"]
mod auto;
#[path = "replay/settings.rs"]
mod settings;

use arrivals::pattern;

/// Number of arrival patterns for each setting of each queue.
const PATTERNS: u64 = 120;

type Outcomes = BTreeMap<u64, ReferenceOutcome>;

fn record_drops(ledger: &mut StageEvents, outcomes: &mut Outcomes) {
    for drop in ledger.dropped.drain(..) {
        let before =
            outcomes.insert(drop.packet.number, ReferenceOutcome::Dropped { at: drop.packet.at, cause: drop.cause });
        assert_eq!(before, None, "packet {} was dropped after another outcome", drop.packet.number);
    }
}

/// A minimal line: the queue, and the time at which the packet in transmission leaves.
struct MinimalLine {
    queue: Box<dyn Queue>,
    rate: Rate,
    busy_until: Option<Nanos>,
    events: StageEvents,
    outcomes: Outcomes,
}

impl MinimalLine {
    fn run(kind: &QueueKind, rate: Rate, rng: SeededRng, arrivals: &[Packet]) -> Outcomes {
        let queue = queue::build(kind, Some(rate), rng);
        let mut line =
            Self { queue, rate, busy_until: None, events: StageEvents::default(), outcomes: Outcomes::new() };
        for packet in arrivals {
            line.run_until(packet.at);
            line.queue.enqueue(*packet, &mut line.events);
            if line.busy_until.is_none() {
                line.send(packet.at);
            }
            record_drops(&mut line.events, &mut line.outcomes);
        }
        line.run_until(Nanos::MAX);
        assert_eq!(line.queue.backlog(), queue::Backlog::default(), "packets wait although the line is idle");
        line.outcomes
    }

    fn run_until(&mut self, time: Nanos) {
        while let Some(end) = self.busy_until.filter(|end| *end <= time) {
            self.send(end);
        }
    }

    fn send(&mut self, now: Nanos) {
        let sent = self.queue.dequeue(now, &mut self.events);
        self.busy_until = sent.map(|packet| now + exact_transmission_time(packet.bytes, self.rate));
        if let (Some(packet), Some(at)) = (sent, self.busy_until) {
            self.outcomes.insert(packet.number, ReferenceOutcome::Sent { at, marked: packet.ecn == Ecn::Marked });
        }
        record_drops(&mut self.events, &mut self.outcomes);
    }
}

/// The transmission time, rounded to the nearest nanosecond by division and remainder, unlike in the emulator.
fn exact_transmission_time(bytes: u32, rate: Rate) -> Nanos {
    let (bits, rate) = (u128::from(bytes) * 8_000_000_000, u128::from(rate.bits_per_second()));
    let up = u128::from(bits % rate * 2 >= rate);
    Nanos::try_from(bits / rate + up).unwrap()
}

/// Passes the arrivals through the emulator's pipeline, in virtual time.
fn through_pipeline(conditions: &Conditions, rng: SeededRng, arrivals: &[Packet]) -> Outcomes {
    let mut pipeline = Pipeline::new(&[conditions], rng);
    let mut outcomes = Outcomes::new();
    let mut collect = |pipeline: &mut Pipeline, until: Nanos| {
        while let Some(packet) = pipeline.pop(until) {
            outcomes.insert(packet.number, ReferenceOutcome::Sent { at: packet.at, marked: packet.ecn == Ecn::Marked });
        }
        record_drops(&mut pipeline.events, &mut outcomes);
    };
    for packet in arrivals {
        pipeline.push(*packet);
        collect(&mut pipeline, packet.at);
    }
    collect(&mut pipeline, Nanos::MAX - 1);
    outcomes
}

/// Panics if outcomes differ. The message has the number of packets that differ, and both outcomes of the first.
fn assert_same(what: &str, arrivals: &[Packet], wanted: &[ReferenceOutcome], got: &Outcomes) {
    assert_eq!(arrivals.len(), wanted.len(), "{what}: the model has lost packets");
    let differs = |(packet, wanted): &(&Packet, &ReferenceOutcome)| got.get(&packet.number) != Some(*wanted);
    let time = |(_, wanted): &(&Packet, &ReferenceOutcome)| match wanted {
        ReferenceOutcome::Sent { at, .. } | ReferenceOutcome::Dropped { at, .. } => *at,
    };
    let Some((packet, model)) = arrivals.iter().zip(wanted).filter(differs).min_by_key(time) else { return };
    let others = arrivals.iter().zip(wanted).filter(differs).count();
    panic!(
        "{what}: of {} packets {others} have another outcome, first\n  {packet:?}\n  model: {model:?}\n  queue: {:?}",
        arrivals.len(),
        got.get(&packet.number)
    );
}

/// Numbers of outcomes over all patterns. A test requires that each kind occurs.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    sent: u64,
    marked: u64,
    full: u64,
    early: u64,
    forced: u64,
}

impl Tally {
    fn add(&mut self, arrivals: &[Packet], outcomes: &[ReferenceOutcome]) {
        for (packet, outcome) in arrivals.iter().zip(outcomes) {
            *match outcome {
                ReferenceOutcome::Sent { marked: true, .. } if packet.ecn != Ecn::Marked => &mut self.marked,
                ReferenceOutcome::Sent { .. } => &mut self.sent,
                ReferenceOutcome::Dropped { cause: DropCause::Early, .. } => &mut self.early,
                ReferenceOutcome::Dropped { cause: DropCause::Forced, .. } => &mut self.forced,
                ReferenceOutcome::Dropped { .. } => &mut self.full,
            } += 1;
        }
    }
}

/// Replays every pattern through the model, the bare queue, and the emulator's pipeline.
fn replay(text: &str) -> Tally {
    let mut kind: QueueKind = toml::from_str(text).unwrap();
    if let QueueKind::StaticPriority(settings) = &mut kind {
        // The parser of lab files sets the sources from names of hosts, which are missing here.
        settings.heavy.sources = vec![0, 2];
    }
    let mut tally = Tally::default();
    for seed in 0..PATTERNS {
        let (arrivals, rate) = pattern(seed);
        let rng = SeededRng::new(seed);
        let wanted = reference::simulate_line(&arrivals, rate, &kind, rng.derive("queue"));
        tally.add(&arrivals, &wanted);
        let what = format!("{text}, pattern {seed} at {rate}");
        let bare = MinimalLine::run(&kind, rate, rng.derive("queue"), &arrivals);
        assert_same(&format!("bare queue, {what}"), &arrivals, &wanted, &bare);
        let conditions = Conditions { rate: Some(rate), queue: Some(kind.clone()), ..Conditions::default() };
        let emulated = through_pipeline(&conditions, rng, &arrivals);
        assert_same(&format!("pipeline, {what}"), &arrivals, &wanted, &emulated);
    }
    tally
}

#[test]
fn tail_drop_matches_its_model() {
    for text in settings::TAIL_DROP {
        let tally = replay(text);
        assert!(tally.sent > 1000 && tally.full > 1000, "{text}: {tally:?}");
    }
}

#[test]
fn red_matches_its_model() {
    let (mut full, mut forced) = (0, 0);
    for text in settings::RED {
        let tally = replay(text);
        assert!(tally.sent > 1000 && tally.early > 100, "{text}: {tally:?}");
        assert_eq!(tally.marked > 100, text.contains("ecn"), "{text}: {tally:?}");
        (full, forced) = (full + tally.full, forced + tally.forced);
    }
    assert!(full > 50 && forced > 1000, "{full} drops by a full queue, {forced} forced");
}

#[test]
fn priority_drop_matches_its_model() {
    for text in settings::STATIC_PRIORITY.into_iter().chain(settings::DYNAMIC_PRIORITY) {
        let tally = replay(text);
        assert!(tally.sent > 1000 && tally.early > 100, "{text}: {tally:?}");
        assert_eq!(tally.marked > 100, text.contains("ecn"), "{text}: {tally:?}");
    }
}

#[test]
fn codel_matches_its_model() {
    for text in settings::CODEL {
        let tally = replay(text);
        assert!(tally.sent > 1000 && tally.early > 100, "{text}: {tally:?}");
        assert_eq!(tally.marked > 100, text.contains("ecn"), "{text}: {tally:?}");
    }
}

#[test]
fn fq_codel_matches_its_model() {
    for text in settings::FQ_CODEL {
        let tally = replay(text);
        assert!(tally.sent > 1000 && tally.early > 100, "{text}: {tally:?}");
        assert_eq!(tally.marked > 100, text.contains("ecn"), "{text}: {tally:?}");
    }
}

/// Replays the patterns through the loss stage at a position, and returns the number of lost packets.
fn replay_loss(loss: &Loss) -> usize {
    let (name, cause) = match loss.at() {
        LossPosition::Ingress => ("ingress loss", DropCause::IngressLoss),
        LossPosition::Wire => ("wire loss", DropCause::WireLoss),
    };
    let conditions = Conditions { loss: Some(loss.clone()), ..Conditions::default() };
    let replay = |seed| {
        let (arrivals, _) = pattern(seed);
        let rng = SeededRng::new(seed);
        let place = rng.derive(name);
        let lost =
            reference::loss::lost_packets(loss, arrivals.len() as u64, place.derive("loss"), place.derive("state"));
        let outcome = |(packet, lost): (&Packet, &bool)| match lost {
            true => ReferenceOutcome::Dropped { at: packet.at, cause },
            false => ReferenceOutcome::Sent { at: packet.at, marked: packet.ecn == Ecn::Marked },
        };
        let wanted: Vec<ReferenceOutcome> = arrivals.iter().zip(&lost).map(outcome).collect();
        assert_same(
            &format!("{loss:?}, pattern {seed}"),
            &arrivals,
            &wanted,
            &through_pipeline(&conditions, rng, &arrivals),
        );
        lost.iter().filter(|lost| **lost).count()
    };
    (0..PATTERNS).map(replay).sum()
}

#[test]
fn losses_match_their_model() {
    for text in settings::LOSS {
        for place in ["ingress", "wire"] {
            let loss: Loss = toml::from_str(&text.replace("AT", place)).unwrap();
            let lost = replay_loss(&loss);
            assert!(lost > 500, "{loss:?}: {lost}");
        }
    }
}
