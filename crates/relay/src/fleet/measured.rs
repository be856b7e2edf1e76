//! Measurements from the estimates into the entry of this relay, and from other entries into the estimates.
//!
//! Relays with a connection exchange more, and sooner: entries serve relays that have none.

use std::sync::PoisonError;
use std::time::Duration;

use ekiden_proto::fleet::{FleetMember, Neighbour};
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::wire::section::report::{DirectionEstimate, SectionReport, Subject};

use super::directory::FleetShared;

const MILLION: f64 = 1e6;

/// Segments that a reported loss rate counts as: some, because it was worth reporting.
const REPORTED_SEGMENTS: f64 = 100.0;

impl FleetShared {
    /// Measurements of the sections to other relays.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.estimates.neighbours().iter().filter_map(to_neighbour).collect()
    }

    /// Records the measurements of a member, unless it reports them on a connection.
    pub fn record_measurements(&self, member: &FleetMember) {
        let teller = member.entry.signed_certificate.certificate.key;
        let entries: Vec<_> = member.entry.neighbours.iter().map(to_entry).collect();
        let mut learnt = self.learned_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = learnt.get(&teller).copied().unwrap_or_default();
        if !entries.is_empty() && !self.estimates.has_report_since(&teller, before) {
            learnt.insert(teller, self.estimates.now());
            self.estimates.record_report(teller, &entries);
        }
    }
}

fn to_neighbour(entry: &SectionReport) -> Option<Neighbour> {
    let (Subject::Relay(key), DirectionEstimate { snapshot: figures, age }) = (entry.subject, entry.sending) else {
        return None;
    };
    Some(Neighbour {
        key,
        rtt: figures.rtt?,
        loss_ppm: (figures.loss.unwrap_or(0.0).clamp(0.0, 1.0) * MILLION) as u32,
        rate: figures.rate.map_or(0, |rate| rate as u64),
        age: age.as_secs(),
    })
}

fn to_entry(neighbour: &Neighbour) -> SectionReport {
    let Neighbour { key, rtt, loss_ppm, rate, age } = *neighbour;
    let figures = EstimateSnapshot {
        rtt: Some(rtt),
        loss: Some(f64::from(loss_ppm) / MILLION),
        rate: (rate > 0).then_some(rate as f64),
        segments: REPORTED_SEGMENTS,
        ..EstimateSnapshot::default()
    };
    let sending = DirectionEstimate { snapshot: figures, age: Duration::from_secs(age) };
    SectionReport { subject: Subject::Relay(key), sending, receiving: DirectionEstimate::default() }
}
