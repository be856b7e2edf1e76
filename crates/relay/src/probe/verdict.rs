//! The conclusions of a probe, in words.

use std::time::Duration;

use ekiden_proto::cause::Cause;
use ekiden_proto::quantity::{compact_size, factor, time};

use super::download::CompletionTime;
use super::findings::{CandidateFindings, ProbeReport, SIZES};
use crate::dial::DialError;

/// The smallest gain that counts; a smaller one may be a change of network conditions.
const MIN_GAIN: f64 = 1.1;

/// The spread of downloads over one path from which paths cannot be ranked.
const UNSTEADY_SPREAD: f64 = 1.5;

/// The smallest difference at the first byte that a user could notice.
const NOTICEABLE_DELAY: Duration = Duration::from_millis(2);

/// Returns the verdict in one or two sentences.
#[must_use]
pub fn verdict_text(report: &ProbeReport) -> String {
    let direct = report.findings.iter().find(|findings| findings.is_direct());
    let relayed = || report.findings.iter().filter(|findings| !findings.is_direct());
    let Some(direct) = direct.filter(|direct| has_result(report, direct)) else {
        return without_direct(report, direct);
    };
    if relayed().next().is_none() {
        return "Direct is the only path: add relays with -c FILE or -F to compare.".to_owned();
    }
    let Some(best) = relayed()
        .filter(|relayed| has_result(report, relayed))
        .max_by(|one, other| last_gain(direct, one).total_cmp(&last_gain(direct, other)))
    else {
        return "Direct is the only path that works.".to_owned();
    };
    let prefix = if best.is_predicted() { "Predicted, not measured: " } else { "" };
    let spread = direct.spread().max(best.spread());
    let caveat = if spread < UNSTEADY_SPREAD {
        String::new()
    } else {
        format!(
            " But downloads by the same path differ by a factor of {}: try again, or longer with --time.",
            factor(spread)
        )
    };
    format!("{prefix}{}{caveat}", compare_with_direct(direct, best))
}

/// Returns whether the candidate has a result to compare: for a URL, a download that has begun.
pub(super) fn has_result(report: &ProbeReport, findings: &CandidateFindings) -> bool {
    if report.target.url.is_some() { findings.first_byte().is_some() } else { findings.is_reached() }
}

fn without_direct(report: &ProbeReport, direct: Option<&CandidateFindings>) -> String {
    let why = direct.and_then(|direct| direct.failure.as_deref());
    let working: Vec<&CandidateFindings> =
        report.findings.iter().filter(|findings| has_result(report, findings)).collect();
    let best = working
        .iter()
        .min_by_key(|findings| findings.completion_times().into_iter().rev().flatten().next().map(|t| t.time));
    match (best, why) {
        (Some(best), Some(why)) => format!("Direct does not work: {why}. {} does.", capitalize(&best.name())),
        (None, Some(_)) => "No path to the target works.".to_owned(),
        (_, None) => "Direct has no result yet to compare with.".to_owned(),
    }
}

fn compare_with_direct(direct: &CandidateFindings, best: &CandidateFindings) -> String {
    let gains = gains(direct, best);
    let known: Vec<(usize, f64)> = gains.iter().enumerate().filter_map(|(at, gain)| Some((at, (*gain)?))).collect();
    let name = best.name();
    let Some((_, last)) = known.last().copied() else {
        let small = first_byte_difference(direct, best).unwrap_or_else(|| "are as fast".to_owned());
        return format!("Too little was downloaded to compare rates; first bytes {small} {name}.");
    };
    let small = first_byte_difference(direct, best).map(|small| format!("; small pages {small}")).unwrap_or_default();
    if last >= MIN_GAIN {
        // Adjacent smaller sizes with a sufficient gain belong to the same range.
        let from = known.iter().rposition(|(_, gain)| *gain < MIN_GAIN).map_or(0, |below| below + 1);
        let start = compact_size(SIZES[known[from].0]);
        let least = known[from..].iter().map(|(_, gain)| *gain).fold(last, f64::min);
        let times =
            if least * MIN_GAIN < last { format!("{} to {}", factor(least), factor(last)) } else { factor(last) };
        return format!("{name} is {times} times as fast as direct for files of {start} and more{small}.");
    }
    let (at, most) = known.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, last));
    if last <= 1.0 / MIN_GAIN {
        let size = compact_size(SIZES[known[known.len() - 1].0]);
        return format!(
            "Direct is the best path: {name}, the second best, takes {} times as long for {size}.",
            factor(1.0 / last)
        );
    }
    if most >= MIN_GAIN {
        let (most, size) = (factor(most), compact_size(SIZES[at]));
        return format!(
            "{name} is {most} times as fast as direct for files of {size}, and as fast for larger ones{small}."
        );
    }
    format!("Direct is as good as any: {name} is as fast for large files{small}.")
}

/// Returns the change of the time to the first byte in words; `None` if it is too small to notice.
fn first_byte_difference(direct: &CandidateFindings, best: &CandidateFindings) -> Option<String> {
    let first = |findings: &CandidateFindings| {
        findings.first_byte().or_else(|| Some(findings.completion_times().first()?.as_ref()?.time))
    };
    let (direct, best) = (first(direct)?, first(best)?);
    if best > direct + NOTICEABLE_DELAY {
        Some(format!("are {} slower", time((best - direct).as_secs_f64())))
    } else if direct > best + NOTICEABLE_DELAY {
        Some(format!("are {} faster", time((direct - best).as_secs_f64())))
    } else {
        None
    }
}

/// Returns the speed-up of a candidate over direct for each size.
#[must_use]
pub fn gains(direct: &CandidateFindings, candidate: &CandidateFindings) -> Vec<Option<f64>> {
    let gain = |pair: (Option<CompletionTime>, Option<CompletionTime>)| {
        let (direct, candidate) = (pair.0?.time, pair.1?.time);
        Some(direct.as_secs_f64() / candidate.as_secs_f64().max(1e-9))
    };
    direct.completion_times().into_iter().zip(candidate.completion_times()).map(gain).collect()
}

/// Returns the gain at the largest size with a result; for files that are too small, at the first byte.
fn last_gain(direct: &CandidateFindings, candidate: &CandidateFindings) -> f64 {
    let first = || Some(direct.first_byte()?.as_secs_f64() / candidate.first_byte()?.as_secs_f64().max(1e-9));
    gains(direct, candidate).into_iter().flatten().next_back().or_else(first).unwrap_or(0.0)
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Describes the error, the failing hop, and the hop that reports it.
pub(super) fn describe(error: &DialError) -> String {
    let DialError { cause, hop, reported_by, remark, .. } = error;
    let subject = hop.as_deref().unwrap_or("the target");
    let predicate = match cause {
        Cause::Refused => "refuses the connection: nothing listens on the port",
        Cause::Unreachable => "cannot be reached: there is no route to it",
        Cause::TimedOut => "did not answer in time",
        Cause::NameNotFound => "has a name that does not exist",
        Cause::NameServerFailed => "has a name that cannot be looked up: the name servers fail",
        Cause::Denied => "is not allowed by this relay: see deny, allow and allow_private",
        Cause::DeniedByHop => "rejects the login or the target: check keys, passwords and the rules of the hop",
        Cause::HopProtocol => "does not speak the configured protocol",
        Cause::HopFailed => "could not connect, and gave no reason",
        Cause::Reset => "closed the connection before it could be used",
        Cause::BadAnswer => "answers in another protocol",
        Cause::Exhausted => "cannot be dialled: no descriptors, ports or memory left",
        Cause::OverQuota | Cause::SessionLimit => cause.hop_predicate(),
        Cause::Loop => "occurs twice on the path",
    };
    let reported_by = reported_by.as_ref().map(|relay| format!(", reported by {}", relay.name)).unwrap_or_default();
    let detail = remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
    format!("{subject} {predicate}{reported_by}{detail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_of_a_denied_target_names_this_relay() {
        let cause = DialError::from(Cause::Denied);
        assert!(describe(&cause).starts_with("the target is not allowed by this relay"), "{}", describe(&cause));
    }
}
