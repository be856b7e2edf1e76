//! Measurements, from the book into our entry, and from others' entries into the book.
//!
//! Relays that call each other tell each other more, and sooner: what stands in an entry is for those that have not met.

use std::sync::PoisonError;
use std::time::Duration;

use ekiden_proto::fleet::{Member, Neighbour};
use ekiden_proto::path::figures::Figures;
use ekiden_proto::wire::section::report::{Entry, Subject, Told};

use super::directory::Inner;

const MILLION: f64 = 1e6;

/// How many segments a told loss counts as: some, for it was worth telling.
const SEGMENTS: f64 = 100.0;

impl Inner {
    /// What this relay knows of the sections to its neighbours.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        shared.book.neighbours().iter().filter_map(neighbour).collect()
    }

    /// Takes in what a member says of the sections to its neighbours, unless it tells us itself.
    pub fn learn(&self, member: &Member) {
        let Some(shared) = self.shared.upgrade() else { return };
        let teller = member.entry.issued.certificate.key;
        let entries: Vec<_> = member.entry.neighbours.iter().map(entry).collect();
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        let before = learnt.get(&teller).copied().unwrap_or_default();
        if !entries.is_empty() && !shared.book.is_told_by(&teller, before) {
            learnt.insert(teller, shared.book.now());
            shared.book.hear(teller, &entries);
        }
    }
}

fn neighbour(entry: &Entry) -> Option<Neighbour> {
    let (Subject::Relay(key), Told { figures, age }) = (entry.subject, entry.sending) else { return None };
    Some(Neighbour {
        key,
        rtt: figures.rtt?,
        loss_ppm: (figures.loss.unwrap_or(0.0).clamp(0.0, 1.0) * MILLION) as u32,
        rate: figures.rate.map_or(0, |rate| rate as u64),
        age: age.as_secs(),
    })
}

fn entry(neighbour: &Neighbour) -> Entry {
    let Neighbour { key, rtt, loss_ppm, rate, age } = *neighbour;
    let figures = Figures {
        rtt: Some(rtt),
        loss: Some(f64::from(loss_ppm) / MILLION),
        rate: (rate > 0).then_some(rate as f64),
        segments: SEGMENTS,
        ..Figures::default()
    };
    let sending = Told { figures, age: Duration::from_secs(age) };
    Entry { subject: Subject::Relay(key), sending, receiving: Told::default() }
}
