//! One direction of a link: stages in a fixed order, driven event by event in virtual time.
//!
//! The order is: link state, access rate, ingress loss, queue and line, delay and jitter, reordering, wire loss,
//! duplicates. Stages that no conditions require are omitted.

use std::collections::VecDeque;

use crate::Nanos;
use crate::conditions::{Conditions, LossPosition};
use crate::ledger::StageEvents;
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::stage::{Stage, delay, line, loss};

const NEVER: Nanos = Nanos::MAX;

/// One direction of a link, in virtual time.
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    /// Time of the next departure from each stage.
    next_departures: Vec<Nanos>,
    /// For each stage, the minimum delay of the stages behind it; the last entry is the minimum delay of all stages.
    min_remaining_delays: Vec<Nanos>,
    /// Virtual time up to which events are final.
    settled_until: Nanos,
    output: VecDeque<Packet>,
    /// Drops, duplicates and queueing delays. The caller empties the lists.
    pub events: StageEvents,
    per_packet: bool,
}

impl Pipeline {
    /// Creates a direction with the first of `conditions`. [`set_conditions`](Self::set_conditions) may later switch to
    /// the others. `rng` decides random events.
    #[must_use]
    pub fn new(conditions: &[&Conditions], rng: SeededRng) -> Self {
        let Some(first) = conditions.first() else {
            return Self::from_stages(Vec::new(), false);
        };
        let has_any = |predicate: fn(&Conditions) -> bool| conditions.iter().any(|conditions| predicate(conditions));
        let loses_packets_at =
            |place| conditions.iter().any(|c| c.loss.as_ref().is_some_and(|loss| loss.at() == place));
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if has_any(|c| c.down) {
            stages.push(Box::new(loss::LinkStateStage::new(first)));
        }
        if has_any(|c| c.access_rate.is_some()) {
            stages.push(Box::new(line::AccessRateStage::new(first)));
        }
        if loses_packets_at(LossPosition::Ingress) {
            stages.push(Box::new(loss::LossStage::new(first, LossPosition::Ingress, rng)));
        }
        if has_any(|c| c.rate.is_some() || c.trace.is_some() || c.queue.is_some()) {
            stages.push(Box::new(line::BottleneckStage::new(first, rng)));
        }
        if has_any(|c| c.delay.is_some() || c.jitter.is_some()) {
            stages.push(Box::new(delay::DelayStage::new(first, rng)));
        }
        if has_any(|c| c.reorder.is_some()) {
            stages.push(Box::new(delay::ReorderStage::new(first, rng)));
        }
        if loses_packets_at(LossPosition::Wire) {
            stages.push(Box::new(loss::LossStage::new(first, LossPosition::Wire, rng)));
        }
        if has_any(|c| c.duplicate.is_some()) {
            stages.push(Box::new(loss::DuplicateStage::new(first, rng)));
        }
        let only_delay = |c: &&Conditions| {
            **c == Conditions { delay: c.delay, count: c.count, down: c.down, ..Conditions::default() }
        };
        Self::from_stages(stages, !conditions.iter().all(only_delay))
    }

    fn from_stages(stages: Vec<Box<dyn Stage>>, per_packet: bool) -> Self {
        let next_departures = vec![NEVER; stages.len()];
        let min_remaining_delays = remaining_delays(&stages);
        Self {
            stages,
            next_departures,
            min_remaining_delays,
            settled_until: 0,
            output: VecDeque::new(),
            events: StageEvents::default(),
            per_packet,
        }
    }

    /// Returns whether a stage distinguishes the packets of a superpacket. If not, a superpacket may be pushed whole.
    #[must_use]
    pub fn is_per_packet(&self) -> bool {
        self.per_packet
    }

    /// Takes a packet at `packet.at`, after all earlier events. At equal times, departures precede arrivals. If the time
    /// of the packet is already final, the packet arrives at the latest final time instead. Returns the time of arrival.
    pub fn push(&mut self, packet: Packet) -> Nanos {
        self.settled_until = self.settled_until.max(packet.at);
        self.advance(|at, _| at <= packet.at);
        self.push_to_stage(0, Packet { at: self.settled_until, ..packet });
        self.settled_until
    }

    /// Returns the next packet that leaves the pipeline, if it leaves at or before `now`. Events become final as late
    /// as possible: with a delay at the far end, packets may be pushed later than they arrived by up to that delay.
    pub fn pop(&mut self, now: Nanos) -> Option<Packet> {
        self.settled_until = self.settled_until.max(now.saturating_sub(self.min_remaining_delays[self.stages.len()]));
        self.advance(|at, remaining| at + remaining <= now);
        self.output.pop_front()
    }

    /// Returns the earliest time at which a packet may leave the pipeline without another push. The packet may still be
    /// dropped.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Nanos> {
        let next_output = self.output.front().map(|packet| packet.at);
        let next_in_stages = self
            .next_departures
            .iter()
            .zip(&self.min_remaining_delays)
            .map(|(next, remaining)| next.saturating_add(*remaining))
            .min();
        next_output.or(next_in_stages).filter(|at| *at != NEVER)
    }

    /// Applies new conditions from `now` on. They must be among the conditions passed to [`new`](Self::new).
    pub fn set_conditions(&mut self, conditions: &Conditions, now: Nanos) {
        self.settled_until = self.settled_until.max(now);
        self.advance(|at, _| at <= now);
        for index in 0..self.stages.len() {
            self.stages[index].set_conditions(conditions, now, &mut self.events);
            self.update_next_departure(index);
        }
        self.min_remaining_delays = remaining_delays(&self.stages);
    }

    /// Returns the number of packets in the pipeline.
    #[must_use]
    pub fn packet_count(&self) -> usize {
        self.output.len() + self.stages.iter().map(|stage| stage.packet_count()).sum::<usize>()
    }

    /// Executes the events for which `due` is true, in order of time; at equal times, those of the last stage first.
    /// The arguments of `due` are the time of the event and the minimum delay from there to the far end.
    fn advance(&mut self, due: impl Fn(Nanos, Nanos) -> bool) {
        while let Some(index) = self.earliest_due_stage(&due) {
            let packet = self.stages[index].pop(&mut self.events);
            self.update_next_departure(index);
            if let Some(packet) = packet {
                self.push_to_stage(index + 1, packet);
            }
        }
    }

    fn earliest_due_stage(&self, due: impl Fn(Nanos, Nanos) -> bool) -> Option<usize> {
        let times = self.next_departures.iter().zip(&self.min_remaining_delays).enumerate();
        let due = times.filter(|(_, (at, remaining))| **at != NEVER && due(**at, **remaining));
        due.min_by_key(|(index, (at, _))| (**at, std::cmp::Reverse(*index))).map(|(index, _)| index)
    }

    fn push_to_stage(&mut self, index: usize, packet: Packet) {
        if let Some(stage) = self.stages.get_mut(index) {
            stage.push(packet, &mut self.events);
            self.update_next_departure(index);
        } else {
            self.output.push_back(packet);
        }
    }

    fn update_next_departure(&mut self, index: usize) {
        self.next_departures[index] = self.stages[index].next_departure().unwrap_or(NEVER);
    }
}

/// Returns the minimum delay of the stages behind each stage, and at the end that of all stages.
fn remaining_delays(stages: &[Box<dyn Stage>]) -> Vec<Nanos> {
    let mut delays = vec![0; stages.len() + 1];
    let mut total = 0;
    for (index, stage) in stages.iter().enumerate().rev() {
        delays[index] = total;
        total += stage.min_delay();
    }
    delays[stages.len()] = total;
    delays
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MS;
    use crate::fixtures::{conditions, packet};

    const LONG: &str = "rate = '12Mbit/s'\ndelay = '20ms'\nqueue = { kind = 'codel', limit = '100pkt' }\n\
                    loss = { model = 'bernoulli', p = 0.01 }";

    /// Returns the departed packets and the number of drops. At the arrival of a packet at time t, the driver polls the
    /// pipeline for `times(t)`.
    fn run_polled_at(times: impl Fn(Nanos) -> Nanos) -> (Vec<Packet>, usize) {
        let conditions = conditions(LONG);
        let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(7));
        let mut out = Vec::new();
        for number in 0..2000 {
            let at = number * MS * 9 / 10;
            // The driver polls before it pushes the packet that arrives at this time.
            while let Some(packet) = pipeline.pop(times(at)) {
                out.push(packet);
            }
            pipeline.push(packet(number, at, 1500));
        }
        while let Some(packet) = pipeline.pop(Nanos::MAX / 2) {
            out.push(packet);
        }
        (out, pipeline.events.dropped.len())
    }

    #[test]
    fn poll_times_do_not_change_the_result() {
        let promptly = run_polled_at(|at| at);
        assert!(promptly.1 > 30 && promptly.0.len() > 1000, "enough drops and packets to compare");
        assert_eq!(promptly, run_polled_at(|at| at / (50 * MS) * 50 * MS), "every 50 ms");
        assert_eq!(promptly, run_polled_at(|at| at + 19 * MS), "late with its input by less than the delay");
    }

    #[test]
    fn next_wakeup_is_the_time_of_the_next_output() {
        let conditions = conditions(LONG);
        let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(7));
        assert_eq!(pipeline.next_wakeup(), None);
        pipeline.push(packet(0, 0, 1500));
        assert_eq!(pipeline.next_wakeup(), Some(21 * MS), "1 ms of transmission and 20 ms of delay");
        assert_eq!(pipeline.pop(21 * MS - 1), None);
        assert_eq!(pipeline.pop(21 * MS).map(|packet| packet.at), Some(21 * MS));
        assert_eq!(pipeline.next_wakeup(), None);
    }

    #[test]
    fn per_packet_is_set_only_by_stages_that_distinguish_packets() {
        let is_by_packet = |text: &str| Pipeline::new(&[&conditions(text)], SeededRng::new(1)).is_per_packet();
        assert!(!is_by_packet("") && !is_by_packet("delay = '10ms'"));
        for text in [
            "rate = '1Gbit/s'",
            "loss = { model = 'bernoulli', p = 0 }",
            "jitter = { distribution = 'uniform', scale = '1ms' }",
        ] {
            assert!(is_by_packet(text), "{text}");
        }
    }

    #[test]
    fn rate_change_applies_from_its_time() {
        let (slow, fast) = (conditions("rate = '12Mbit/s'"), conditions("rate = '120Mbit/s'"));
        let mut pipeline = Pipeline::new(&[&slow, &fast], SeededRng::new(1));
        for number in 0..5 {
            pipeline.push(packet(number, 0, 1500));
        }
        pipeline.set_conditions(&fast, MS * 3 / 2);
        let times: Vec<_> = std::iter::from_fn(|| pipeline.pop(10 * MS)).map(|packet| packet.at).collect();
        assert_eq!(times, [MS, 2 * MS, 2 * MS + MS / 10, 2 * MS + MS / 5, 2 * MS + MS * 3 / 10]);
    }

    #[test]
    fn shorter_delay_does_not_reorder_packets() {
        let (long, short) = (conditions("delay = '20ms'"), conditions("delay = '1ms'"));
        let mut pipeline = Pipeline::new(&[&long, &short], SeededRng::new(1));
        pipeline.push(packet(0, 0, 1500));
        pipeline.set_conditions(&short, 5 * MS);
        pipeline.push(packet(1, 6 * MS, 1500));
        pipeline.push(packet(2, 30 * MS, 1500));
        let out: Vec<_> = std::iter::from_fn(|| pipeline.pop(50 * MS)).map(|p| (p.number, p.at)).collect();
        assert_eq!(out, [(0, 20 * MS), (1, 20 * MS), (2, 31 * MS)]);
    }

    #[test]
    fn loss_decisions_are_independent_of_other_stages_and_links() {
        let lost = |text: &str, rng: SeededRng| {
            let conditions = conditions(text);
            let mut pipeline = Pipeline::new(&[&conditions], rng);
            for number in 0..5000 {
                pipeline.push(packet(number, number * MS, 1500));
            }
            while pipeline.pop(Nanos::MAX / 2).is_some() {}
            pipeline.events.dropped.iter().map(|drop| drop.packet.number).collect::<Vec<_>>()
        };
        let loss = "loss = { model = 'bernoulli', p = 0.01 }";
        let rng = SeededRng::new(3).derive("wan");
        let plain = lost(loss, rng);
        assert!(plain.len() > 20);
        assert_eq!(
            plain,
            lost(&format!("{loss}\ndelay = '5ms'\njitter = {{ distribution = 'normal', scale = '1ms' }}"), rng)
        );
        assert_ne!(plain, lost(loss, SeededRng::new(3).derive("lan")));
    }
}
