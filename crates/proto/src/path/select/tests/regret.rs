//! How often the chooser finds the best path with only its own sessions and small probes: random networks in virtual
//! time.

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::aqm;
use crate::path::estimate::{Estimate, SectionSample};
use crate::path::model;

/// The dialling relay and the dialled relay; `None` for the target.
type Ends = (u32, Option<u32>);

/// A network of three relays and a target, and its estimates.
struct RegretNetwork {
    truth: BTreeMap<Ends, SectionModel>,
    estimates: BTreeMap<Ends, Estimate>,
    seed: u64,
    drawn: u64,
    /// Virtual time in seconds.
    now: f64,
}

/// Shares of lost packets, one drawn per section.
const LOSSES: [f64; 7] = [0.0, 0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2];
/// Line rates in Mbit/s.
const LINES: [f64; 3] = [20.0, 50.0, 100.0];

/// Direct and all simple paths of up to two relays.
fn all_candidates() -> Vec<Candidate> {
    let pairs = (1..=3).flat_map(|a| (1..=3).filter(move |b| *b != a).map(move |b| by(&[a, b])));
    std::iter::once(Candidate::direct()).chain((1..=3).map(|a| by(&[a]))).chain(pairs).collect()
}

fn ends(candidate: &Candidate) -> Vec<Ends> {
    let from = std::iter::once(THIS_RELAY).chain(candidate.relays.iter().copied());
    let to = candidate.relays.iter().copied().map(Some).chain([None]);
    from.zip(to).collect()
}

impl RegretNetwork {
    fn new(seed: u64) -> Self {
        let mut world = Self { truth: BTreeMap::new(), estimates: BTreeMap::new(), seed, drawn: 0, now: 1000.0 };
        // Relay 1 is near the client, relay 3 near the target. Ends, and the range of milliseconds one way.
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
            let section = world.drawn_section(low, high, to.is_some());
            world.truth.insert((from, to), section);
            if let Some(to) = to.filter(|_| from > THIS_RELAY) {
                world.truth.insert((to, Some(from)), section);
            }
        }
        for ends in world.truth.keys().copied().collect::<Vec<_>>() {
            let sample = SectionSample { rtt: Some(world.truth[&ends].rtt), segments: 2, ..SectionSample::default() };
            world.estimates.entry(ends).or_default().record(&sample, seconds(world.now));
        }
        world
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

    fn sections(&self, candidate: &Candidate) -> Vec<SectionModel> {
        ends(candidate).iter().map(|ends| self.truth[ends]).collect()
    }

    fn true_time(&self, candidate: &Candidate, bytes: u64) -> f64 {
        model::completion(&self.sections(candidate), bytes, &RelayCosts::default()).as_secs_f64()
    }

    /// A small probe of every section between relays.
    fn look(&mut self) {
        for ends in self.truth.keys().copied().filter(|(_, to)| to.is_some()).collect::<Vec<_>>() {
            let section = self.truth[&ends];
            let lost = self.lost(11, section.loss);
            let sample = SectionSample { rtt: Some(section.rtt), segments: 11, lost, ..SectionSample::default() };
            self.estimates.entry(ends).or_default().record(&sample, seconds(self.now));
        }
    }

    /// Runs a session: returns its duration in seconds and records samples of the path's sections.
    fn session(&mut self, candidate: &Candidate, bytes: u64) -> f64 {
        let sections = self.sections(candidate);
        let segments = bytes.div_ceil(1448);
        let losses = sections.iter().map(|it| it.loss * segments as f64).fold(0.0, f64::max);
        let sigma = 0.03 + 0.3 * losses.min(1.0) / (1.0 + losses).sqrt();
        let took = self.true_time(candidate, bytes) * (sigma * self.normal()).exp();
        self.now += took;
        let slowest = sections.iter().map(SectionModel::rate).fold(f64::MAX, f64::min);
        for (ends, section) in ends(candidate).into_iter().zip(&sections) {
            let is_slowest = section.rate() <= slowest * 1.01;
            // A session that fills a line overflows its queue now and then.
            let fills = is_slowest && segments > 500 && section.rate() > 0.8 * section.line_rate.unwrap_or(f64::MAX);
            let lost = self.lost(segments, section.loss).max(u64::from(fills));
            let rate_is_limit = is_slowest && lost > 0 && took > 20.0 * section.rtt.as_secs_f64();
            let rate = (bytes >= 128 << 10).then_some(bytes as f64 / took);
            let sample = SectionSample { rtt: Some(section.rtt), segments, lost, rate, rate_is_limit, window: None };
            self.estimates.entry(ends).or_default().record(&sample, seconds(self.now));
        }
        took
    }

    fn map(&self) -> Arc<NetworkMap> {
        let mut map = Draft::new().0;
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

/// The ratios of the chosen path's time to the best path's and to direct's, after `sessions` sessions.
fn regret(seed: u64, bytes: u64, sessions: u64) -> (f64, f64) {
    let mut world = RegretNetwork::new(seed);
    let mut chooser = chooser(world.map());
    let (mut looked, mut mapped, likely) = (world.now, world.now, TransferSize::down(bytes));
    let mut kept: Option<Candidate> = None;
    for _ in 0..sessions {
        if world.now > looked + 12.0 {
            world.look();
            looked = world.now;
        }
        if world.now > mapped + 2.0 {
            chooser.set_map(world.map());
            mapped = world.now;
        }
        let choice = chooser.choose(target(), likely, seconds(world.now));
        let candidate = first(&choice).clone();
        if !choice.race && !matches!(choice.reason, ChoiceReason::Explores(_)) {
            let stays = kept.as_ref().is_none_or(|kept| *kept == candidate);
            assert!(
                stays || choice.previous == kept,
                "network {seed}: a change from {kept:?} that is not told: {choice:?}"
            );
            kept = Some(candidate.clone());
        }
        let took = world.session(&candidate, bytes);
        chooser.record_outcome(target(), &candidate, &outcome(bytes, took), seconds(world.now));
        world.now += 0.1;
    }
    let mut choices = (0..2).map(|_| chooser.choose(target(), likely, seconds(world.now)));
    let choice = choices.find(|choice| !matches!(choice.reason, ChoiceReason::Explores(_))).unwrap();
    let time = |candidate: &Candidate| world.true_time(candidate, bytes);
    let best = all_candidates().iter().map(time).fold(f64::MAX, f64::min);
    let chosen = time(first(&choice));
    (chosen / best, chosen / time(&Candidate::direct()))
}

#[test]
fn the_best_of_a_network_that_chance_draws_is_found() {
    const NETWORKS: u64 = 60;
    for bytes in [100_000, 1 << 20, 8 << 20] {
        let all: Vec<_> = (0..NETWORKS).map(|seed| (seed, regret(seed, bytes, 40))).collect();
        let missed: Vec<_> = all.iter().filter(|(_, (regret, _))| *regret > 1.05).collect();
        assert!(missed.len() as u64 * 10 <= NETWORKS, "{bytes} bytes: {missed:?}");
        let worse = all.iter().filter(|(_, (_, over_direct))| *over_direct > 1.25).count();
        assert_eq!(worse, 0, "{bytes} bytes, worse than direct: {all:?}");
    }
}

/// Checks the bar of the experiment `path-regret` in simulation: within 5 % of the best in 95 % of all cases, and never below
/// 0.95 times the speed of direct. `known_worse` cases are below that today: more of them are a regression.
fn assert_bar(networks: &str, seeds: Range<u64>, known_worse: usize) {
    let sizes = [100_000, 1 << 20, 8 << 20, 64 << 20];
    let cases = |bytes| seeds.clone().map(move |seed| (bytes, seed, regret(seed, bytes, 60)));
    let all: Vec<_> = sizes.into_iter().flat_map(cases).collect();
    let missed = all.iter().filter(|(.., (regret, _))| *regret > 1.05).count();
    let worse: Vec<_> = all.iter().filter(|(.., (_, over_direct))| *over_direct > 1.0 / 0.95).collect();
    println!(
        "{networks}: {missed} of {} more than 5 % above the best (bar: 5 %), {} below 0.95 x direct (bar: none)",
        all.len(),
        worse.len()
    );
    assert!(missed * 20 <= all.len(), "{networks}: {missed} of {}", all.len());
    assert!(worse.len() <= known_worse, "{networks}: {worse:?}");
}

/// Variants of the chooser are compared on these networks.
#[test]
#[ignore = "a minute: make check-paths"]
fn the_choice_is_nearly_the_best_in_networks_for_work() {
    assert_bar("for work", 1000..1600, 0);
}

/// No variant of the chooser was selected on these networks.
#[test]
#[ignore = "a minute: make check-paths"]
fn the_choice_is_nearly_the_best_in_networks_for_the_verdict() {
    assert_bar("for the verdict", 20_000..20_600, 3);
}
