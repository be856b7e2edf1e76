//! `ekiden probe`: measures a target, direct and through each relay, in turns, so that all paths meet the same conditions.
//!
//! The probe dials as a session does, with the same profiles and keys, and sends real traffic. [`run`] fills a [`ProbeReport`]
//! step by step, so that an interrupted probe has results, too.

mod connect;
mod download;
mod findings;
pub mod table;
mod target;
mod verdict;
pub mod view;
mod visits;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::cause::Cause;
use prometheus_client::metrics::histogram::Histogram;
use tokio::task::LocalSet;

use crate::config::Config;
use crate::config::plan::UnmeasuredRtt;
use crate::dial::Resolver;
use crate::pool::{PoolMetrics, Pools};

pub use findings::{CandidateFindings, ProbeReport};
pub use target::ProbeTarget;
pub use target::UnknownCandidate;
pub use visits::VISIT_BYTES;

use connect::ProbeContext;

/// The limits of a probe.
#[derive(Debug, Clone, Copy)]
pub struct ProbeBudget {
    /// Number of connections over each candidate.
    pub count: u32,
    /// Time of downloads over each candidate.
    pub time: Duration,
    /// Bytes of downloads over each candidate.
    pub bytes: u64,
}

/// Downloads over each candidate. The second pass has the opposite order, which distinguishes changes of network
/// conditions from differences between paths.
const PASSES: u32 = 2;

/// Measures the candidates of `report`. `on_step` receives a line about each step.
pub async fn run(config: &Config, report: &RefCell<ProbeReport>, effort: ProbeBudget, on_step: &dyn Fn(&str)) {
    let context = ProbeContext::new(config);
    let names: Vec<String> = report.borrow().findings.iter().map(CandidateFindings::name).collect();
    for turn in 1..=effort.count {
        for (at, name) in names.iter().enumerate() {
            on_step(&format!("connecting, {turn} of {}: {name}", effort.count));
            let (path_choice, probe_target) = report.borrow().task(at);
            let result = connect::connect_once(&context, &path_choice, &probe_target).await;
            report.borrow_mut().findings[at].record_connect(result);
        }
    }
    if report.borrow().target.url.is_none() {
        report.borrow_mut().predict(connect::receive_window());
        return;
    }
    visit_all(config, report, effort, on_step).await;
    let slice = ProbeBudget { time: effort.time / PASSES, bytes: effort.bytes / u64::from(PASSES), ..effort };
    for pass in 1..=PASSES {
        let mut turns: Vec<usize> = (0..names.len()).collect();
        if pass % 2 == 0 {
            turns.reverse();
        }
        for at in turns.into_iter().filter(|at| report.borrow().findings[*at].is_reached()) {
            on_step(&format!("downloading, {pass} of {PASSES}: {}", names[at]));
            let (path_choice, probe_target) = report.borrow().task(at);
            let result = download::download_once(&context, &path_choice, &probe_target, slice).await;
            report.borrow_mut().findings[at].record_download(result);
        }
    }
}

/// Visits the target twice over each candidate, before downloads grow the congestion windows of the relays' sections.
async fn visit_all(config: &Config, report: &RefCell<ProbeReport>, effort: ProbeBudget, on_step: &dyn Fn(&str)) {
    let count = report.borrow().findings.len();
    for at in 0..count {
        if !report.borrow().findings[at].is_reached() {
            continue;
        }
        on_step(&format!("visiting twice: {}", report.borrow().findings[at].name()));
        let (path_choice, probe_target) = report.borrow().task(at);
        let result = visits::visit_twice(config, &path_choice, &probe_target, effort).await;
        report.borrow_mut().findings[at].record_visits(result);
    }
}

/// Runs `work` on a new runtime, until it completes or the user presses Ctrl-C. Returns whether it has completed.
///
/// # Errors
/// The runtime or the signal handler cannot be created.
pub fn run_until_interrupted(work: impl Future<Output = ()>) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(async {
        tokio::select! {
            () = work => Ok(true),
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| false),
        }
    }))
}

/// A round trip to measure, and its result: the round-trip time, or the cause of the failure.
pub type RoundTrip = (UnmeasuredRtt, Result<Duration, Cause>);

/// Measures round-trip times from this host: the minimum of several connections each. A refused connection counts as an
/// answer. Returns `None` if the user presses Ctrl-C.
///
/// # Errors
/// The runtime cannot be created.
pub fn measure_round_trips(unmeasured: &[UnmeasuredRtt]) -> io::Result<Option<Vec<RoundTrip>>> {
    const COUNT: u32 = 5;
    let measured = Rc::new(RefCell::new(Vec::new()));
    let results = Rc::clone(&measured);
    let is_complete = run_until_interrupted(async move {
        let (names, pools) = (Resolver::new(&[]), empty_pools());
        for entry in unmeasured {
            let shortest = connect::min_connect_time(&names, &pools, &entry.address, COUNT).await;
            results.borrow_mut().push((entry.clone(), shortest));
        }
    })?;
    let measured = Rc::into_inner(measured).map(RefCell::into_inner).unwrap_or_default();
    Ok(is_complete.then_some(measured))
}

/// Returns pools that hold no connections and open none.
fn empty_pools() -> Arc<Pools> {
    Arc::new(Pools::new(PoolMetrics::new(|| Histogram::new(std::iter::empty())), |_| {}))
}
