//! The bench: a running lab, and one measurement after the other on it.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::expectation::Path;
use super::plan::{self, Budget, Measure};
use super::probe::{Series, Shot, fire};
use super::rate::{Line, steady_loss};
use super::row::{Finding, Place};
use super::transport::{Periodic, transfer};
use super::{delay, jitter, loss, ping, rate, replay};
use crate::Nanos;
use crate::conditions::QueueKind;
use crate::dice::Dice;
use crate::emulator::{DirectionReport, Emulator, FAST_QUANTUM};
use crate::experiment::results::CheckRow;
use crate::topology::Lab;
use crate::topology::network::{HostHandle, Network};

/// How late a packet may be handed over, by the fixed-delay row at its strictest quantile: so much may come too close
/// behind it.
const LATENESS: Nanos = 1_000_000;

/// What was found, by property.
type Findings = Vec<(&'static str, Finding)>;

/// A lab that runs, with every packet recorded.
pub struct Bench<'a> {
    /// What the file says.
    pub lab: &'a Lab,
    /// The hosts.
    pub network: &'a Network,
    /// The links.
    pub emulator: &'a Emulator,
    /// How much traffic there may be.
    pub budget: Budget,
}

impl Bench<'_> {
    /// Measures and judges. What cannot be measured did not pass.
    pub fn rows(&self, place: &Place<'_>, measure: &Measure) -> Vec<CheckRow> {
        let findings = self.measure(place, measure).unwrap_or_else(|error| {
            let wanted = format!("{measure:?} can be measured");
            vec![("measuring", Finding { wanted, measured: format!("{error:#}"), pass: false })]
        });
        findings.into_iter().map(|(property, finding)| place.row(property, finding)).collect()
    }

    fn measure(&self, place: &Place<'_>, measure: &Measure) -> anyhow::Result<Findings> {
        let (conditions, mtu) = (place.conditions(), place.link.mtu);
        Ok(match measure {
            Measure::Delay => {
                self.delay(place, "fixed delay", &plan::delays(conditions, &self.budget), delay::FIXED)?
            }
            Measure::Loaded => {
                let shots = plan::load(conditions, mtu, 80, 3_000_000_000.min(self.budget.rate));
                self.delay(place, "delay under load", &shots, delay::LOADED)?
            }
            Measure::Ping => self.ping(place)?,
            Measure::Rate => self.rate(place)?,
            Measure::Spacing => {
                let series = self.fire(place, &plan::spacings(conditions, mtu, &self.budget))?;
                vec![("serialisation", rate::serialisation(&series, self.line(place)?))]
            }
            Measure::Jitter => self.jitter(place)?,
            Measure::Chance => self.chance(place)?,
            Measure::Queue => self.queue(place)?,
            Measure::Transfer(periodic) => self.transfer(place, periodic)?,
        })
    }

    fn host(&self, name: &str) -> anyhow::Result<&HostHandle> {
        self.network.host(name).with_context(|| format!("there is no host {name:?}"))
    }

    fn fire(&self, place: &Place<'_>, shots: &[Shot]) -> anyhow::Result<Series> {
        let silence = Duration::from_nanos(plan::silence(place.conditions(), place.link.mtu));
        let before = self.report(place)?.packets_in;
        let series = fire(self.host(place.from())?, self.host(place.to())?, shots, silence)?;
        let came = self.report(place)?.packets_in - before;
        ensure!(came >= series.sent.len() as u64, "of {} packets {came} took this link", series.sent.len());
        Ok(series)
    }

    /// What the emulator says about a direction.
    fn report(&self, place: &Place<'_>) -> anyhow::Result<DirectionReport> {
        let here = |report: &DirectionReport| report.link == place.name && report.from == place.from();
        self.emulator.reports()?.into_iter().find(here).with_context(|| format!("no link {:?} runs", place.name))
    }

    fn delay(
        &self,
        place: &Place<'_>,
        property: &'static str,
        shots: &[Shot],
        limits: &[delay::Limit],
    ) -> anyhow::Result<Findings> {
        let series = self.fire(place, shots)?;
        let timed = Path::of(place.conditions()).timed(&series);
        Ok(vec![(property, delay::one_way(&timed, series.sent.len(), limits))])
    }

    fn ping(&self, place: &Place<'_>) -> anyhow::Result<Findings> {
        const GAP: Nanos = 5_000_000;
        let (from, to) = (self.host(place.from())?, self.host(place.to())?);
        let trips = ping::ping(from, to, self.budget.pings, GAP)?;
        let [there, back] = [&place.link.forward, &place.link.reverse].map(Path::of);
        let expected = (there.alone(ping::BYTES) + back.alone(ping::BYTES)) as f64 / 1e3;
        Ok(vec![("round trip", delay::round_trip(&trips, expected, usize::from(self.budget.pings)))])
    }

    /// What there is to know about the line of a direction.
    fn line(&self, place: &Place<'_>) -> anyhow::Result<Line> {
        let conditions = place.conditions();
        let exact = self.report(place)?.exact;
        Ok(Line {
            rate: conditions.rate.context("the line has no rate")?.bits_per_second(),
            overhead: conditions.count.overhead(),
            mtu: place.link.mtu,
            lost: steady_loss(conditions).unwrap_or(0.0),
            quantum: LATENESS + if exact { 0 } else { FAST_QUANTUM },
        })
    }

    fn rate(&self, place: &Place<'_>) -> anyhow::Result<Findings> {
        let conditions = place.conditions();
        let line = self.line(place)?;
        let series = self.fire(place, &plan::load(conditions, line.mtu, 120, self.budget.rate))?;
        // Losses in bursts have no steady mean.
        let long = steady_loss(conditions).map(|_| ("rate, long", rate::long(&series, line)));
        Ok(long.into_iter().chain([("rate, any 10 ms", rate::short(&series, line))]).collect())
    }

    fn jitter(&self, place: &Place<'_>) -> anyhow::Result<Findings> {
        let conditions = place.conditions();
        let settings = conditions.jitter.context("there is no jitter")?;
        let (apart, close) = plan::jitters(conditions, &self.budget);
        let timed = Path::of(conditions).timed(&self.fire(place, &apart)?);
        let law = ("jitter law", jitter::law(&timed, settings));
        if settings.reorder {
            return Ok(vec![law]);
        }
        Ok(vec![law, ("order", jitter::order(&self.fire(place, &close)?))])
    }

    fn chance(&self, place: &Place<'_>) -> anyhow::Result<Findings> {
        let conditions = place.conditions();
        let Some(rarest) = plan::rarest(conditions) else { return Ok(Vec::new()) };
        let series = self.fire(place, &plan::chances(conditions, rarest, &self.budget))?;
        let mut findings = conditions.loss.as_ref().map_or_else(Vec::new, |model| loss::findings(model, &series));
        let arrived = series.got.len() - series.doubled();
        if let Some(settings) = conditions.duplicate {
            findings.push(("duplicates", loss::share("arrived twice", series.doubled(), arrived, settings.p)));
        }
        // Told by order, not by time: a late emulator is another row's matter.
        if let Some(settings) = conditions.reorder.filter(|_| conditions.jitter.is_none()) {
            findings.push(("reordering", loss::share("overtaken", series.overtaken(), arrived, settings.p)));
        }
        for (_, finding) in &mut findings {
            finding.measured += &rate::overflow(&series);
            finding.pass &= series.overflow == 0;
        }
        Ok(findings)
    }

    /// The dice of a direction: every decision of the lab depends on seed, link and way.
    pub fn dice(&self, place: &Place<'_>) -> Dice {
        Dice::new(self.lab.seed).of(place.name).of(if place.forward { "forward" } else { "reverse" })
    }

    fn queue(&self, place: &Place<'_>) -> anyhow::Result<Findings> {
        let conditions = place.conditions();
        let (rate, kind) = conditions.rate.zip(conditions.queue.as_ref()).context("there is no queue")?;
        let before = self.emulator.records(place.name, place.from())?.len();
        let traffic = Dice::new(self.lab.seed).of("check");
        let shots = replay::traffic(rate.bits_per_second(), place.link.mtu, self.budget.queue, traffic);
        let series = self.fire(place, &shots)?;
        let records = self.emulator.records(place.name, place.from())?;
        let decisions = replay::replay(&records, before, &series, conditions, self.dice(place));
        let most = replay::occupancy(&records, conditions);
        let replayed = match kind {
            QueueKind::TailDrop { .. } => "tail drop: replay",
            QueueKind::Red(settings) if settings.ecn => "RED with ECN: replay",
            QueueKind::Red(settings) if settings.gentle => "gentle RED: replay",
            QueueKind::Red(_) => "RED: replay",
            QueueKind::StaticPriority(_) => "static priority drop: replay",
            QueueKind::DynamicPriority(_) => "dynamic priority drop: replay",
            QueueKind::Auto(_) => "auto: replay",
            QueueKind::Codel(_) => "CoDel: replay",
            QueueKind::FqCodel(_) => "FQ-CoDel: replay",
        };
        let findings = [("tail drop: occupancy", most), (replayed, decisions)];
        Ok(findings.into_iter().filter_map(|(property, finding)| Some((property, finding?))).collect())
    }

    /// A connection that has ended may still repeat its last packets, which would get in between the next probes.
    fn wait_for_quiet(&self, place: &Place<'_>) -> anyhow::Result<()> {
        let mut before = None;
        for _ in 0..20 {
            let now = Some(self.report(place)?.packets_in);
            if now == before {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(600));
        }
        Ok(())
    }

    fn transfer(&self, place: &Place<'_>, periodic: &Periodic) -> anyhow::Result<Findings> {
        let (from, to) = (self.host(place.from())?, self.host(place.to())?);
        let transfer = transfer(from, to, periodic.duration(self.budget.cycles))?;
        self.wait_for_quiet(place)?;
        let mut finding = periodic.compare(&transfer.timeline);
        let pinned = self.lab.hosts.get(place.from()).and_then(|host| host.congestion.as_deref());
        if pinned != Some(&transfer.congestion) {
            finding.measured += &format!("; but by {}", transfer.congestion);
            finding.pass = false;
        }
        Ok(vec![("TCP throughput", finding)])
    }
}
