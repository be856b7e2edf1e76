//! Short flows: each sends a few bytes, and is complete when the receiver has acknowledged all of them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::poll::Poll;
use ekiden_sys::{congestion, signal};

use super::share::GroupEndpoints;
use crate::experiment::collect::results::GroupRun;
use crate::experiment::spec::group::ShortFlowSettings;

/// Timeout of each connection attempt, write and read of a flow. A timeout fails the run.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of each write, in bytes.
const WRITE_CHUNK: usize = 64 * 1024;
/// Interval at which a receiver without flows checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Times and size of a completed flow.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CompletedFlow {
    /// Start of the flow, since the start of the group.
    started_at: Duration,
    /// Time from the first packet of the handshake to the receiver's acknowledgement.
    duration: Duration,
    bytes: u64,
}

/// Runs the short flows of a group for `time`. The rate and the completion times exclude flows that begin in the
/// `warm_up`.
///
/// # Errors
/// A flow failed, the hosts could not be entered, the receiver could not listen, or an interrupt.
pub(in crate::experiment) fn run_short_flows(
    ends: GroupEndpoints<'_>,
    time: Duration,
    warm_up: Duration,
) -> anyhow::Result<GroupRun> {
    let name = &ends.group.name;
    let short = ends.group.short.context("the group has no short flows")?;
    let listener = ends.to.enter(|| TcpListener::bind(ends.server))?.with_context(|| format!("group {name}"))?;
    let is_over = AtomicBool::new(false);
    std::thread::sleep(ends.start_delay);
    let flows = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| accept_flows(&listener, &is_over));
        let senders: Vec<_> = (0..ends.group.connections)
            .map(|_| scope.spawn(|| ends.from.enter(|| send_flows(ends.server, &ends.group.congestion, short, time))))
            .collect();
        let results = senders.into_iter().map(|sender| {
            sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(anyhow::Error::new)?
        });
        let results: anyhow::Result<Vec<Vec<CompletedFlow>>> = results.collect();
        is_over.store(true, Ordering::Release);
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        results.and_then(|results| received.map(|()| results).context("the receiver failed"))
    });
    let flows = flows.with_context(|| format!("group {name}: a short flow"))?;
    Ok(group_result(name, &ends.group.congestion, flows.concat(), time, warm_up))
}

/// Calculates the figures of a group from its completed flows.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn group_result(
    name: &str,
    congestion: &str,
    mut flows: Vec<CompletedFlow>,
    time: Duration,
    warm_up: Duration,
) -> GroupRun {
    flows.sort_by_key(|flow| flow.started_at + flow.duration);
    let mut timeline = vec![(0.0, 0)];
    for flow in &flows {
        let bytes = timeline.last().map_or(0, |(_, bytes)| *bytes) + flow.bytes;
        timeline.push(((flow.started_at + flow.duration).as_secs_f64(), bytes));
    }
    let counted = || flows.iter().filter(|flow| flow.started_at >= warm_up);
    let bits = counted().map(|flow| flow.bytes).sum::<u64>() as f64 * 8.0;
    GroupRun {
        name: name.to_owned(),
        congestion: congestion.to_owned(),
        mbit_s: bits / (time - warm_up).as_secs_f64() / 1e6,
        completions: counted().map(|flow| flow.duration.as_secs_f64() * 1e3).collect(),
        timeline,
        ..GroupRun::default()
    }
}

/// Sends flows one after another until `time` is over; the last flow may end later.
fn send_flows(
    server: SocketAddr,
    congestion: &str,
    short: ShortFlowSettings,
    time: Duration,
) -> anyhow::Result<Vec<CompletedFlow>> {
    let started = Instant::now();
    let mut flows = Vec::new();
    while started.elapsed() < time {
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        let start = started.elapsed();
        let actual = send_flow(server, congestion, short.bytes.0)?;
        anyhow::ensure!(
            actual == congestion,
            "expected congestion = {congestion:?}, but the connection used {actual:?}: check congestion of the hosts"
        );
        let duration = started.elapsed() - start;
        flows.push(CompletedFlow { started_at: start, duration, bytes: short.bytes.0 });
        std::thread::sleep(short.every.0.saturating_sub(duration));
    }
    Ok(flows)
}

/// Sends one flow, and returns the congestion control of its socket.
fn send_flow(server: SocketAddr, congestion: &str, bytes: u64) -> anyhow::Result<String> {
    let mut stream = congestion::connect(server, congestion, IO_TIMEOUT).context("cannot connect")?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let chunk = [0; WRITE_CHUNK];
    let mut remaining = bytes;
    while remaining > 0 {
        let count = usize::try_from(remaining).unwrap_or(WRITE_CHUNK).min(WRITE_CHUNK);
        stream.write_all(&chunk[..count]).context("cannot send to the receiver")?;
        remaining -= count as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count).context("the receiver did not answer")?;
    let arrived = u64::from_be_bytes(count);
    anyhow::ensure!(arrived == bytes, "{arrived} of {bytes} bytes arrived");
    Ok(congestion::of_socket(&stream)?)
}

/// Accepts flows until `is_over` is set. Reads each flow to its end, and sends the number of received bytes back.
fn accept_flows(listener: &TcpListener, is_over: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut poll = Poll::new(vec![listener.as_fd()]);
    std::thread::scope(|scope| {
        while !is_over.load(Ordering::Acquire) {
            poll.wait(Some(POLL_INTERVAL))?;
            match listener.accept() {
                // A flow that fails here also fails at its sender, which reports the error.
                Ok((stream, _)) => drop(scope.spawn(move || drop(acknowledge_flow(stream)))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

fn acknowledge_flow(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let arrived = io::copy(&mut stream, &mut io::sink())?;
    stream.write_all(&arrived.to_be_bytes())
}
