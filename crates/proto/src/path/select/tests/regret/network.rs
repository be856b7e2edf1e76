//! A random network: its sections with their connections, the estimates of the relays, and the sessions.

use std::collections::BTreeMap;

use super::*;
use crate::aqm;
use crate::path::estimate::{Estimate, SectionSample};
use crate::path::model;

/// The dialling relay and the dialled relay; `None` for the target.
type Ends = (u32, Option<u32>);

/// A network of three relays and a target, and its estimates.
#[derive(Clone)]
pub(super) struct RegretNetwork {
    truth: BTreeMap<Ends, SectionModel>,
    connections: BTreeMap<Ends, Vec<RelayConnection>>,
    estimates: BTreeMap<Ends, Estimate>,
    seed: u64,
    drawn: u64,
    /// Whether sessions of equal conditions take equal times.
    is_exact: bool,
    /// Virtual time in seconds.
    pub(super) now: f64,
}

/// A connection between relays, which keeps its congestion window from session to session.
#[derive(Clone, Copy)]
struct RelayConnection {
    state: Connection,
    /// End of the last session on the connection.
    ended_at: f64,
}

impl RelayConnection {
    /// The state for a session at `now`: the window halves for each retransmission timeout without data (RFC 2861).
    fn at(self, section: &SectionModel, now: f64) -> Connection {
        let idle = now - self.ended_at;
        let timeouts = (idle / (section.rtt.as_secs_f64() + MIN_TIMEOUT)) as i32;
        let window = match self.state {
            Connection::Used(window) => window as f64,
            Connection::Settled => section.rate() * section.rtt.as_secs_f64(),
            new => return new,
        };
        if timeouts == 0 { self.state } else { Connection::Used((window * 0.5_f64.powi(timeouts)) as u64) }
    }
}

/// Least retransmission timeout in seconds, beside the round trip.
const MIN_TIMEOUT: f64 = 0.2;

/// Number of sessions by which a path is judged, and of sessions before them, which open its windows.
const SESSIONS_JUDGED: usize = 31;
const SESSIONS_BEFORE: usize = 10;

/// Shares of lost packets, one drawn per section.
const LOSSES: [f64; 7] = [0.0, 0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2];
/// Line rates in Mbit/s.
const LINES: [f64; 3] = [20.0, 50.0, 100.0];

/// Direct and all simple paths of up to two relays.
pub(super) fn all_candidates() -> Vec<Candidate> {
    let pairs = (1..=3).flat_map(|a| (1..=3).filter(move |b| *b != a).map(move |b| candidate_through(&[a, b])));
    std::iter::once(Candidate::direct()).chain((1..=3).map(|a| candidate_through(&[a]))).chain(pairs).collect()
}

fn completion(sections: &[SectionModel], bytes: u64) -> f64 {
    model::completion(sections, bytes, &RelayCosts::default()).as_secs_f64()
}

fn ends(candidate: &Candidate) -> Vec<Ends> {
    let from = std::iter::once(THIS_RELAY).chain(candidate.relays.iter().copied());
    let to = candidate.relays.iter().copied().map(Some).chain([None]);
    from.zip(to).collect()
}

impl RegretNetwork {
    pub(super) fn new(seed: u64) -> Self {
        let (truth, estimates) = (BTreeMap::new(), BTreeMap::new());
        let mut network =
            Self { truth, connections: BTreeMap::new(), estimates, seed, drawn: 0, is_exact: false, now: 1000.0 };
        // The ends of each section, and the range of its one-way delay in ms. Relay 1 is near the client, relay 3 near
        // the target.
        for (from, to, low, high) in [
            (THIS_RELAY, None, 15.0, 110.0),
            (THIS_RELAY, Some(1), 2.0, 25.0),
            (1, None, 15.0, 90.0),
            (THIS_RELAY, Some(2), 8.0, 60.0),
            (2, None, 8.0, 60.0),
            (THIS_RELAY, Some(3), 15.0, 90.0),
            (3, None, 2.0, 25.0),
            (1, Some(2), 5.0, 50.0),
            (2, Some(3), 5.0, 50.0),
            (1, Some(3), 15.0, 90.0),
        ] {
            let section = network.drawn_section(low, high, to.is_some());
            network.truth.insert((from, to), section);
            if let Some(to) = to.filter(|_| from > THIS_RELAY) {
                network.truth.insert((to, Some(from)), section);
            }
        }
        for ends in network.truth.keys().copied().collect::<Vec<_>>() {
            let sample = SectionSample { rtt: Some(network.truth[&ends].rtt), segments: 2, ..SectionSample::default() };
            network.estimates.entry(ends).or_default().record(&sample, seconds(network.now));
        }
        network
    }

    fn drawn_section(&mut self, low: f64, high: f64, is_ready: bool) -> SectionModel {
        let rtt = Duration::from_secs_f64((low + (high - low) * self.chance()) * 2e-3);
        let loss = LOSSES[(self.chance() * LOSSES.len() as f64) as usize];
        let line = LINES[(self.chance() * LINES.len() as f64) as usize];
        SectionModel {
            rtt,
            loss,
            window: None,
            line_rate: Some(model::payload_rate(line * 125_000.0, 1448)),
            congestion: CongestionControl::Cubic,
            mss: 1448,
            connection: Connection::ready_if(is_ready),
        }
    }

    /// A random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.drawn += 1;
        (aqm::random_bits(self.seed, self.drawn) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.chance()).sum::<f64>() - 6.0
    }

    /// The number of lost segments of `segments`.
    fn lost(&mut self, segments: u64, loss: f64) -> u64 {
        let expected = segments as f64 * loss;
        if expected > 30.0 {
            return (expected + expected.sqrt() * self.normal()).max(0.0) as u64;
        }
        let (limit, mut product, mut count) = ((-expected).exp(), self.chance(), 0);
        while product > limit {
            product *= self.chance();
            count += 1;
        }
        count
    }

    /// The median duration in seconds of many consecutive sessions on the path.
    pub(super) fn true_time(&self, candidate: &Candidate, bytes: u64) -> f64 {
        let mut network = Self { is_exact: true, ..self.clone() };
        let mut all: Vec<f64> =
            (0..SESSIONS_BEFORE + SESSIONS_JUDGED).map(|_| network.session(candidate, bytes)).collect();
        let judged = &mut all[SESSIONS_BEFORE..];
        *judged.select_nth_unstable_by(SESSIONS_JUDGED / 2, f64::total_cmp).1
    }

    /// Takes a connection for a session over the section: the most recently used of the connections whose last session
    /// has ended at both relays. Returns the number of the connection, and the section with the connection's state.
    fn take_connection(&mut self, ends: Ends) -> Option<(usize, SectionModel)> {
        let section = self.truth[&ends];
        ends.1?;
        let all = self.connections.entry(ends).or_default();
        let is_free = |connection: &RelayConnection| connection.ended_at + section.rtt.as_secs_f64() <= self.now;
        let free = (0..all.len()).filter(|number| is_free(&all[*number]));
        let number = free.max_by(|one, other| all[*one].ended_at.total_cmp(&all[*other].ended_at));
        let number = number.unwrap_or_else(|| {
            all.push(RelayConnection { state: Connection::Ready, ended_at: self.now });
            all.len() - 1
        });
        Some((number, SectionModel { connection: all[number].at(&section, self.now), ..section }))
    }

    /// Records a probe of 11 segments on every section between relays.
    pub(super) fn probe(&mut self) {
        for ends in self.truth.keys().copied().filter(|(_, to)| to.is_some()).collect::<Vec<_>>() {
            let section = self.truth[&ends];
            let lost = self.lost(11, section.loss);
            let sample = SectionSample { rtt: Some(section.rtt), segments: 11, lost, ..SectionSample::default() };
            self.estimates.entry(ends).or_default().record(&sample, seconds(self.now));
        }
    }

    /// Runs a session: returns its duration in seconds and records samples of the path's sections.
    pub(super) fn session(&mut self, candidate: &Candidate, bytes: u64) -> f64 {
        let ends = ends(candidate);
        let taken: Vec<_> = ends.iter().map(|ends| self.take_connection(*ends)).collect();
        let sections: Vec<_> = ends
            .iter()
            .zip(&taken)
            .map(|(ends, taken)| taken.map_or(self.truth[ends], |(_, section)| section))
            .collect();
        let segments = bytes.div_ceil(1448);
        let losses = sections.iter().map(|section| section.loss * segments as f64).fold(0.0, f64::max);
        let sigma = 0.03 + 0.3 * losses.min(1.0) / (1.0 + losses).sqrt();
        let log_noise = if self.is_exact { 0.0 } else { sigma * self.normal() };
        let took = completion(&sections, bytes) * log_noise.exp();
        self.now += took;
        let slowest = sections.iter().map(SectionModel::rate).fold(f64::MAX, f64::min);
        for ((ends, section), taken) in ends.into_iter().zip(&sections).zip(taken) {
            let is_slowest = section.rate() <= slowest * 1.01;
            // A session that fills the line overflows its queue: at least one segment is lost.
            let fills = is_slowest && segments > 500 && section.rate() > 0.8 * section.line_rate.unwrap_or(f64::MAX);
            let lost = self.lost(segments, section.loss).max(u64::from(fills));
            let rate_is_limit = is_slowest && lost > 0 && took > 20.0 * section.rtt.as_secs_f64();
            let rate = (bytes >= 128 << 10).then_some(bytes as f64 / took);
            let sample = SectionSample { rtt: Some(section.rtt), segments, lost, rate, rate_is_limit, window: None };
            self.estimates.entry(ends).or_default().record(&sample, seconds(self.now));
            if let (Some((number, _)), Some(all)) = (taken, self.connections.get_mut(&ends)) {
                let state = if lost > 0 {
                    Connection::Settled
                } else {
                    SectionModel { loss: 0.0, ..*section }.after_transfer(bytes).connection
                };
                all[number] = RelayConnection { state, ended_at: self.now };
            }
        }
        took
    }

    pub(super) fn map(&self) -> Arc<NetworkMap> {
        let mut map = MapBuilder::new().0;
        for (ends, estimate) in &self.estimates {
            let figures = estimate.snapshot();
            let own = ends.0 == THIS_RELAY;
            let Some(rtt) = figures.rtt else { continue };
            let section = figures.to_model(rtt, CongestionControl::Cubic, ends.1.is_some());
            let trusted = if own { 1.0 } else { 0.9 };
            let known = MapEntry { section, confidence: estimate.confidence(seconds(self.now)) * trusted, is_own: own };
            match ends.1 {
                Some(to) => map.set_section(ends.0, to, Direction::Down, &known),
                None => map.set_last_section(ends.0, target(), Direction::Down, &known),
            }
        }
        Arc::new(map)
    }
}
