//! The measurements of a probe by candidate, and the predictions from them.

use std::time::Duration;

use ekiden_proto::path::model::{self, CongestionControl, Connection, RelayCosts, SectionModel};
use ekiden_proto::profile::Profile;

use super::connect::ConnectResult;
use super::download::{CompletionTime, Download};
use super::target::{UnknownCandidate, candidates};
use super::verdict::{describe, has_result};
use super::visits::{VISIT_BYTES, Visits};
use super::{ProbeTarget, empty_pools};
use crate::config::Config;
use crate::dial::DialError;
use crate::path::PathChoice;

/// The object sizes for which paths are compared, in bytes.
pub const SIZES: [u64; 4] = [10_000, 100_000, 1 << 20, 8 << 20];

/// Minimum number of segments from which a loss rate is meaningful.
pub const MIN_SEGMENTS: u64 = 100;

/// Largest data in flight of a Linux sender, in bytes: half of its send buffer (tcp(7), `tcp_wmem`).
const MAX_SEND_WINDOW: u64 = 2 << 20;

/// Payload of a full packet on Ethernet, with timestamps.
const MSS: u16 = 1448;

/// The measurements of a target.
#[derive(Debug)]
pub struct ProbeReport {
    /// The target that was probed.
    pub target: ProbeTarget,
    /// Each candidate, direct first.
    pub findings: Vec<CandidateFindings>,
}

/// The measurements of one candidate.
#[derive(Debug)]
pub struct CandidateFindings {
    path_choice: PathChoice,
    connections: Vec<ConnectResult>,
    downloads: Vec<Download>,
    visits: Option<Visits>,
    /// The error of the last failed attempt.
    pub failure: Option<String>,
    /// Number of failed attempts.
    pub failures: u32,
    prediction: Option<ProbePrediction>,
}

/// The predictions of the model for a candidate.
#[derive(Debug, Clone, PartialEq)]
struct ProbePrediction {
    rate: f64,
    completion_times: Vec<Duration>,
    visits: Visits,
}

/// A number of lost segments and the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossCount {
    /// Segments whose first transmission was lost.
    pub missing: u64,
    /// Segments in all.
    pub segments: u64,
}

impl ProbeReport {
    /// Returns a report without measurements. The candidates for `probe_target` are direct and all paths of `config`,
    /// or only those that `via` names.
    ///
    /// # Errors
    /// A name in `via` is unknown.
    pub fn new(config: &Config, via: &[String], probe_target: ProbeTarget) -> Result<Self, UnknownCandidate> {
        let path_choices = candidates(config, via, &probe_target.target, &empty_pools())?;
        Ok(Self { target: probe_target, findings: path_choices.into_iter().map(CandidateFindings::new).collect() })
    }

    /// Returns the path and the target of the candidate at this index.
    pub(super) fn task(&self, at: usize) -> (PathChoice, ProbeTarget) {
        (self.findings[at].path_choice.clone(), self.target.clone())
    }

    /// Returns whether any candidate has a result.
    #[must_use]
    pub fn has_result(&self) -> bool {
        self.findings.iter().any(|findings| has_result(self, findings))
    }

    /// Predicts values that were not measured; `window` bounds the data in flight toward this host.
    pub(super) fn predict(&mut self, window: Option<u64>) {
        for findings in &mut self.findings {
            findings.predict(window);
        }
    }
}

impl CandidateFindings {
    fn new(path_choice: PathChoice) -> Self {
        let (connections, downloads) = (Vec::new(), Vec::new());
        Self { path_choice, connections, downloads, visits: None, failure: None, failures: 0, prediction: None }
    }

    /// Returns the name of the candidate: `direct`, or `via` and its relays.
    #[must_use]
    pub fn name(&self) -> String {
        if self.is_direct() { "direct".to_owned() } else { format!("via {}", self.path_choice.path.name) }
    }

    /// Returns whether the candidate is the path without relays.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.path_choice.path.is_direct()
    }

    /// Returns whether the candidate has reached the target.
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

    pub(super) fn record_visits(&mut self, result: Result<Option<Visits>, String>) {
        match result {
            Ok(visits) => self.visits = visits,
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
        let is_chain = self.path_choice.path.hops.iter().all(|hop| hop.is_section());
        let sections = round_trips.iter().enumerate().map(|(at, rtt)| SectionModel {
            rtt: *rtt,
            loss,
            window: window.filter(|_| at == 0).map(|window| window.min(MAX_SEND_WINDOW)),
            line_rate: None,
            congestion: congestion_model(&self.path_choice.profile),
            mss: MSS,
            // All sections but the last have ready connections, this host's included; the section to the target has
            // none.
            connection: Connection::ready_if(at < last && is_chain),
        });
        let (sections, costs): (Vec<SectionModel>, _) = (sections.collect(), RelayCosts::default());
        let used: Vec<SectionModel> = sections.iter().map(|section| section.after_transfer(VISIT_BYTES)).collect();
        let [first, second] = [&sections, &used].map(|sections| model::completion(sections, VISIT_BYTES, &costs));
        let visits = Visits { bytes: VISIT_BYTES, first, second, is_reuse: used != sections };
        let completion_times = SIZES.iter().map(|size| model::completion(&sections, *size, &costs)).collect();
        let rate = model::path_rate(&sections, &costs);
        self.prediction = Some(ProbePrediction { rate, completion_times, visits });
    }

    /// Returns the round-trip times of the sections in the connection with the shortest setup, the nearest first.
    #[must_use]
    pub fn sections(&self) -> Vec<Duration> {
        let fastest = self.connections.iter().min_by_key(|connected| connected.setup);
        fastest.map(|connected| connected.sections.clone()).unwrap_or_default()
    }

    /// Returns the sum of the round-trip times of all sections; `None` if unknown.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        Some(self.sections().into_iter().sum()).filter(|rtt: &Duration| !rtt.is_zero())
    }

    /// Returns the median time from the client's request to "connected".
    #[must_use]
    pub fn setup(&self) -> Option<Duration> {
        let mut times: Vec<Duration> = self.connections.iter().map(|connected| connected.setup).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Returns the shortest time from the client's request to the first byte of a download.
    #[must_use]
    pub fn first_byte(&self) -> Option<Duration> {
        self.downloads.iter().map(|download| download.first_byte).min()
    }

    /// Returns the times of a first and a second visit, measured or predicted.
    #[must_use]
    pub fn visits(&self) -> Option<Visits> {
        self.prediction.as_ref().map(|prediction| prediction.visits).or(self.visits)
    }

    /// Returns the losses: of received segments after a download, otherwise of sent segments.
    #[must_use]
    pub fn loss(&self) -> Option<LossCount> {
        let loss = if self.downloads.is_empty() {
            let (sent, retransmitted) =
                (self.connections.iter().map(|c| c.segments), self.connections.iter().map(|c| c.retransmitted));
            LossCount { missing: retransmitted.map(u64::from).sum(), segments: sent.map(u64::from).sum() }
        } else {
            let received = self.downloads.iter().map(|download| download.segments);
            LossCount { missing: self.downloads.iter().map(|download| download.gaps).sum(), segments: received.sum() }
        };
        (loss.segments > 0).then_some(loss)
    }

    /// Returns the rate in bytes/s: measured if a download was long enough, otherwise predicted.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.measured_rate().or_else(|| self.prediction.as_ref().map(|predicted| predicted.rate))
    }

    /// Returns the rate over the second halves of all downloads together, so that each download is weighted by its
    /// duration.
    fn measured_rate(&self) -> Option<f64> {
        let halves = self.downloads.iter().filter_map(Download::second_half);
        let (bytes, seconds) =
            halves.fold((0.0, 0.0), |sum, half| (sum.0 + half.0 as f64, sum.1 + half.1.as_secs_f64()));
        (seconds > 0.0).then(|| bytes / seconds)
    }

    /// Returns the ratio of the fastest download's rate to the slowest download's rate.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let rates = self.downloads.iter().filter_map(Download::second_half);
        let rates = rates.map(|(bytes, took)| bytes as f64 / took.as_secs_f64());
        let (least, most) =
            rates.fold((f64::MAX, 0.0), |range: (f64, f64), rate| (range.0.min(rate), range.1.max(rate)));
        if most > 0.0 { most / least } else { 1.0 }
    }

    /// Returns whether rate and times are predicted by the model.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        self.prediction.is_some()
    }

    /// Returns the number of downloaded bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.downloads.iter().filter_map(|download| download.progress.last()).map(|(bytes, _)| bytes).sum()
    }

    /// Returns the completion time of an object of each of `SIZES`: the mean of the downloads, or the prediction.
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
    /// Returns the fraction of segments that were lost.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.missing as f64 / self.segments.max(1) as f64
    }
}

fn congestion_model(profile: &Profile) -> CongestionControl {
    profile.congestion().map_or(CongestionControl::default(), |algorithm| CongestionControl::from_name(&algorithm.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Hop, HopKind, Path};
    use crate::probe::download::tests::with_progress;

    fn findings(hops: usize, curves: &[&[(u64, u64)]]) -> CandidateFindings {
        let hop = Arc::new(Hop {
            name: "osaka".into(),
            kind: HopKind::Socks5(None),
            address: "127.0.0.1:1".parse().unwrap(),
            profile: Arc::default(),
            group: None,
        });
        let path = Path { name: if hops == 0 { "direct".into() } else { "osaka".into() }, hops: vec![hop; hops] };
        let mut findings = CandidateFindings::new(PathChoice::new(Arc::new(path), Arc::default()));
        findings.connections.push(ConnectResult {
            setup: Duration::from_millis(50),
            sections: vec![Duration::from_millis(50)],
            segments: 1,
            retransmitted: 0,
        });
        findings.downloads = curves.iter().map(|curve| with_progress(curve, false)).collect();
        findings
    }

    /// The verdict for two downloads, of which the relayed one has its first byte 12 ms later.
    fn verdict_of(direct: &[(u64, u64)], relayed: &[(u64, u64)]) -> String {
        let mut relayed = findings(1, &[relayed]);
        relayed.downloads[0].first_byte += Duration::from_millis(12);
        verdict(vec![findings(0, &[direct]), relayed])
    }

    #[test]
    fn verdict_compares_rates_and_small_pages() {
        let (mib, fast) = (1 << 20, [(10_000, 112), (100_000, 120), (1 << 20, 400), (16 << 20, 3900)]);
        let slow = [(10_000, 100), (100_000, 121), (mib, 800), (16 * mib, 7800)];
        assert_eq!(
            verdict_of(&slow, &fast),
            "via osaka is 2.00 times as fast as direct for files of 1MiB and more; small pages are 12 ms slower."
        );
        assert!(verdict_of(&fast, &slow).starts_with("Direct is the best path: via osaka, the second best, takes 2"));
        let same = verdict_of(&fast, &fast);
        assert!(same.starts_with("Direct is as good as any: via osaka is as fast for large files; small"), "{same}");
    }

    #[test]
    fn rate_weights_downloads_by_their_time() {
        let (mib, ms) = (1 << 20, 1000);
        let both = findings(0, &[&[(mib, ms), (2 * mib, 2 * ms)], &[(mib, ms), (2 * mib, 4 * ms)]]);
        assert_eq!(both.rate(), Some(2.0 * mib as f64 / 4.0));
        assert!((both.spread() - 3.0).abs() < 1e-9, "{}", both.spread());
    }

    /// The progress of a download with `speed` MB/s after its first byte.
    fn at_speed(speed: f64) -> Vec<(u64, u64)> {
        [10_000, 100_000, 1 << 20, 16 << 20]
            .map(|bytes: u64| (bytes, 100 + (bytes as f64 / speed / 1e3) as u64))
            .to_vec()
    }

    fn report(findings: Vec<CandidateFindings>) -> ProbeReport {
        ProbeReport { target: "http://server.example/file".parse().unwrap(), findings }
    }

    fn named(name: &str, curves: &[&[(u64, u64)]]) -> CandidateFindings {
        let mut findings = findings(1, curves);
        let path = Path { name: name.into(), hops: findings.path_choice.path.hops.clone() };
        findings.path_choice.path = Arc::new(path);
        findings
    }

    fn failed(mut findings: CandidateFindings, failure: &str) -> CandidateFindings {
        (findings.connections, findings.downloads) = (Vec::new(), Vec::new());
        findings.record_failure(failure.to_owned());
        findings
    }

    fn verdict(findings: Vec<CandidateFindings>) -> String {
        crate::probe::verdict::verdict_text(&report(findings))
    }

    #[test]
    fn verdict_compares_the_best_relay_with_direct() {
        let (slow, fast) = (at_speed(2.0), at_speed(8.0));
        let text = verdict(vec![findings(0, &[&slow]), named("a", &[&at_speed(4.0)]), named("b", &[&fast])]);
        assert!(
            text.starts_with("via b is ") && text.ends_with(" times as fast as direct for files of 100kB and more."),
            "{text}"
        );
    }

    #[test]
    fn verdict_ignores_small_differences_and_reports_variation() {
        let (one, other) = (at_speed(8.0), at_speed(8.2));
        let text = verdict(vec![findings(0, &[&one]), findings(1, &[&other])]);
        assert_eq!(text, "Direct is as good as any: via osaka is as fast for large files.");
        let mut sooner = findings(1, &[&one]);
        sooner.downloads[0].first_byte -= Duration::from_millis(30);
        let text = verdict(vec![findings(0, &[&one]), sooner]);
        assert!(text.ends_with("; small pages are 30 ms faster."), "{text}");
        let (even, uneven) = (at_speed(8.0), at_speed(4.0));
        let text = verdict(vec![findings(0, &[&even, &uneven]), findings(1, &[&even, &even])]);
        assert!(text.contains(" But downloads by the same path differ by a factor of 2"), "{text}");
    }

    #[test]
    fn verdict_names_middle_sizes_with_a_faster_relay() {
        let (mib, end) = (1 << 20, (8 << 20, 2300));
        let direct = [(10_000, 110), (100_000, 200), (mib, 800), end];
        let relayed = [(10_000, 110), (100_000, 150), (mib, 400), end];
        let text = verdict(vec![findings(0, &[&direct]), findings(1, &[&relayed])]);
        assert!(
            text.starts_with("via osaka is 2.00 times as fast as direct for files of 1MiB, and as fast for larger"),
            "{text}"
        );
    }

    #[test]
    fn verdict_compares_first_bytes_of_small_files() {
        let mut late = named("late", &[&[(9_000, 120)]]);
        late.downloads[0].first_byte += Duration::from_millis(50);
        let small = [(9_000_u64, 101_u64)];
        let text = verdict(vec![findings(0, &[&small]), late, named("soon", &[&small])]);
        assert_eq!(text, "Too little was downloaded to compare rates; first bytes are as fast via soon.");
    }

    #[test]
    fn failed_paths_are_reported_in_verdict_and_table() {
        let progress = || at_speed(8.0);
        let refused = |findings: CandidateFindings| failed(findings, "the target refuses");
        let text = verdict(vec![refused(findings(0, &[])), findings(1, &[&progress()])]);
        assert_eq!(text, "Direct does not work: the target refuses. Via osaka does.");
        assert_eq!(verdict(vec![refused(findings(0, &[])), refused(findings(1, &[]))]), "No path to the target works.");
        assert_eq!(
            verdict(vec![findings(0, &[&progress()]), refused(findings(1, &[]))]),
            "Direct is the only path that works."
        );
        assert!(verdict(vec![findings(0, &[&progress()])]).starts_with("Direct is the only path: add relays"));
        let mut untried = findings(0, &[]);
        untried.connections.clear();
        let table = crate::probe::table::table(&report(vec![untried, {
            let mut twice = findings(1, &[&progress()]);
            twice.record_failure("one".to_owned());
            twice.record_failure("the server did not answer".to_owned());
            twice
        }]));
        assert!(
            table.contains("direct              not tried yet") && table.contains("2 failed: the server did"),
            "{table}"
        );
    }

    fn connected(setup: u64, sections: &[u64], segments: u32, retransmitted: u32) -> ConnectResult {
        let ms = Duration::from_millis;
        ConnectResult {
            setup: ms(setup),
            sections: sections.iter().map(|rtt| ms(*rtt)).collect(),
            segments,
            retransmitted,
        }
    }

    /// Without hops the first byte needs two round trips: for the connection and for the request.
    #[test]
    fn a_prediction_is_made_from_round_trips_and_buffers() {
        let predicted = |hops, connections: &[ConnectResult], window: u64| {
            let mut findings = findings(hops, &[]);
            findings.connections = connections.to_vec();
            findings.predict(Some(window));
            findings.prediction.unwrap()
        };
        let of = |segments, retransmitted| [connected(50, &[50], segments, retransmitted)];
        let direct = predicted(0, &of(2, 0), 4 << 20);
        assert!((100..200).contains(&direct.completion_times[0].as_millis()), "{direct:?}");
        assert_eq!(
            direct,
            predicted(0, &of(2, 1), 64 << 20),
            "too few segments for a loss, and the sender limits the window"
        );
        assert!(predicted(0, &of(1000, 20), 4 << 20).rate < direct.rate / 2.0);
        let both = predicted(1, &[connected(60, &[5, 50], 2, 0)], 64 << 10);
        let window_over = |rtt: f64| f64::from(64 << 10) / rtt;
        assert!(both.rate > window_over(0.05) * 2.0, "our window limits the nearest section only: {both:?}");

        let mut two = findings(0, &[]);
        two.predict(Some(4 << 20));
        let mut wanted = report(vec![two, named("b", &[])]);
        wanted.target = "server.example:443".parse().unwrap();
        wanted.predict(Some(4 << 20));
        assert!(crate::probe::verdict::verdict_text(&wanted).starts_with("Predicted, not measured: "));
    }

    #[test]
    fn fastest_connection_gives_sections_and_median_gives_setup() {
        let mut findings = findings(0, &[]);
        findings.connections =
            [(90, 90), (50, 45), (60, 55)].map(|(setup, rtt)| connected(setup, &[rtt], 10, 1)).to_vec();
        assert_eq!(findings.sections(), [Duration::from_millis(45)]);
        assert_eq!(findings.setup(), Some(Duration::from_millis(60)));
        assert_eq!(findings.loss(), Some(LossCount { missing: 3, segments: 30 }));
        findings.downloads = vec![Download { segments: 1000, gaps: 7, ..with_progress(&[(1 << 20, 500)], false) }];
        assert_eq!(
            findings.loss(),
            Some(LossCount { missing: 7, segments: 1000 }),
            "the loss of downloads precedes the loss of connections"
        );
        assert_eq!(
            findings.completion_times().iter().map(|time| time.unwrap().is_extrapolated).collect::<Vec<_>>(),
            [false, false, false, true]
        );
    }
}
