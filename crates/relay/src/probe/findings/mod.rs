//! What was found out so far, by candidate, and what it comes to.

use std::time::Duration;

use ekiden_proto::path::model::{self, CongestionControl, RelayCosts, SectionModel};
use ekiden_proto::profile::Profile;

use super::candidates::{UnknownCandidate, candidates};
use super::connect::ConnectResult;
use super::download::Download;
use super::verdict::describe;
use super::{ProbeTarget, empty_pools};
use crate::config::Config;
use crate::dial::DialError;
use crate::path::PathChoice;

/// The sizes that are compared, bytes.
pub const SIZES: [u64; 4] = [10_000, 100_000, 1 << 20, 8 << 20];

/// From so many segments on the share that was lost says something about the next ones.
pub const MIN_SEGMENTS: u64 = 100;

/// What the other side has under way at most if it is a Linux host: half of its send buffer (tcp(7), `tcp_wmem`).
const MAX_SEND_WINDOW: u64 = 2 << 20;

/// Payload of a full packet on Ethernet, with timestamps.
const MSS: u16 = 1448;

/// What is known of a target.
#[derive(Debug)]
pub struct ProbeReport {
    /// The target.
    pub target: ProbeTarget,
    /// Each candidate, direct first.
    pub findings: Vec<CandidateFindings>,
}

/// What is known of one candidate.
#[derive(Debug)]
pub struct CandidateFindings {
    path_choice: PathChoice,
    connections: Vec<ConnectResult>,
    downloads: Vec<Download>,
    /// What went wrong the last time.
    pub failure: Option<String>,
    /// How often something did.
    pub failures: u32,
    prediction: Option<ProbePrediction>,
}

/// What the model says of a candidate.
#[derive(Debug, Clone, PartialEq)]
struct ProbePrediction {
    rate: f64,
    completion_times: Vec<Duration>,
}

/// Segments that were missing, of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossCount {
    /// Those that did not come the first time.
    pub missing: u64,
    /// All of them.
    pub segments: u64,
}

impl ProbeReport {
    /// Nothing is known yet of the candidates for `wanted`: direct, and those of `config` that `via` names, or all.
    ///
    /// # Errors
    /// A name in `via` that nothing has.
    pub fn new(config: &Config, via: &[String], wanted: ProbeTarget) -> Result<Self, UnknownCandidate> {
        let ways = candidates(config, via, &wanted.target, &empty_pools())?;
        Ok(Self { target: wanted, findings: ways.into_iter().map(CandidateFindings::new).collect() })
    }

    /// What is to be dialled for the candidate at this place.
    pub(super) fn task(&self, at: usize) -> (PathChoice, ProbeTarget) {
        (self.findings[at].path_choice.clone(), self.target.clone())
    }

    /// Whether the target was reached by any way.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.findings.iter().any(CandidateFindings::is_reached)
    }

    /// Predicts what was not measured; `window` is how much may be on its way to us.
    pub(super) fn predict(&mut self, window: Option<u64>) {
        for findings in &mut self.findings {
            findings.predict(window);
        }
    }
}

impl CandidateFindings {
    fn new(path_choice: PathChoice) -> Self {
        let (connections, downloads) = (Vec::new(), Vec::new());
        Self { path_choice, connections, downloads, failure: None, failures: 0, prediction: None }
    }

    /// Its name: `direct`, or by what.
    #[must_use]
    pub fn name(&self) -> String {
        if self.is_direct() { "direct".to_owned() } else { format!("via {}", self.path_choice.path.name) }
    }

    /// Whether it is the way without relays.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.path_choice.path.is_direct()
    }

    /// Whether the target was reached that way.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        !self.connections.is_empty()
    }

    pub(super) fn record_connect(&mut self, result: Result<ConnectResult, DialError>) {
        match result {
            Ok(connected) => self.connections.push(connected),
            Err(error) => self.record_failure(describe(&error)),
        }
    }

    pub(super) fn record_download(&mut self, result: Result<Download, String>) {
        match result {
            Ok(download) => self.downloads.push(download),
            Err(failure) => self.record_failure(failure),
        }
    }

    fn record_failure(&mut self, failure: String) {
        self.failure = Some(failure);
        self.failures += 1;
    }

    fn predict(&mut self, window: Option<u64>) {
        let round_trips = self.sections();
        if round_trips.is_empty() {
            return;
        }
        let loss = self.loss().filter(|loss| loss.segments >= MIN_SEGMENTS).map_or(0.0, LossCount::ratio);
        let last = round_trips.len() - 1;
        let sections = round_trips.iter().enumerate().map(|(at, rtt)| SectionModel {
            rtt: *rtt,
            loss,
            window: window.filter(|_| at == 0).map(|window| window.min(MAX_SEND_WINDOW)),
            line_rate: None,
            congestion: congestion_model(&self.path_choice.profile),
            mss: MSS,
            // Relays keep connections ready, from this host on; to the target there is none.
            is_warm: at < last && self.path_choice.path.hops.iter().all(|hop| hop.is_section()),
        });
        let (sections, costs): (Vec<SectionModel>, _) = (sections.collect(), RelayCosts::default());
        let times = SIZES.iter().map(|size| model::completion(&sections, *size, &costs)).collect();
        self.prediction = Some(ProbePrediction { rate: model::path_rate(&sections, &costs), completion_times: times });
    }

    /// The round trips of the sections, the nearest first, as the fastest connection has seen them.
    #[must_use]
    pub fn sections(&self) -> Vec<Duration> {
        let fastest = self.connections.iter().min_by_key(|connected| connected.setup);
        fastest.map(|connected| connected.sections.clone()).unwrap_or_default()
    }

    /// All of them together.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        Some(self.sections().into_iter().sum()).filter(|rtt: &Duration| !rtt.is_zero())
    }

    /// From the client's wish to "connected": the median.
    #[must_use]
    pub fn setup(&self) -> Option<Duration> {
        let mut times: Vec<Duration> = self.connections.iter().map(|connected| connected.setup).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// From the client's wish to the first byte: the least that a download took.
    #[must_use]
    pub fn first_byte(&self) -> Option<Duration> {
        self.downloads.iter().map(|download| download.first_byte).min()
    }

    /// What was lost: of what came, where something was downloaded, otherwise of what was sent.
    #[must_use]
    pub fn loss(&self) -> Option<LossCount> {
        let loss = if self.downloads.is_empty() {
            let (sent, again) =
                (self.connections.iter().map(|c| c.segments), self.connections.iter().map(|c| c.retransmitted));
            LossCount { missing: again.map(u64::from).sum(), segments: sent.map(u64::from).sum() }
        } else {
            let came = self.downloads.iter().map(|download| download.segments);
            LossCount { missing: self.downloads.iter().map(|download| download.gaps).sum(), segments: came.sum() }
        };
        (loss.segments > 0).then_some(loss)
    }

    /// What it carries, bytes/s; measured where there was a download that was long enough.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.measured_rate().or_else(|| self.prediction.as_ref().map(|predicted| predicted.rate))
    }

    /// Of the second halves of all downloads together, so that a slow one counts for as long as it took.
    fn measured_rate(&self) -> Option<f64> {
        let halves = self.downloads.iter().filter_map(Download::second_half);
        let (bytes, seconds) =
            halves.fold((0.0, 0.0), |sum, half| (sum.0 + half.0 as f64, sum.1 + half.1.as_secs_f64()));
        (seconds > 0.0).then(|| bytes / seconds)
    }

    /// How many times as fast as the slowest download the fastest one was.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let rates = self.downloads.iter().filter_map(Download::second_half);
        let rates = rates.map(|(bytes, took)| bytes as f64 / took.as_secs_f64());
        let (least, most) =
            rates.fold((f64::MAX, 0.0), |range: (f64, f64), rate| (range.0.min(rate), range.1.max(rate)));
        if most > 0.0 { most / least } else { 1.0 }
    }

    /// Whether rate and times are the model's.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        self.prediction.is_some()
    }

    /// Bytes that were downloaded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.downloads.iter().filter_map(|download| download.progress.last()).map(|(bytes, _)| bytes).sum()
    }

    /// How long an object of each of `DEFAULT_SIZES` takes: the mean of the downloads, or as predicted.
    #[must_use]
    pub fn completion_times(&self) -> Vec<Option<CompletionTime>> {
        if let Some(ProbePrediction { completion_times: times, .. }) = &self.prediction {
            return times.iter().map(|time| Some(CompletionTime { time: *time, is_extrapolated: false })).collect();
        }
        SIZES.iter().map(|size| self.completion_time(*size)).collect()
    }

    fn completion_time(&self, size: u64) -> Option<CompletionTime> {
        let rate = self.measured_rate();
        let times: Vec<CompletionTime> =
            self.downloads.iter().filter_map(|download| download.completion_time(size, rate)).collect();
        let count = u32::try_from(times.len()).ok().filter(|count| *count > 0)?;
        let time = times.iter().map(|time| time.time).sum::<Duration>() / count;
        Some(CompletionTime { time, is_extrapolated: times.iter().any(|time| time.is_extrapolated) })
    }
}

impl LossCount {
    /// The share that was lost.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.missing as f64 / self.segments.max(1) as f64
    }
}

fn congestion_model(profile: &Profile) -> CongestionControl {
    profile.congestion().map_or(CongestionControl::default(), |algorithm| CongestionControl::from_name(&algorithm.0))
}

/// From so many bytes on a download says something about the rate.
const MIN_RATE_BYTES: u64 = 256 << 10;

/// How long an object takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletionTime {
    /// From the client's wish to the last byte.
    pub time: Duration,
    /// Whether the download was over before, and went on in thought only.
    pub is_extrapolated: bool,
}

impl Download {
    /// Its second half, when it has found its pace: how much, in how long.
    fn second_half(&self) -> Option<(u64, Duration)> {
        let (bytes, end) = *self.progress.last()?;
        let took = end.saturating_sub(self.time_at(bytes / 2)?);
        (bytes >= MIN_RATE_BYTES && !took.is_zero()).then_some((bytes - bytes / 2, took))
    }

    /// When so many bytes had come, or would have at this `rate` if it had not been stopped.
    fn completion_time(&self, size: u64, rate: Option<f64>) -> Option<CompletionTime> {
        if let Some(time) = self.time_at(size) {
            return Some(CompletionTime { time, is_extrapolated: false });
        }
        let (bytes, end) = *self.progress.last()?;
        let rest = size.saturating_sub(bytes) as f64 / rate.filter(|_| !self.is_complete)?;
        Some(CompletionTime { time: end + Duration::from_secs_f64(rest), is_extrapolated: true })
    }

    /// When so many bytes had come, evenly between two looks.
    fn time_at(&self, size: u64) -> Option<Duration> {
        let at = self.progress.iter().position(|(bytes, _)| *bytes >= size)?;
        let (bytes, time) = self.progress[at];
        let (before, then) = at.checked_sub(1).map_or((0, self.first_byte), |before| self.progress[before]);
        let part = (size - before) as f64 / (bytes - before).max(1) as f64;
        Some(then + time.saturating_sub(then).mul_f64(part.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests;
