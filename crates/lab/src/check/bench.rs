//! Runs the measurements on a running lab.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::expectation::DelayModel;
use super::plan::{self, Measurement, TrafficBudget};
use super::probe::{ProbeSend, ProbeSeries, send_probes};
use super::rate::{LineExpectation, independent_loss};
use super::row::{CheckedDirection, Finding};
use super::transport::{PeriodicLoss, run_transfer};
use super::{delay, jitter, loss, ping, rate, replay};
use crate::emulator::Emulator;
use crate::experiment::collect::results::CheckRow;
use crate::topology::Lab;
use crate::topology::network::{HostHandle, Network};
use ekiden_emulator::Nanos;
use ekiden_emulator::emulation::FAST_QUANTUM;
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::rng::SeededRng;

/// Maximum lateness of a packet, in nanoseconds: the limit of the highest quantile of the fixed-delay row. The gap
/// after a late packet may be shorter than expected by this much.
const MAX_LATENESS: Nanos = 1_000_000;

/// Findings, each with the name of its property.
type Findings = Vec<(&'static str, Finding)>;

/// A running lab that records every packet.
pub struct LinkChecker<'a> {
    /// The lab as in the file.
    pub lab: &'a Lab,
    /// The hosts of the lab.
    pub network: &'a Network,
    /// The emulator that drives the links.
    pub emulator: &'a Emulator,
    /// The amount of traffic of a measurement.
    pub budget: TrafficBudget,
}

impl LinkChecker<'_> {
    /// Runs a measurement and returns its rows. An error of the measurement becomes a failed row.
    pub fn check_rows(&self, direction: &CheckedDirection<'_>, measure: &Measurement) -> Vec<CheckRow> {
        let findings = self.run_measurement(direction, measure).unwrap_or_else(|error| {
            let wanted = format!("{measure:?} can be measured");
            vec![("measuring", Finding { wanted, measured: format!("{error:#}"), pass: false })]
        });
        findings.into_iter().map(|(property, finding)| direction.row(property, finding)).collect()
    }

    fn run_measurement(&self, direction: &CheckedDirection<'_>, measure: &Measurement) -> anyhow::Result<Findings> {
        let (conditions, mtu) = (direction.conditions(), direction.link.mtu);
        Ok(match measure {
            Measurement::Delay => self.measure_delay(
                direction,
                "fixed delay",
                &plan::delay_probes(conditions, &self.budget),
                delay::FIXED_DELAY_LIMITS,
            )?,
            Measurement::Loaded => {
                let sends = plan::load_probes(conditions, mtu, 80, 3_000_000_000.min(self.budget.rate_duration));
                self.measure_delay(direction, "delay under load", &sends, delay::LOADED_DELAY_LIMITS)?
            }
            Measurement::Ping => self.measure_round_trip(direction)?,
            Measurement::Rate => self.measure_rate(direction)?,
            Measurement::Spacing => {
                let series = self.send_probes(direction, &plan::spacing_probes(conditions, mtu, &self.budget))?;
                vec![("serialisation", rate::check_serialisation(&series, self.line_expectation(direction)?))]
            }
            Measurement::Jitter => self.measure_jitter(direction)?,
            Measurement::Chance => self.measure_random_events(direction)?,
            Measurement::Queue => self.measure_queue(direction)?,
            Measurement::Transfer(periodic) => self.measure_transfer(direction, periodic)?,
        })
    }

    fn require_host(&self, name: &str) -> anyhow::Result<&HostHandle> {
        self.network.host(name).with_context(|| format!("there is no host {name:?}"))
    }

    fn send_probes(&self, direction: &CheckedDirection<'_>, sends: &[ProbeSend]) -> anyhow::Result<ProbeSeries> {
        let silence = Duration::from_nanos(plan::silence_timeout(direction.conditions(), direction.link.mtu));
        let before = self.direction_report(direction)?.packets_in;
        let series =
            send_probes(self.require_host(direction.from())?, self.require_host(direction.to())?, sends, silence)?;
        let packets_in = self.direction_report(direction)?.packets_in - before;
        ensure!(packets_in >= series.sent.len() as u64, "{packets_in} of {} packets used this link", series.sent.len());
        Ok(series)
    }

    /// Returns the emulator's report of a direction.
    fn direction_report(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<DirectionReport> {
        let is_direction = |report: &DirectionReport| report.link == direction.name && report.from == direction.from();
        self.emulator
            .reports()?
            .into_iter()
            .find(is_direction)
            .with_context(|| format!("the emulator has no report of link {:?}", direction.name))
    }

    fn measure_delay(
        &self,
        direction: &CheckedDirection<'_>,
        property: &'static str,
        sends: &[ProbeSend],
        limits: &[delay::QuantileLimit],
    ) -> anyhow::Result<Findings> {
        let series = self.send_probes(direction, sends)?;
        let timed = DelayModel::from_conditions(direction.conditions()).timed_probes(&series);
        Ok(vec![(property, delay::check_one_way(&timed, series.sent.len(), limits))])
    }

    fn measure_round_trip(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<Findings> {
        const GAP: Nanos = 5_000_000;
        let (from, to) = (self.require_host(direction.from())?, self.require_host(direction.to())?);
        let trips = ping::ping(from, to, self.budget.pings, GAP)?;
        let [forward, reverse] = [&direction.link.forward, &direction.link.reverse].map(DelayModel::from_conditions);
        let expected =
            (forward.unloaded_delay(ping::PACKET_BYTES) + reverse.unloaded_delay(ping::PACKET_BYTES)) as f64 / 1e3;
        Ok(vec![("round trip", delay::check_round_trip(&trips, expected, usize::from(self.budget.pings)))])
    }

    /// Returns the parameters of the line of a direction.
    fn line_expectation(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<LineExpectation> {
        let conditions = direction.conditions();
        let exact = self.direction_report(direction)?.exact;
        Ok(LineExpectation {
            rate: conditions.rate.context("the line has no rate")?.bits_per_second(),
            overhead: conditions.count.overhead(),
            mtu: direction.link.mtu,
            loss_probability: independent_loss(conditions).unwrap_or(0.0),
            quantum: MAX_LATENESS + if exact { 0 } else { FAST_QUANTUM },
        })
    }

    fn measure_rate(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<Findings> {
        let conditions = direction.conditions();
        let line = self.line_expectation(direction)?;
        let series =
            self.send_probes(direction, &plan::load_probes(conditions, line.mtu, 120, self.budget.rate_duration))?;
        // Burst losses have no steady mean over the duration of the measurement.
        let long = independent_loss(conditions).map(|_| ("rate, long", rate::check_long_term(&series, line)));
        Ok(long.into_iter().chain([("rate, any 10 ms", rate::check_short_term(&series, line))]).collect())
    }

    fn measure_jitter(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<Findings> {
        let conditions = direction.conditions();
        let settings = conditions.jitter.context("the direction has no jitter")?;
        let (wide, narrow) = plan::jitter_probes(conditions, &self.budget);
        let timed = DelayModel::from_conditions(conditions).timed_probes(&self.send_probes(direction, &wide)?);
        let law = ("jitter law", jitter::check_distribution(&timed, settings));
        if settings.reorder {
            return Ok(vec![law]);
        }
        Ok(vec![law, ("order", jitter::check_order(&self.send_probes(direction, &narrow)?))])
    }

    fn measure_random_events(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<Findings> {
        let conditions = direction.conditions();
        let Some(rarest) = plan::rarest_event_probability(conditions) else { return Ok(Vec::new()) };
        let series = self.send_probes(direction, &plan::random_event_probes(conditions, rarest, &self.budget))?;
        let mut findings = conditions.loss.as_ref().map_or_else(Vec::new, |model| loss::check_loss(model, &series));
        let arrived = series.received.len() - series.duplicate_count();
        if let Some(settings) = conditions.duplicate {
            findings.push((
                "duplicates",
                loss::check_probability("arrived twice", series.duplicate_count(), arrived, settings.p),
            ));
        }
        // Reordering is detected by order, not by time: the lateness of the emulator is checked by another row.
        if let Some(settings) = conditions.reorder.filter(|_| conditions.jitter.is_none()) {
            findings.push((
                "reordering",
                loss::check_probability("overtaken", series.reordered_count(), arrived, settings.p),
            ));
        }
        for (_, finding) in &mut findings {
            finding.measured += &rate::overflow_note(&series);
            finding.pass &= series.overflow == 0;
        }
        Ok(findings)
    }

    /// Returns the random number generator of a direction. Every random decision of the lab depends on seed, link and
    /// direction.
    pub fn rng(&self, direction: &CheckedDirection<'_>) -> SeededRng {
        SeededRng::new(self.lab.seed).derive(direction.name).derive(if direction.forward {
            "forward"
        } else {
            "reverse"
        })
    }

    fn measure_queue(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<Findings> {
        let conditions = direction.conditions();
        let (rate, kind) =
            conditions.rate.zip(conditions.queue.as_ref()).context("the direction has no rate or no queue")?;
        let before = self.emulator.records(direction.name, direction.from())?.len();
        let traffic = SeededRng::new(self.lab.seed).derive("check");
        let sends =
            replay::replay_traffic(rate.bits_per_second(), direction.link.mtu, self.budget.queue_duration, traffic);
        let series = self.send_probes(direction, &sends)?;
        let records = self.emulator.records(direction.name, direction.from())?;
        let decisions = replay::check_queue_decisions(&records, before, &series, conditions, self.rng(direction));
        let occupancy = replay::check_occupancy(&records, conditions);
        let findings = [("tail drop: occupancy", occupancy), (kind.replay_check(), decisions)];
        Ok(findings.into_iter().filter_map(|(property, finding)| Some((property, finding?))).collect())
    }

    /// Waits until no packet has entered the direction for 600 ms, at most 12 s. A closed connection may still
    /// retransmit its last packets, which would interfere with the next probes.
    fn wait_until_idle(&self, direction: &CheckedDirection<'_>) -> anyhow::Result<()> {
        let mut before = None;
        for _ in 0..20 {
            let now = Some(self.direction_report(direction)?.packets_in);
            if now == before {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(600));
        }
        Ok(())
    }

    fn measure_transfer(&self, direction: &CheckedDirection<'_>, periodic: &PeriodicLoss) -> anyhow::Result<Findings> {
        let (from, to) = (self.require_host(direction.from())?, self.require_host(direction.to())?);
        let transfer = run_transfer(from, to, periodic.min_duration(self.budget.cycles))?;
        self.wait_until_idle(direction)?;
        let mut finding = periodic.check_steady_state(&transfer.timeline);
        let pinned = self.lab.hosts.get(direction.from()).and_then(|host| host.congestion.as_deref());
        if pinned != Some(&transfer.congestion) {
            finding.measured += &format!("; measured with congestion control {}", transfer.congestion);
            finding.pass = false;
        }
        Ok(vec![("TCP throughput", finding)])
    }
}
