//! One transfer: curl or wget fetches a file; the laboratory timestamps the received bytes and compares them with the
//! file.

use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_proto::units::Rate;
use ekiden_sys::signal;

use crate::program::agent::Agent;
use crate::program::content::Content;
use crate::program::curl::{self, ClientRoute, CurlReport};
use crate::program::service::last_lines;
use crate::program::wget;
use crate::topology::counters::RecoveryCounters;
use crate::topology::network::HostHandle;

/// Maximum size of each read, in bytes.
const READ_CHUNK: usize = 256 * 1024;
/// Minimum time between two points of a timeline; after one second, a hundredth of the elapsed time.
const MIN_SAMPLE_SPACING: Duration = Duration::from_millis(10);

/// Parameters of a transfer of one file.
#[derive(Clone, Copy)]
pub struct FetchRequest<'a> {
    /// The host of the client.
    pub client: &'a HostHandle,
    /// The program that fetches the file.
    pub agent: Agent,
    /// The URL of the file.
    pub url: &'a str,
    /// Route of the client to the server.
    pub client_route: ClientRoute,
    /// The expected content of the file.
    pub content: &'a Content,
    /// Timeout of the transfer.
    pub timeout: Duration,
    /// Rate limit of curl; `None`: no limit.
    pub rate: Option<Rate>,
    /// Time after which curl is stopped; the duration of the whole transfer is then extrapolated from the rate so far.
    /// `None`: no cap.
    pub cap: Option<Duration>,
}

/// Measurements of a successful transfer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transfer {
    /// Start of the transfer, in seconds since the start of the lab; 0 if not recorded.
    pub at: f64,
    /// Time from the start to the last byte, in seconds: from the report of the client program if it has one, else
    /// measured by the laboratory.
    pub seconds: f64,
    /// Time from the start to the first byte, in seconds, with the same source as `seconds`; `None` if not measured.
    pub first_byte: Option<f64>,
    /// Number of received bytes.
    pub bytes: u64,
    /// Pairs of seconds since the start of the client program and bytes received by then.
    pub timeline: Vec<(f64, u64)>,
    /// Loss recovery of all hosts during the transfer.
    pub recovery: RecoveryCounters,
    /// Local port of the client; `None` if unknown.
    pub port: Option<u16>,
    /// Figures of the writer; `None` unless the transfer was made in blocks.
    pub block_stats: Option<BlockWriteStats>,
    /// Figures of concurrent flows; `None` for other transfers.
    pub flow_stats: Option<FlowStats>,
}

/// Further figures of concurrent flows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowStats {
    /// Received bytes of each bulk flow in the measured time.
    pub bytes: Vec<u64>,
    /// Duration of each short flow, in seconds.
    pub completions: Vec<f64>,
}

/// Further figures of the writer of blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockWriteStats {
    /// Time from just before the first `write(2)` to just after the last, in seconds.
    pub write_s: f64,
    /// Time of each block from `write(2)` until the sink had all of it, in seconds. Only for blocks with a pause
    /// between them.
    pub block_delays: Vec<f64>,
    /// CPU time of the writer, in seconds.
    pub cpu_s: f64,
}

/// A client process that is killed on drop.
pub struct ClientProcess(pub Child);

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // The signal fails if the process has ended already, which is usual.
        let _ = signal::kill_group(self.0.id());
        let _ = self.0.wait();
    }
}

/// Fetches the file and measures the transfer.
///
/// # Errors
/// The client program fails, the received data differ from the sent data, a timeout, or an interrupt.
pub fn fetch(request: FetchRequest<'_>) -> anyhow::Result<Transfer> {
    let program = request.agent.program_info();
    let mut command = request.client.command(program.find()?);
    match request.agent {
        Agent::Curl => {
            let longest = request.cap.map_or(request.timeout, |cap| cap.min(request.timeout));
            let rate = request.rate.map(|rate| ["--limit-rate".to_owned(), rate.bytes_per_second().to_string()]);
            command.args(curl::arguments(request.url, request.client_route, longest)).args(rate.into_iter().flatten())
        }
        Agent::Wget => command.args(wget::arguments(request.url, request.client_route, request.timeout)?),
    };
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut client = ClientProcess(command.spawn().context(program.name)?);
    let body = client.0.stdout.take().context("the client has no standard output")?;
    // The exit status is checked only below, where the message of the client program is known.
    let received = read_and_compare(body, request, started)?;
    let mut stderr = String::new();
    client.0.stderr.take().context("the client has no standard error")?.read_to_string(&mut stderr)?;
    let transfer = match request.agent {
        Agent::Curl => {
            let answer = CurlReport::parse(&stderr).with_context(|| curl_messages(&stderr))?;
            let cap = request.cap.filter(|cap| *cap <= request.timeout);
            let answer = extrapolate_capped(answer, cap, request.content.bytes)
                .into_success()
                .with_context(|| curl_messages(&stderr))?;
            let (first_byte, port) = (Some(answer.first_byte), Some(answer.port));
            Transfer { seconds: answer.seconds, first_byte, bytes: answer.bytes, port, ..received }
        }
        Agent::Wget => {
            let status = client.0.wait()?;
            anyhow::ensure!(status.success(), "wget, {status}: {}", last_lines(&stderr));
            received
        }
    };
    let expected = request.content.bytes;
    anyhow::ensure!(transfer.bytes == expected, "{} of {expected} bytes arrived", transfer.bytes);
    Ok(transfer)
}

/// Extrapolates a transfer of `all` bytes that the cap has stopped, at its rate so far. Returns other reports
/// unchanged.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn extrapolate_capped(answer: CurlReport, cap: Option<Duration>, all: u64) -> CurlReport {
    if cap.is_none() || answer.exitcode != curl::TIMEOUT_EXIT_CODE || answer.bytes == 0 {
        return answer;
    }
    CurlReport { exitcode: 0, seconds: answer.seconds * all as f64 / answer.bytes as f64, bytes: all, ..answer }
}

/// Returns the last messages of curl, without the line of its report.
fn curl_messages(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('{')).collect();
    last_lines(&lines.join("\n"))
}

/// Compares the received bytes with the expected content, and records their times with the laboratory's clock.
fn read_and_compare(mut body: ChildStdout, request: FetchRequest<'_>, started: Instant) -> anyhow::Result<Transfer> {
    let mut comparison = request.content.comparison()?;
    let mut buffer = vec![0; READ_CHUNK];
    let (mut timeline, mut bytes) = (ProgressSampler::default(), 0);
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => return Err(error.into()),
        };
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        comparison.compare(&buffer[..count])?;
        bytes += count as u64;
        let elapsed = started.elapsed();
        // curl has its own timeout, after which it reports its partial figures.
        let is_late = request.agent == Agent::Wget && elapsed > request.timeout;
        anyhow::ensure!(!is_late, "timeout: {bytes} bytes in {:.1} s", elapsed.as_secs_f64());
        timeline.record(elapsed, bytes);
    }
    let ended = started.elapsed();
    let timeline = timeline.finish(ended, bytes);
    let first_byte = timeline.first().map(|(at, _)| *at);
    Ok(Transfer { seconds: ended.as_secs_f64(), first_byte, bytes, timeline, ..Transfer::default() })
}

/// Sampler of the progress of a transfer. The interval between samples grows with the elapsed time, so that a transfer
/// of any duration has some hundreds of points.
#[derive(Default)]
pub struct ProgressSampler {
    points: Vec<(f64, u64)>,
    next_sample: Duration,
}

impl ProgressSampler {
    /// Records a point with the time since the start and the bytes received so far, unless the last point is too
    /// recent.
    pub fn record(&mut self, at: Duration, bytes: u64) {
        if at >= self.next_sample {
            self.points.push((at.as_secs_f64(), bytes));
            self.next_sample = at + MIN_SAMPLE_SPACING.max(at / 100);
        }
    }

    /// Returns all points, with a last one at the end of the transfer.
    #[must_use]
    pub fn finish(mut self, at: Duration, bytes: u64) -> Vec<(f64, u64)> {
        if self.points.last().is_none_or(|(_, last)| *last < bytes) {
            self.points.push((at.as_secs_f64(), bytes));
        }
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_is_dense_at_first_and_bounded_in_length() {
        let mut timeline = ProgressSampler::default();
        for millisecond in 0..100_000 {
            timeline.record(Duration::from_millis(millisecond), millisecond + 1);
        }
        let points = timeline.finish(Duration::from_secs(101), 200_000);
        assert!((300..700).contains(&points.len()), "{}", points.len());
        assert_eq!(points[..2], [(0.0, 1), (0.01, 11)]);
        assert_eq!(points.last(), Some(&(101.0, 200_000)));
    }

    #[test]
    fn capped_transfer_is_extrapolated_at_its_rate() {
        let answer =
            |exitcode, bytes| CurlReport { exitcode, errormsg: None, seconds: 2.0, first_byte: 0.5, bytes, port: 1 };
        let extrapolated = |answer, cap| extrapolate_capped(answer, cap, 1000);
        let cap = Some(Duration::from_secs(2));
        let stopped = extrapolated(answer(28, 250), cap);
        assert_eq!((stopped.exitcode, stopped.seconds, stopped.bytes), (0, 8.0, 1000));
        assert_eq!(extrapolated(answer(28, 250), None).exitcode, 28, "a timeout without a cap is a failure");
        assert_eq!(extrapolated(answer(28, 0), cap).exitcode, 28, "without data the rate is unknown");
        assert_eq!(extrapolated(answer(7, 250), cap).exitcode, 7);
    }

    #[test]
    fn curl_messages_exclude_the_json_report() {
        assert_eq!(curl_messages("curl: (7) no\n{\"a\":1}\n"), "curl: (7) no");
    }
}
