//! Priority drop, static and dynamic, by its paper (FIT2013): RED with another factor on the probability for the
//! packets of heavy connections.
//!
//! Points that the paper leaves open follow the specification at the head of the emulator's `queue/priority.rs`. The
//! model keeps all records and recounts the history for each decision.

use std::collections::BTreeSet;

use ekiden_proto::units::Rate;

use super::red::RedModel;
use super::{OutcomeLog, QueueModel};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{DynamicPrioritySettings, StaticPrioritySettings};
use ekiden_emulator::packet::Packet;
use ekiden_emulator::rng::SeededRng;

pub struct StaticPriorityModel {
    red: RedModel,
    heavy: Vec<u32>,
}

impl StaticPriorityModel {
    pub fn new(settings: &StaticPrioritySettings, rate: Rate, rng: SeededRng) -> Self {
        Self {
            red: RedModel::new(settings.red_settings(), settings.n, rate, rng),
            heavy: settings.heavy.sources.clone(),
        }
    }
}

impl QueueModel for StaticPriorityModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        let class = usize::from(self.heavy.contains(&packet.source));
        self.red.arrive_as(class, packet, journal);
    }

    fn take(&mut self, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet> {
        self.red.take(now, journal)
    }
}

pub struct DynamicPriorityModel {
    red: RedModel,
    settings: DynamicPrioritySettings,
    arrived: u32,
    /// The connection of every record; `None` for a record that is not counted.
    records: Vec<Option<u32>>,
    heavy: Option<u32>,
}

impl DynamicPriorityModel {
    pub fn new(settings: DynamicPrioritySettings, rate: Rate, rng: SeededRng) -> Self {
        let red = RedModel::new(settings.red_settings(), settings.n, rate, rng);
        Self { red, settings, arrived: 0, records: Vec::new(), heavy: None }
    }

    /// The indices of the history, of a total of `records` records.
    fn history(&self, records: usize) -> std::ops::Range<usize> {
        records.saturating_sub(self.settings.hist_len as usize)..records
    }

    fn record(&mut self, flow: u32) {
        // The oldest record leaves before the new one joins.
        let history = self.history(self.records.len() + 1).start..self.records.len();
        let mut others: Vec<u32> = self.records[history].iter().flatten().copied().collect();
        others.retain(|other| other % 256 == flow % 256);
        others.sort_unstable();
        others.dedup();
        let counted = others.contains(&flow) || others.len() < 8;
        self.records.push(counted.then_some(flow));
    }

    /// The most frequent connection of the history; among equals, the connection whose records changed last.
    fn most_frequent(&self) -> Option<u32> {
        let history = self.history(self.records.len());
        let flows: BTreeSet<u32> = self.records[history.clone()].iter().flatten().copied().collect();
        flows.into_iter().max_by_key(|flow| {
            let is_flow = |index: &usize| self.records[*index] == Some(*flow);
            let joined = history.clone().rfind(is_flow);
            // Record i leaves just before record i + hist_len joins.
            let left = (0..history.start).rfind(is_flow);
            let left = left.map(|index| 2 * (index + self.settings.hist_len as usize));
            let changed = joined.map(|index| 2 * index + 1).max(left);
            (history.clone().filter(is_flow).count(), changed)
        })
    }
}

impl QueueModel for DynamicPriorityModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        self.arrived += 1;
        if self.arrived.is_multiple_of(self.settings.rec_int) {
            self.record(packet.flow);
        }
        if self.arrived.is_multiple_of(self.settings.sta_int) {
            self.heavy = self.most_frequent();
        }
        let class = usize::from(self.heavy == Some(packet.flow));
        self.red.arrive_as(class, packet, journal);
    }

    fn take(&mut self, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet> {
        self.red.take(now, journal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::*;
    use ekiden_emulator::conditions::QueueLimit;

    fn dynamic(rec_int: u32, sta_int: u32, hist_len: u32) -> DynamicPriorityModel {
        let [limit, min, max] = [1000, 5, 15].map(QueueLimit::Packets);
        let settings = DynamicPrioritySettings {
            limit,
            min,
            max,
            p: 0.1,
            wq: 0.5,
            ecn: false,
            n: 2.0,
            rec_int,
            sta_int,
            hist_len,
        };
        DynamicPriorityModel::new(settings, "12Mbit/s".parse().unwrap(), SeededRng::new(1))
    }

    fn arrive(model: &mut DynamicPriorityModel, flow: u32) -> Option<u32> {
        model.arrive(Packet { flow, ..packet(u64::from(model.arrived), 0, 1500) }, &mut OutcomeLog::default());
        model.heavy
    }

    #[test]
    fn rec_int_and_sta_int_set_recording_and_evaluation() {
        let mut model = dynamic(2, 4, 2);
        let found = [9, 1, 9, 2, 9, 1, 9, 1].map(|flow| arrive(&mut model, flow));
        assert_eq!(found[..3], [None; 3]);
        assert_eq!(found[3..7], [Some(2); 4], "flows 1 and 2 have a record each, and 2 joined last");
        assert_eq!(found[7], Some(1));
        assert_eq!(model.records, [1, 2, 1, 1].map(Some));
    }

    #[test]
    fn tie_selects_the_flow_that_joined_or_left_last() {
        let mut model = dynamic(1, 1, 4);
        let found = [1, 2, 2, 1, 3, 3, 4, 4].map(|flow| arrive(&mut model, flow).unwrap());
        assert_eq!(found, [1, 2, 2, 1, 2, 3, 3, 4]);
    }

    #[test]
    fn ninth_flow_of_a_hash_set_is_not_counted() {
        let mut model = dynamic(1, 1, 20);
        let found: Vec<_> = (0..9).map(|number| arrive(&mut model, number * 256)).collect();
        assert_eq!(found[7..], [Some(7 * 256); 2]);
        assert_eq!(model.records[8], None);
        assert_eq!(arrive(&mut model, 8 * 256 + 1), Some(8 * 256 + 1), "the flow is in another set");
    }
}
