//! One stream: iperf3 sends for a time, and the receiver's counts are the result.

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

/// How often it is looked whether the sender has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time until a client whose server was busy connects again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A stream of bytes from a client to a server.
#[derive(Clone, Copy)]
pub struct StreamRequest<'a> {
    /// The host that sends.
    pub client: &'a HostHandle,
    /// Where it connects to.
    pub server: SocketAddr,
    /// How many bytes, or for how long.
    pub amount: StreamAmount,
    /// How long it may take in all.
    pub timeout: Duration,
    /// Where the sender's answer goes.
    pub folder: &'a Path,
}

/// Runs iperf3 as the sender, and reads its report.
///
/// # Errors
/// iperf3's, or it takes too long, or an interrupt.
pub fn run_stream(request: StreamRequest<'_>) -> anyhow::Result<Transfer> {
    let started = Instant::now();
    let report = loop {
        let report = run_client(&request)?;
        // If the last message of the test before is lost, the server waits for it for a retransmission timeout.
        if !Iperf3Report::is_server_busy(&report) || started.elapsed() > request.timeout {
            break report;
        }
        std::thread::sleep(RETRY_INTERVAL);
    };
    let ReceiverStats { seconds, bytes, timeline } = Iperf3Report::parse_received(&report)?;
    Ok(Transfer { seconds, bytes, timeline, ..Transfer::default() })
}

/// Runs iperf3 as the sender. Returns its report, which tells whether it failed.
fn run_client(request: &StreamRequest<'_>) -> anyhow::Result<String> {
    let mut command = request.client.command(iperf3::PROGRAM.find()?);
    // Into a file: no process has to read a pipe meanwhile.
    let answer = request.folder.join("stream.json");
    command.args(iperf3::client_arguments(request.server, request.amount)).process_group(0);
    command.stdin(Stdio::null()).stdout(File::create(&answer)?).stderr(Stdio::null());
    let mut client = ClientProcess(command.spawn().context("iperf3")?);
    wait_for_exit(&mut client, "iperf3", request.timeout)?;
    Ok(std::fs::read_to_string(&answer)?)
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
