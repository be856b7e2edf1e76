//! Transfer of a fixed amount in blocks of one size, from a writer process on the client's host to a sink process on
//! the server's host.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_proto::units::Span;

use super::stream;
use super::transfer::{BlockWriteStats, ClientProcess, Transfer};
use crate::program::service::last_lines;
use crate::program::writer::WriterReport;
use crate::topology::network::HostHandle;

/// Parameters of a transfer in blocks.
#[derive(Clone, Copy)]
pub struct BlockWriteRequest<'a> {
    /// The host of the writer.
    pub client: &'a HostHandle,
    /// The address and port of the sink.
    pub server: SocketAddr,
    /// Total amount, in bytes.
    pub amount: u64,
    /// Size of each block, in bytes.
    pub block: u64,
    /// Pause between two blocks; `None` for no pause.
    pub pause: Option<Span>,
    /// Time after which the writer is stopped; the transfer is then recorded with this duration. `None`: no cap.
    pub cap: Option<Span>,
    /// Timeout of the whole transfer, if there is no cap.
    pub timeout: Duration,
    /// Directory that receives the output of the writer.
    pub folder: &'a Path,
}

/// Runs the writer, and returns the transfer from its report.
///
/// # Errors
/// The writer cannot be started or fails, a timeout, or an interrupt.
pub fn run_writer(request: BlockWriteRequest<'_>) -> anyhow::Result<Transfer> {
    let mut command = request.client.command(std::env::current_exe()?);
    command.args(["write", &request.server.to_string(), &request.amount.to_string(), &request.block.to_string()]);
    command.args(request.pause.map(|pause| format!("--pause={pause}")));
    // With files, no process has to read pipes during the transfer.
    let [answer, complaint] = ["blocks.json", "blocks.log"].map(|name| request.folder.join(name));
    command.process_group(0).stdin(Stdio::null()).stdout(File::create(&answer)?).stderr(File::create(&complaint)?);
    let mut writer = ClientProcess(command.spawn().context("cannot start the writer")?);
    let (started, cap) = (Instant::now(), request.cap.map(|cap| cap.0));
    let waited = stream::wait_for_exit(&mut writer, "the writer", cap.unwrap_or(request.timeout));
    if let Some(cap) = cap.filter(|cap| waited.is_err() && started.elapsed() >= *cap) {
        return Ok(capped_transfer(cap));
    }
    let status = waited?;
    anyhow::ensure!(status.success(), "the writer failed: {}", last_lines(&std::fs::read_to_string(&complaint)?));
    Ok(transfer_from_report(
        serde_json::from_str(&std::fs::read_to_string(&answer)?).context("cannot parse the report of the writer")?,
    ))
}

/// Returns the result of a transfer that was stopped at the cap; the number of received bytes is unknown.
fn capped_transfer(cap: Duration) -> Transfer {
    let seconds = cap.as_secs_f64();
    Transfer {
        seconds,
        block_stats: Some(BlockWriteStats { write_s: seconds, ..BlockWriteStats::default() }),
        ..Transfer::default()
    }
}

fn transfer_from_report(report: WriterReport) -> Transfer {
    Transfer {
        seconds: report.completion_s,
        first_byte: None,
        bytes: report.bytes,
        timeline: report.timeline,
        block_stats: Some(BlockWriteStats { write_s: report.write_s, block_delays: report.waits, cpu_s: report.cpu_s }),
        ..Transfer::default()
    }
}
