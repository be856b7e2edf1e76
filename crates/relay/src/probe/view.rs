//! A probe's findings as JSON.

use std::time::Duration;

use serde::Serialize;

use super::findings::{CandidateFindings, ProbeReport, SIZES};
use super::verdict;

/// A probe report as JSON.
#[derive(Debug, Serialize)]
pub struct ProbeView {
    target: String,
    /// Whether the probe was interrupted.
    interrupted: bool,
    sizes: [u64; SIZES.len()],
    candidates: Vec<ProbeCandidateView>,
    verdict: String,
}

#[derive(Debug, Serialize)]
struct ProbeCandidateView {
    name: String,
    reached: bool,
    failures: u32,
    error: Option<String>,
    rtt_ms: Option<f64>,
    sections_ms: Vec<f64>,
    setup_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    segments: u64,
    lost: u64,
    bytes: u64,
    bytes_per_second: Option<f64>,
    /// Whether rate, times and gains are predicted by the model.
    predicted: bool,
    completion_ms: Vec<Option<f64>>,
    /// Speed-up over direct for each size.
    gain: Vec<Option<f64>>,
    visits: Option<VisitsView>,
}

/// The times of two consecutive visits.
#[derive(Debug, Serialize)]
struct VisitsView {
    /// Bytes of each visit.
    bytes: u64,
    first_ms: f64,
    second_ms: f64,
    /// Whether the second visit began on the section of the first.
    reuse: bool,
}

/// Returns the JSON view of a report.
#[must_use]
pub fn probe_view(report: &ProbeReport, interrupted: bool) -> ProbeView {
    let direct = report.findings.iter().find(|findings| findings.is_direct());
    ProbeView {
        target: report.target.to_string(),
        interrupted,
        sizes: SIZES,
        candidates: report.findings.iter().map(|findings| candidate_view(findings, direct)).collect(),
        verdict: verdict::verdict_text(report),
    }
}

fn candidate_view(findings: &CandidateFindings, direct: Option<&CandidateFindings>) -> ProbeCandidateView {
    let loss = findings.loss();
    ProbeCandidateView {
        name: findings.name(),
        reached: findings.is_reached(),
        failures: findings.failures,
        error: findings.failure.clone(),
        rtt_ms: findings.rtt().map(milliseconds),
        sections_ms: findings.sections().into_iter().map(milliseconds).collect(),
        setup_ms: findings.setup().map(milliseconds),
        first_byte_ms: findings.first_byte().map(milliseconds),
        segments: loss.map_or(0, |loss| loss.segments),
        lost: loss.map_or(0, |loss| loss.missing),
        bytes: findings.bytes(),
        bytes_per_second: findings.rate(),
        predicted: findings.is_predicted(),
        completion_ms: findings.completion_times().into_iter().map(|time| Some(milliseconds(time?.time))).collect(),
        gain: direct.map(|direct| verdict::gains(direct, findings)).unwrap_or_default(),
        visits: findings.visits().map(|visits| VisitsView {
            bytes: visits.bytes,
            first_ms: milliseconds(visits.first),
            second_ms: milliseconds(visits.second),
            reuse: visits.is_reuse,
        }),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
