//! One transfer: curl or wget fetches; the laboratory times the arriving bytes and compares them with the sent ones.

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

/// How much is read at once.
const READ_CHUNK: usize = 256 * 1024;
/// Two points of a timeline are at least this far apart, or a hundredth of the time so far.
const MIN_SAMPLE_SPACING: Duration = Duration::from_millis(10);

/// The file to fetch.
#[derive(Clone, Copy)]
pub struct FetchRequest<'a> {
    /// The host of the client.
    pub client: &'a HostHandle,
    /// The program that fetches the file.
    pub agent: Agent,
    /// The URL of the file.
    pub url: &'a str,
    /// How the server is reached.
    pub client_route: ClientRoute,
    /// The content behind the URL.
    pub content: &'a Content,
    /// How long it may take.
    pub timeout: Duration,
    /// How fast curl reads; none: as fast as it can.
    pub rate: Option<Rate>,
    /// After how long it is stopped, and counts as if all had come as fast.
    pub cap: Option<Duration>,
}

/// A transfer that succeeded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transfer {
    /// When it began, in seconds since the lab started; 0 if not recorded.
    pub at: f64,
    /// From start to the last byte, in seconds, as the agent measures it if it does.
    pub seconds: f64,
    /// From start to the first byte, in seconds, by the client's clock; `None` if not measured.
    pub first_byte: Option<f64>,
    /// Bytes that the client received.
    pub bytes: u64,
    /// Seconds since the agent was started, bytes that had arrived by then.
    pub timeline: Vec<(f64, u64)>,
    /// How all hosts repaired losses meanwhile.
    pub recovery: RecoveryCounters,
    /// The client's port; `None` if unknown.
    pub port: Option<u16>,
    /// Figures of the blocks, for a transfer in blocks.
    pub block_stats: Option<BlockWriteStats>,
    /// Figures of the flows, for many flows at once.
    pub flow_stats: Option<FlowStats>,
}

/// Further figures of the receiver of many flows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowStats {
    /// How much came over each that sends all the time, in the time that counts.
    pub bytes: Vec<u64>,
    /// How long each short one took, in seconds.
    pub completions: Vec<f64>,
}

/// Further figures of the writer of blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockWriteStats {
    /// From just before the first `write(2)` to just after the last, in seconds.
    pub write_s: f64,
    /// How long each block was under way, in seconds; of blocks with a pause between them.
    pub block_delays: Vec<f64>,
    /// The processor time of the writer, in seconds.
    pub cpu_s: f64,
}

/// A client process that is killed on drop.
pub struct ClientProcess(pub Child);

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = signal::kill_group(self.0.id());
        let _ = self.0.wait();
    }
}

/// Fetches the file and measures the transfer.
///
/// # Errors
/// The agent's, received data that differ from the sent data, or an interrupt.
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
    // On failure the agent's own message is the better one.
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

/// A transfer of `all` bytes that the cap has stopped, extrapolated at its rate so far.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn extrapolate_capped(answer: CurlReport, cap: Option<Duration>, all: u64) -> CurlReport {
    if cap.is_none() || answer.exitcode != curl::TIMEOUT_EXIT_CODE || answer.bytes == 0 {
        return answer;
    }
    CurlReport { exitcode: 0, seconds: answer.seconds * all as f64 / answer.bytes as f64, bytes: all, ..answer }
}

/// The messages of curl without prefixes.
fn curl_messages(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('{')).collect();
    last_lines(&lines.join("\n"))
}

/// Compares the arriving bytes, and records their times by the laboratory's clock.
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
        // curl has a timeout of its own, and reports its partial figures then.
        let is_late = request.agent == Agent::Wget && elapsed > request.timeout;
        anyhow::ensure!(!is_late, "timeout: {bytes} bytes in {:.1} s", elapsed.as_secs_f64());
        timeline.record(elapsed, bytes);
    }
    let ended = started.elapsed();
    let timeline = timeline.finish(ended, bytes);
    let first_byte = timeline.first().map(|(at, _)| *at);
    Ok(Transfer { seconds: ended.as_secs_f64(), first_byte, bytes, timeline, ..Transfer::default() })
}

/// Points in time that get sparser as time goes by: some hundreds, however long it takes.
#[derive(Default)]
pub struct ProgressSampler {
    points: Vec<(f64, u64)>,
    next_sample: Duration,
}

impl ProgressSampler {
    /// Notes how many bytes there were by then.
    pub fn record(&mut self, at: Duration, bytes: u64) {
        if at >= self.next_sample {
            self.points.push((at.as_secs_f64(), bytes));
            self.next_sample = at + MIN_SAMPLE_SPACING.max(at / 100);
        }
    }

    /// All points, the last at the end.
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
