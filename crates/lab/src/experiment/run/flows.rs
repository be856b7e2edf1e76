//! Concurrent bulk flows, optionally with short flows, through the treatment.
//!
//! Each bulk flow always has data to send. All begin at the same time, and the result is the receiver's byte count of
//! each flow at the end. No control data crosses the path, so the result is not lost when a tunnel collapses; iperf3
//! would send its results over the path under test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use super::transfer::{FlowStats, Transfer};
use crate::experiment::spec::group::ShortFlowSettings;
use crate::program::receiver::{FlowReceiver, LONG_FLOW_BYTE, SHORT_FLOW_BYTE};
use crate::topology::network::HostHandle;

/// Size of each write of a bulk flow, in bytes.
const WRITE_CHUNK: usize = 64 * 1024;
/// Interval of the samples of the receiver's byte counts, and of the attempts of a short flow.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Parameters of concurrent flows.
#[derive(Clone, Copy)]
pub struct ParallelFlowsRequest<'a> {
    /// The host that the flows are sent from.
    pub client: &'a HostHandle,
    /// The address and port that the flows connect to.
    pub server: SocketAddr,
    /// Number of bulk flows.
    pub connections: u32,
    /// Size and interval of the short flows, which are sent one after another; `None` for bulk flows only.
    pub short: Option<ShortFlowSettings>,
    /// Duration of the bulk flows, including the warm-up.
    pub time: Duration,
    /// Time at the start that is not measured.
    pub warm_up: Duration,
}

/// Sends a short flow of `bytes`, and waits until the receiver acknowledges them.
///
/// # Errors
/// The host cannot be entered, or the flow fails or does not complete within `timeout`.
pub fn attempt_flow(
    client: &HostHandle,
    server: SocketAddr,
    bytes: u64,
    timeout: Duration,
) -> anyhow::Result<Transfer> {
    let started = Instant::now();
    client.enter(|| send_short_flow(server, bytes, started + timeout))??;
    Ok(Transfer { seconds: started.elapsed().as_secs_f64(), bytes, ..Transfer::default() })
}

/// Runs all flows of `request`, and returns the byte counts of `receiver`.
///
/// # Errors
/// The host cannot be entered, or an interrupt. A flow that transfers nothing is not an error: it counts with 0 bytes.
pub fn run_flows(receiver: &FlowReceiver, request: ParallelFlowsRequest<'_>) -> anyhow::Result<Transfer> {
    let ParallelFlowsRequest { client, server, connections, time, warm_up, .. } = request;
    receiver.reset();
    let senders =
        FlowSenders { deadline: Instant::now() + time, streams: Mutex::default(), stopped: AtomicBool::new(false) };
    let (sample, completions) = client.enter(|| {
        std::thread::scope(|scope| {
            (0..connections).for_each(|_| drop(scope.spawn(|| senders.send(server))));
            let short_flows =
                scope.spawn(|| request.short.map_or_else(Vec::new, |short| send_short_flows(server, short, request)));
            let sample = sample_receiver(receiver, time, warm_up);
            senders.stop();
            (sample, short_flows.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })?;
    let sample = sample?;
    let mut bytes = sample.counts;
    // The receiver has no count for a flow that never connected.
    bytes.resize(bytes.len().max(connections as usize), 0);
    Ok(Transfer {
        seconds: sample.seconds,
        bytes: bytes.iter().sum(),
        timeline: sample.timeline,
        flow_stats: Some(FlowStats { bytes, completions }),
        ..Transfer::default()
    })
}

/// The receiver's byte counts.
struct ReceiverSample {
    /// Bytes of each flow in the measured time.
    counts: Vec<u64>,
    /// Length of the measured time, in seconds: on a busy machine, the samples are taken late.
    seconds: f64,
    /// Pairs of seconds since the start and bytes of all flows received by then.
    timeline: Vec<(f64, u64)>,
}

fn sample_receiver(receiver: &FlowReceiver, time: Duration, warm_up: Duration) -> anyhow::Result<ReceiverSample> {
    let started = Instant::now();
    let (mut before, mut timeline) = (None, vec![(0.0, 0)]);
    loop {
        let at = started.elapsed();
        let counts = receiver.counts();
        timeline.push((at.as_secs_f64(), counts.iter().sum()));
        if before.is_none() && at >= warm_up {
            before = Some((at, counts.clone()));
        }
        if at >= time {
            let (since, before) = before.unwrap_or_default();
            let before = before.into_iter().chain(std::iter::repeat(0));
            let counts = counts.iter().zip(before).map(|(now, then)| now - then).collect();
            return Ok(ReceiverSample { counts, seconds: (at - since).as_secs_f64(), timeline });
        }
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        std::thread::sleep(POLL_INTERVAL.min(time.saturating_sub(at)));
    }
}

/// The senders of the bulk flows.
struct FlowSenders {
    deadline: Instant,
    streams: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

impl FlowSenders {
    /// Sends until [`Self::stop`] or an error. A failure to connect needs no report: the receiver then counts no byte.
    fn send(&self, server: SocketAddr) {
        let Ok(mut stream) = connect(server, self.deadline) else { return };
        let Ok(other) = stream.try_clone() else { return };
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(other);
        let piece = [LONG_FLOW_BYTE; WRITE_CHUNK];
        while !self.stopped.load(Ordering::Acquire) {
            if stream.write_all(&piece).is_err() {
                return;
            }
        }
    }

    /// Stops all senders; the shutdown also wakes senders that are blocked in a write.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let open = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // The shutdown fails for a connection that has ended already: no error.
        open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn connect(server: SocketAddr, until: Instant) -> std::io::Result<TcpStream> {
    let timeout = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    TcpStream::connect_timeout(&server, timeout)
}

/// Sends short flows one after another, and returns the duration of each in seconds, including all its attempts. Flows
/// that end in the warm-up are excluded. A flow that is unfinished at the end counts with its time so far, if no other
/// flow took longer: otherwise, the result of a tunnel that blocks everything would equal that of a tunnel without
/// short flows.
fn send_short_flows(server: SocketAddr, flow: ShortFlowSettings, request: ParallelFlowsRequest<'_>) -> Vec<f64> {
    let started = Instant::now();
    let until = started + request.time;
    let mut durations = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let is_through = try_short_flow_until(server, flow.bytes.0, until);
        let seconds = began.elapsed().as_secs_f64();
        if started.elapsed() > request.warm_up && (is_through || durations.iter().all(|other| *other < seconds)) {
            durations.push(seconds);
        }
        std::thread::sleep(flow.every.0.saturating_sub(began.elapsed()));
    }
    durations
}

/// Repeats a short flow until it succeeds. Returns whether it succeeded before `until`.
fn try_short_flow_until(server: SocketAddr, bytes: u64, until: Instant) -> bool {
    while send_short_flow(server, bytes, until).is_err() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

fn send_short_flow(server: SocketAddr, bytes: u64, until: Instant) -> anyhow::Result<()> {
    let mut stream = connect(server, until)?;
    let timeout = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(&vec![SHORT_FLOW_BYTE; usize::try_from(bytes)?])?;
    stream.shutdown(Shutdown::Write)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count).context("the receiver did not answer")?;
    let arrived = u64::from_be_bytes(count);
    anyhow::ensure!(arrived == bytes, "{arrived} of {bytes} bytes arrived");
    Ok(())
}
