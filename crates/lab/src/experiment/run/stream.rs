//! One stream: iperf3 sends for a time or an amount, and the receiver's byte counts are the result.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use super::transfer::{ClientProcess, Transfer};
use crate::program::iperf3::{self, Iperf3Report, ReceiverStats, StreamAmount};
use crate::topology::network::HostHandle;

/// Interval of the checks whether the client process has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Delay before the client is started again after its server was busy.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A stream of bytes from a client to a server.
#[derive(Clone, Copy)]
pub struct StreamRequest<'a> {
    /// The host of the sender.
    pub client: &'a HostHandle,
    /// The address and port of the server.
    pub server: SocketAddr,
    /// Number of bytes, or duration.
    pub amount: StreamAmount,
    /// Timeout of the whole transfer.
    pub timeout: Duration,
    /// Directory that receives the sender's report.
    pub folder: &'a Path,
}

/// Runs iperf3 as the sender, and reads its report.
///
/// # Errors
/// iperf3 is not installed or fails, a timeout, or an interrupt.
pub fn run_stream(request: StreamRequest<'_>) -> anyhow::Result<Transfer> {
    let started = Instant::now();
    let report = loop {
        let report = run_client(&request)?;
        // If the last message of the previous test is lost, the server stays busy until its retransmission.
        if !report.is_server_busy() || started.elapsed() > request.timeout {
            break report;
        }
        std::thread::sleep(RETRY_INTERVAL);
    };
    let ReceiverStats { seconds, bytes, timeline } = report.into_received()?;
    Ok(Transfer { seconds, bytes, timeline, ..Transfer::default() })
}

/// Runs iperf3 as the sender. Returns the report of iperf3, which says whether the test failed.
fn run_client(request: &StreamRequest<'_>) -> anyhow::Result<Iperf3Report> {
    let mut command = request.client.command(iperf3::PROGRAM.find()?);
    // With a file, no process has to read a pipe during the transfer.
    let answer = request.folder.join("stream.json");
    command.args(iperf3::client_arguments(request.server, request.amount)).process_group(0);
    command.stdin(Stdio::null()).stdout(File::create(&answer)?).stderr(Stdio::null());
    let mut client = ClientProcess(command.spawn().context("iperf3")?);
    wait_for_exit(&mut client, "iperf3", request.timeout)?;
    Iperf3Report::parse(&std::fs::read_to_string(&answer)?)
}

pub(in crate::experiment) fn wait_for_exit(
    client: &mut ClientProcess,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = client.0.try_wait()? {
            return Ok(status);
        }
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        anyhow::ensure!(started.elapsed() < timeout, "timeout: {name} has not ended in {timeout:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
