//! Telemetry of a session: limits, samples, and feedback to the path selector.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::event::{ChoiceRecord, SectionInfo};
use ekiden_proto::limiting::{Diagnoses, Diagnosis, LimitTracker, SessionSample, SideSample};
use ekiden_proto::path::reading::TcpCounters;
use ekiden_sys::outq::{unread, unsent};
use ekiden_sys::tcp_info::{tcp_info, tcp_readings};
use tokio::net::TcpStream;

use super::Session;
use crate::events::metrics::SampleMoment;
use crate::path::selector::{PathSelector, Prediction, TransferStats};
use crate::pump::FlowStats;

/// Sessions with fewer bytes are sampled only while a receiver blocks them: for so few bytes a limit is not meaningful.
const MIN_SAMPLED_BYTES: u64 = 64 * 1024;

/// Limits whose last sample is older are not reported. A sample becomes old when nothing moves, or when thousands of
/// sessions have to be sampled.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(10);

/// The limit tracker and its last sample.
#[derive(Debug)]
pub(super) struct LimitState {
    tracker: LimitTracker,
    at: Instant,
    /// Bytes moved at the last sample.
    moved: u64,
}

impl LimitState {
    /// Creates the state of a session that was opened at `at`, without samples.
    fn new(at: Instant) -> Box<Self> {
        Box::new(Self { tracker: LimitTracker::default(), at, moved: 0 })
    }
}

impl Session {
    /// Takes a sample if a direction is blocked or bytes have moved since the last sample. The first sample needs
    /// `MIN_SAMPLED_BYTES`.
    pub(super) fn sample_limits(&self) {
        let least = if self.limiting.borrow().is_some() { 1 } else { MIN_SAMPLED_BYTES };
        if self.stats.moved() >= self.last_moved_bytes() + least || self.is_blocked() {
            self.record_limits();
        }
    }

    /// Takes the last sample before a section is closed.
    pub(super) fn sample_limits_at_end(&self) {
        if self.stats.moved() >= self.last_moved_bytes() + MIN_SAMPLED_BYTES || self.is_blocked() {
            self.record_limits();
        }
    }

    /// Returns the current limit of each direction.
    pub(super) fn limits(&self) -> Diagnoses {
        let limiting = self.limiting.borrow();
        let fresh = limiting.as_ref().filter(|limiting| limiting.at.elapsed() < MAX_SAMPLE_AGE);
        fresh.map(|limiting| limiting.tracker.limits()).unwrap_or_default()
    }

    /// Returns the limit over the whole session, in the direction with more bytes.
    pub(super) fn limit(&self) -> Option<Diagnosis> {
        let is_upload = self.stats.bytes(Direction::Up) > self.stats.bytes(Direction::Down);
        let direction = if is_upload { Direction::Up } else { Direction::Down };
        self.limiting.borrow().as_ref().and_then(|limiting| limiting.tracker.overall_limit(direction))
    }

    fn is_blocked(&self) -> bool {
        self.stats.is_blocked(Direction::Down) || self.stats.is_blocked(Direction::Up)
    }

    fn last_moved_bytes(&self) -> u64 {
        self.limiting.borrow().as_ref().map_or(0, |limiting| limiting.moved)
    }

    /// Sets the counters from which the limits of a section are computed, if the section has carried sessions before.
    pub(super) fn start_limits(&self, side: Direction, counters: TcpCounters, cwnd: u32) {
        let mut limiting = self.limiting.borrow_mut();
        limiting.get_or_insert_with(|| LimitState::new(self.opened_at)).tracker.start_section(side, counters, cwnd);
    }

    /// Starts a new section to a server, whose counters are zero. The session may have samples of an earlier section.
    pub(super) fn restart_limits(&self) {
        if let Some(limiting) = self.limiting.borrow_mut().as_mut() {
            limiting.tracker.start_section(Direction::Up, TcpCounters::default(), 0);
        }
    }

    fn record_limits(&self) {
        let mut limiting = self.limiting.borrow_mut();
        let limiting = limiting.get_or_insert_with(|| LimitState::new(self.opened_at));
        let (now, load) = (Instant::now(), &self.context.thread.load);
        let span = now.saturating_duration_since(limiting.at);
        let state = self.state.borrow();
        let side = |direction, stream: Option<&TcpStream>, reads: Option<&TcpStream>| {
            let (info, counters) = stream.and_then(|stream| tcp_readings(stream.as_fd()).ok()).unzip();
            SideSample {
                counters,
                cwnd: info.map_or(0, |info| info.cwnd),
                has_unread: reads.is_some_and(|stream| unread(stream.as_fd()).is_ok_and(|bytes| bytes > 0)),
                send_buffer_full: self.stats.is_blocked(direction),
                all_in_flight: stream.is_some_and(|stream| unsent(stream.as_fd()).is_ok_and(|bytes| bytes == 0)),
                flow: self.stats.counters(direction),
            }
        };
        limiting.tracker.record(&SessionSample {
            span,
            run_time: load.run_time(span),
            runqueue_wait: load.wait_time(span),
            down: side(Direction::Down, Some(self.client_connection()), Some(&self.client)),
            up: side(Direction::Up, state.stream.as_deref(), state.stream.as_deref()),
        });
        (limiting.at, limiting.moved) = (now, self.stats.moved());
    }
}

/// Active time between two reports of a running session to the selector.
const FEEDBACK_INTERVAL: Duration = Duration::from_secs(3);

/// Reports the outcome of a chosen path to the selector.
#[derive(Debug)]
pub struct PathFeedback {
    prediction: Arc<Prediction>,
    /// The paths that failed before, and why.
    failed_paths: Vec<String>,
    /// Time from the client's request to the established path.
    connect: Duration,
    /// Counters at the start.
    start: TransferStats,
    /// Counters at the last partial report.
    reported: Option<TransferStats>,
}

impl PathFeedback {
    /// Creates the feedback of a path, starting at the current counters of `stats`.
    pub fn new(prediction: Arc<Prediction>, failed_paths: Vec<String>, connect: Duration, stats: &FlowStats) -> Self {
        Self { prediction, failed_paths, connect, start: read_stats(stats), reported: None }
    }

    /// Returns the transfer since the start.
    fn transfer_stats(&self, stats: &FlowStats) -> TransferStats {
        TransferStats {
            connect_time: self.connect,
            largest_response: stats.largest_response(),
            ..read_stats(stats).since(&self.start)
        }
    }

    /// Reports the transfer since the last report, if it is large enough.
    fn report_partial(&mut self, stats: &FlowStats, selector: &PathSelector) {
        let now = read_stats(stats);
        let part = now.since(self.reported.as_ref().unwrap_or(&self.start));
        let transfer = self.transfer_stats(stats);
        if part.active_time < FEEDBACK_INTERVAL || !transfer.is_bulk() {
            return;
        }
        let total_bytes = transfer.dominant_direction().bytes.max(self.prediction.context.predicted_size.bytes);
        if let Some(outcome) = part.partial_outcome(total_bytes) {
            selector.record_outcome(&self.prediction, &outcome);
        }
        self.reported = Some(now);
    }

    /// Reports the final outcome.
    pub fn finish(self, stats: &FlowStats, selector: &PathSelector) -> ChoiceRecord {
        let transfer = self.transfer_stats(stats);
        selector.record_transfer(&self.prediction.context, &transfer);
        let outcome = transfer.outcome();
        let predicted = outcome.as_ref().and_then(|outcome| selector.predict(&self.prediction, outcome));
        match &self.reported {
            None => outcome.iter().for_each(|outcome| selector.record_outcome(&self.prediction, outcome)),
            Some(reported) => {
                let rest = read_stats(stats).since(reported);
                let rest =
                    if rest.is_bulk() { rest.partial_outcome(transfer.dominant_direction().bytes) } else { None };
                rest.iter().for_each(|outcome| selector.record_outcome(&self.prediction, outcome));
            }
        }
        self.prediction.to_choice_record(&self.failed_paths, predicted, outcome.map(|outcome| outcome.elapsed))
    }

    /// Returns the record of the choice, without an outcome.
    fn choice_record(&self) -> ChoiceRecord {
        self.prediction.to_choice_record(&self.failed_paths, self.prediction.completion_time, None)
    }
}

fn read_stats(stats: &FlowStats) -> TransferStats {
    TransferStats {
        down: stats.bytes(Direction::Down),
        up: stats.bytes(Direction::Up),
        active_time: stats.active_time(),
        blocked_down: stats.held_for(Direction::Down),
        blocked_up: stats.blocked_for(Direction::Up),
        ..TransferStats::default()
    }
}

impl Session {
    /// Starts feedback for the chosen path, and finishes the feedback of the previous path.
    pub(super) fn on_path_ready(&self, connect: Duration) {
        if let Some(previous) = self.feedback.take() {
            previous.finish(&self.stats, &self.context.services().path_selector);
        }
        self.stats.on_path_ready();
        *self.feedback.borrow_mut() = self.dial_context.prediction().map(|(prediction, failed_paths)| {
            Box::new(PathFeedback::new(prediction, failed_paths, connect, &self.stats))
        });
    }

    /// Reports progress to the selector.
    pub(super) fn report_progress(&self) {
        if let Some(feedback) = &mut *self.feedback.borrow_mut() {
            feedback.report_partial(&self.stats, &self.context.services().path_selector);
        }
    }

    /// Returns the reason for the choice of the path, and the prediction.
    pub(super) fn choice(&self) -> Option<ChoiceRecord> {
        self.feedback.borrow().as_ref().map(|feedback| feedback.choice_record())
    }

    /// Returns the reason, the prediction and the outcome; without an established path, those of the last path tried.
    pub(super) fn final_choice(&self) -> Option<ChoiceRecord> {
        match self.feedback.take() {
            Some(feedback) => Some(feedback.finish(&self.stats, &self.context.services().path_selector)),
            None => self
                .dial_context
                .prediction()
                .map(|(prediction, failed_paths)| prediction.to_choice_record(&failed_paths, None, None)),
        }
    }
}

/// Shortest interval between two samples of kernel counters. Fractions over a shorter interval are not meaningful.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(3);

/// State of the last samples.
#[derive(Debug)]
pub struct SectionSamples {
    /// Bytes moved at the last check for changes.
    checked_bytes: u64,
    /// Bytes moved at the last sample of kernel counters, and the time of that sample.
    moved: u64,
    at: Instant,
    /// The counters of the client's and of the server's section at the last sample.
    last_counters: Option<Box<[SampledCounters; 2]>>,
}

/// The counters of a section with which the next sample is compared. Idle sessions keep them too, so the type is
/// smaller than [`SectionInfo`], which is more than three times as large.
#[derive(Debug, Clone, Copy, Default)]
struct SampledCounters {
    retransmitted: u32,
    segments_out: u32,
    /// This time and those below are in microseconds, as in the kernel's counters.
    busy: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

impl From<SectionInfo> for SampledCounters {
    fn from(info: SectionInfo) -> Self {
        let micros = |time: Duration| time.as_micros() as u64;
        Self {
            retransmitted: info.retransmitted,
            segments_out: info.segments_out,
            busy: micros(info.busy),
            rwnd_limited: micros(info.rwnd_limited),
            sndbuf_limited: micros(info.sndbuf_limited),
        }
    }
}

impl From<SampledCounters> for SectionInfo {
    fn from(counters: SampledCounters) -> Self {
        Self {
            retransmitted: counters.retransmitted,
            segments_out: counters.segments_out,
            busy: Duration::from_micros(counters.busy),
            rwnd_limited: Duration::from_micros(counters.rwnd_limited),
            sndbuf_limited: Duration::from_micros(counters.sndbuf_limited),
            ..Self::default()
        }
    }
}

impl SectionSamples {
    /// Sets the counters with which the next sample of a section is compared: `start`, or zero for a new connection.
    pub fn restart(&mut self, side: Direction, start: Option<SectionInfo>) {
        if start.is_some() || self.last_counters.is_some() {
            self.last_counters.get_or_insert_default()[side as usize] = start.unwrap_or_default().into();
        }
    }

    /// Creates the state without samples.
    #[must_use]
    pub fn new() -> Self {
        Self { checked_bytes: 0, moved: 0, at: Instant::now(), last_counters: None }
    }
}

impl Session {
    /// Updates the numbers of queued bytes, and samples the kernel counters if they are due. Does nothing if no bytes
    /// have moved since the last sample and none are queued.
    pub(super) fn emit_samples(&self) {
        let samples = &mut *self.samples.borrow_mut();
        let moved = self.stats.moved();
        if samples.checked_bytes == moved && samples.moved == moved && !self.stats.has_queued() {
            return;
        }
        samples.checked_bytes = moved;
        let server = self.server_section();
        self.stats.set_queued(Direction::Down, server.as_ref().map_or(0, |server| waiting_bytes(server, &self.client)));
        self.stats.set_queued(Direction::Up, server.as_ref().map_or(0, |server| waiting_bytes(&self.client, server)));
        if samples.moved == moved || samples.at.elapsed() < MIN_SAMPLE_INTERVAL {
            return;
        }
        samples.moved = moved;
        let span = std::mem::replace(&mut samples.at, Instant::now()).elapsed();
        let [down, up] = &mut **samples.last_counters.get_or_insert_default();
        self.section_sample("down", self.client_connection(), down, span);
        if let Some(server) = &server {
            self.section_sample("up", server, up, span);
        }
    }

    /// Records the changes in the counters of one section.
    fn section_sample(
        &self,
        section: &'static str,
        stream: &TcpStream,
        last_counters: &mut SampledCounters,
        span: Duration,
    ) {
        // Fails only when the socket is already dead.
        let Ok(now) = tcp_info(stream.as_fd()) else { return };
        if now.segments_out < last_counters.segments_out {
            // The section is another connection, that of the next request.
            *last_counters = SampledCounters::default();
        }
        self.context.services().events.metrics.sections.record_sample(
            section,
            SampleMoment::Running,
            &(*last_counters).into(),
            &now,
            span,
        );
        *last_counters = now.into();
    }
}

/// Returns the number of bytes received on one section and not yet sent on the other.
fn waiting_bytes(from: &TcpStream, to: &TcpStream) -> usize {
    // A failed socket has no bytes to send or to read.
    unread(from.as_fd()).unwrap_or(0) + unsent(to.as_fd()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_counters_preserve_cumulative_values_only() {
        let micros = Duration::from_micros;
        let counters = SectionInfo {
            retransmitted: 1,
            segments_out: 2,
            busy: micros(3_000_000_001),
            rwnd_limited: micros(4),
            sndbuf_limited: micros(5),
            ..SectionInfo::default()
        };
        let info = SectionInfo { cwnd: 10, rtt: micros(20), ..counters };
        assert_eq!(SectionInfo::from(SampledCounters::from(info)), counters);
    }
}
