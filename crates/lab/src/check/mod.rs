//! Measures every link of a lab by code independent of the emulator, and compares the results with the lab file.
//!
//! The idea is that of Emulab's Linktest: no experiment is valid unless its links were measured before. Sockets on the
//! hosts at both ends send numbered datagrams, the kernel timestamps their arrival, and the expected arrivals are
//! computed from the file alone. Only the rows about queue decisions read the records of the emulator: the records are
//! replayed through independent models, and the outcomes are compared with the packets that the receiver saw.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use ekiden_proto::units::Span;

use super::experiment::collect::results::CheckRow;
use crate::emulator::Emulator;
use crate::topology::network::Network;
use crate::topology::{Host, Lab};
use crate::virtual_time::guest;
use ekiden_emulator::conditions::Conditions;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::links::Link;
use ekiden_emulator::records::Recording;

mod bench;
mod delay;
mod expectation;
mod jitter;
mod loss;
mod ping;
mod plan;
mod probe;
mod rate;
mod replay;
mod row;
mod transport;

use bench::LinkChecker;
use plan::{Concurrency, Measurement, TrafficBudget};
use row::{CheckedDirection, Finding};

pub use plan::CheckSize;
pub use row::format_table;

/// Minimum ratio of the emulator's throughput to the highest rate of a lab.
const MIN_HEADROOM: f64 = 3.0;

/// Number of attempts at a measurement of time before its row fails.
const MAX_ATTEMPTS: u32 = 3;

/// Starts the lab without its events, measures every link in both directions, and reports each row as soon as it is
/// known. The returned rows are in order of links. A failed row is not an error.
///
/// # Errors
/// The lab cannot be started, or stops.
pub fn run(lab: &Lab, size: CheckSize, progress: &mut dyn FnMut(&CheckRow)) -> anyhow::Result<Vec<CheckRow>> {
    let mut rows = Vec::new();
    let mut report_row = |row: CheckRow| {
        progress(&row);
        rows.push(row);
    };
    let highest = {
        let network = Network::build(lab)?;
        let emulator = start_emulator(lab, &network)?;
        let checker =
            LinkChecker { lab, network: &network, emulator: &emulator, budget: TrafficBudget::for_size(size) };
        let directions = emulated_directions(lab);
        measure_all(&checker, &directions, &mut report_row);
        for direction in &directions {
            let records = emulator.records(direction.name, direction.from())?;
            if let Some(finding) = replay::check_repeatability(&records, direction.conditions(), checker.rng(direction))
            {
                report_row(direction.row("repeatability", finding));
            }
        }
        let (reports, _) = emulator.stop()?;
        let memory = |report: &ekiden_emulator::ledger::DirectionReport| {
            report.dropped.get(&DropCause::Memory).copied().unwrap_or(0)
        };
        let hidden = reports.iter().map(|report| report.hidden + memory(report)).sum();
        report_row(lab_row("hidden loss", loss::check_hidden_drops(&network.hidden_drops()?, hidden)));
        directions.iter().filter_map(|direction| direction.conditions().rate).max()
    };
    // In virtual time, processes take no time, so the processor has no limit that could be measured.
    if !guest::is_in_machine() {
        if let Some(highest) = highest {
            report_row(lab_row("headroom", measure_headroom(lab, highest.bits_per_second(), size)?));
        }
        let duration = Duration::from_secs(if size == CheckSize::Full { 20 } else { 2 });
        report_row(lab_row("this machine", delay::check_wakeup_latency(duration)));
    }
    rows.sort_by(|a, b| (a.link.is_empty(), &a.link).cmp(&(b.link.is_empty(), &b.link)));
    Ok(rows)
}

fn start_emulator(lab: &Lab, network: &Network) -> anyhow::Result<Emulator> {
    let options = EmulationOptions {
        mode: lab.mode.for_check(),
        seed: lab.seed,
        recording: Recording::All,
        ..Default::default()
    };
    Emulator::start(&network.emulated_links(), &options)
}

/// Returns both directions of every emulated link.
fn emulated_directions(lab: &Lab) -> Vec<CheckedDirection<'_>> {
    let links = lab.links.iter().filter(|(_, link)| !link.is_bare());
    links.flat_map(|(name, link)| [true, false].map(|forward| CheckedDirection { name, link, forward })).collect()
}

/// Runs the measurements that allow others first, on all links at once and sequentially on each link; then runs the
/// exclusive measurements one at a time. In this order, the transfer that is compared with theory starts at the
/// beginning of a loss pattern, before any probe has advanced the pattern.
fn measure_all(checker: &LinkChecker<'_>, directions: &[CheckedDirection<'_>], report_row: &mut dyn FnMut(CheckRow)) {
    for concurrency in [Concurrency::Any, Concurrency::Light] {
        let tasks = measurement_tasks(checker.lab, directions, concurrency);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for link_tasks in tasks.chunk_by(|(a, _), (b, _)| a.name == b.name) {
                let sender = sender.clone();
                scope.spawn(move || {
                    let rows =
                        link_tasks.iter().flat_map(|(direction, measure)| checker.check_rows(direction, measure));
                    // The receiver outlives all of these threads, so `send` cannot fail.
                    rows.for_each(|row| sender.send(row).unwrap_or_default());
                });
            }
            drop(sender);
            receiver.iter().for_each(&mut *report_row);
        });
    }
    for (direction, measure) in measurement_tasks(checker.lab, directions, Concurrency::Exclusive) {
        measure_exclusively(checker, &direction, &measure).into_iter().for_each(&mut *report_row);
    }
}

/// Runs a measurement until all of its rows pass, at most [`MAX_ATTEMPTS`] times. Repetition is necessary because a
/// hypervisor may pause a virtual machine for milliseconds. The rows of a repeated measurement state the number of the
/// attempt.
fn measure_exclusively(
    checker: &LinkChecker<'_>,
    direction: &CheckedDirection<'_>,
    measure: &Measurement,
) -> Vec<CheckRow> {
    let mut rows = checker.check_rows(direction, measure);
    for attempt in 2..=MAX_ATTEMPTS {
        if rows.iter().all(|row| row.pass) {
            break;
        }
        rows = checker.check_rows(direction, measure);
        rows.iter_mut().for_each(|row| row.measured.push_str(&format!("; attempt {attempt} of {MAX_ATTEMPTS}")));
    }
    rows
}

fn measurement_tasks<'a>(
    lab: &Lab,
    directions: &[CheckedDirection<'a>],
    concurrency: Concurrency,
) -> Vec<(CheckedDirection<'a>, Measurement)> {
    let tasks = directions
        .iter()
        .flat_map(|direction| plan::measurements(direction, lab).into_iter().map(move |measure| (*direction, measure)));
    tasks.filter(|(_, measure)| measure.concurrency() == concurrency).collect()
}

fn lab_row(property: &str, finding: Finding) -> CheckRow {
    CheckRow {
        link: String::new(),
        direction: String::new(),
        property: property.to_owned(),
        wanted: finding.wanted,
        measured: finding.measured,
        pass: finding.pass,
    }
}

/// Compares the throughput of one TCP connection over an emulated link without a rate with the highest rate of the lab.
fn measure_headroom(lab: &Lab, highest: u64, size: CheckSize) -> anyhow::Result<Finding> {
    let at_once = Conditions { delay: Some(Span(Duration::ZERO)), ..Conditions::default() };
    let link = Link { ends: ["left".into(), "right".into()], mtu: 1500, forward: at_once.clone(), reverse: at_once };
    let host = Host { congestion: Some("reno".to_owned()), ..Host::default() };
    let unshaped_lab = Lab {
        name: format!("{}-headroom", lab.name),
        hosts: link.ends.iter().map(|name| (name.clone(), host.clone())).collect(),
        links: [("unshaped".to_owned(), link)].into(),
        events: Vec::new(),
        ..lab.clone()
    };
    let network = Network::build(&unshaped_lab)?;
    let options = EmulationOptions { mode: lab.mode.for_check(), seed: lab.seed, ..EmulationOptions::default() };
    let _emulator = Emulator::start(&network.emulated_links(), &options)?;
    let [left, right] = ["left", "right"].map(|name| network.host(name).context("a host is missing"));
    let duration = Duration::from_secs(if size == CheckSize::Full { 5 } else { 2 });
    let goodput = transport::goodput(&transport::run_transfer(left?, right?, duration)?.timeline);
    let ratio = goodput / highest as f64;
    Ok(Finding {
        wanted: format!("TCP without shaping: ≥ {MIN_HEADROOM} times {}", rate::format_rate(highest as f64)),
        measured: format!("{} ({ratio:.1} times)", rate::format_rate(goodput)),
        pass: ratio >= MIN_HEADROOM,
    })
}
