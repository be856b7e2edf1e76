//! An expectation that holds in a share of the places it is about: 95 of 100, say. Where nothing is known does not count, and is
//! told.

use super::OWN_SOURCE;
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::Experiment;

/// How many places that miss it are named.
const MAX_NAMED: usize = 8;

/// Validates the share of an expectation.
pub(super) fn validate(expect: &Expectation, mut wrong: impl FnMut(String)) {
    let Some(share) = expect.share else { return };
    if !(0.0..=1.0).contains(&share) {
        wrong("share: from 0 to 1".into());
    }
    if expect.at_least.or(expect.at_most).is_none() || expect.is.is_some() || expect.gain.is_some() {
        wrong("share: with at_least or at_most only".into());
    }
}

/// The outcome, from the outcomes at each place; `None` without a place in this size.
#[allow(clippy::cast_precision_loss, reason = "a number of places")]
pub(super) fn share_outcome(
    experiment: &Experiment,
    expect: &Expectation,
    all: &[ExpectationOutcome],
) -> Vec<ExpectationOutcome> {
    let Some(share) = expect.share.filter(|_| !all.is_empty()) else { return Vec::new() };
    let count = |verdict: ExpectationVerdict| all.iter().filter(|outcome| outcome.verdict == verdict).count();
    let (met, missed, unknown) =
        (count(ExpectationVerdict::Met), count(ExpectationVerdict::Missed), count(ExpectationVerdict::Unknown));
    let known = met + missed;
    let reached = if known > 0 { met as f64 / known as f64 } else { 0.0 };
    let verdict = match known {
        0 => ExpectationVerdict::Unknown,
        _ if reached >= share => ExpectationVerdict::Met,
        _ => ExpectationVerdict::Missed,
    };
    let outcome = ExpectationOutcome {
        expected: format!("{}, in at least {:.0} % of {}", describe(experiment, expect), share * 100.0, all.len()),
        source: expect.source.clone().unwrap_or_else(|| OWN_SOURCE.into()),
        published: expect.published.clone(),
        ours: (known > 0).then(|| format!("{:.1} %: {met} of {known}", reached * 100.0)),
        interval: None,
        verdict,
        remark: remark(expect, all, unknown),
    };
    vec![outcome]
}

fn describe(experiment: &Experiment, expect: &Expectation) -> String {
    if let Some(what) = &expect.what {
        return what.clone();
    }
    let key = expect.metric.as_ref().unwrap_or(&experiment.metric.key);
    let unit = metric::by_name(key).map(|metric| metric.unit).unwrap_or_default();
    let bounds = [("at least", expect.at_least), ("at most", expect.at_most)];
    let bounds: Vec<String> =
        bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", bound?))).collect();
    let to = expect.ratio_to.as_ref().map_or_else(|| format!(" {unit}"), |to| format!(" x {to}"));
    format!("{}: {key} {}{}", expect.treatment, bounds.join(", "), to.trim_end())
}

/// The remark of the file, the places that missed it, and the number of unknown places.
fn remark(expect: &Expectation, all: &[ExpectationOutcome], unknown: usize) -> Option<String> {
    let missed: Vec<&ExpectationOutcome> =
        all.iter().filter(|outcome| outcome.verdict == ExpectationVerdict::Missed).collect();
    let named =
        |outcome: &&&ExpectationOutcome| format!("{} ({})", outcome.expected, outcome.ours.as_deref().unwrap_or("?"));
    let mut remarks: Vec<String> = expect.remark.iter().cloned().collect();
    if !missed.is_empty() {
        let names: Vec<String> = missed.iter().take(MAX_NAMED).map(|outcome| named(&outcome)).collect();
        let more = if missed.len() > MAX_NAMED { ", ..." } else { "" };
        remarks.push(format!("missed: {}{more}", names.join("; ")));
    }
    if unknown > 0 {
        remarks.push(format!("nothing is known of {unknown}"));
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::results::Run;
    use crate::experiment::examples_for_tests::small_experiment;
    use crate::experiment::judge::expect::outcomes;

    fn run(treatment: &str, delay: &str, value: f64) -> Run {
        let levels = [("delay", delay), ("protocol", "http")].map(|(f, l)| (f.to_owned(), l.to_owned()));
        let metrics = [("mb_s".to_owned(), value)].into();
        Run { levels: levels.into(), treatment: treatment.into(), metrics, ..Run::default() }
    }

    fn judged(share: f64) -> Vec<ExpectationOutcome> {
        let text = format!("[[expect]]\ntreatment = \"dante\"\nat_least = 2.0\nshare = {share}");
        let experiment = small_experiment(&text).unwrap();
        outcomes(&experiment, true, &[run("dante", "short", 1.0), run("dante", "long", 3.0)])
    }

    #[test]
    fn share_is_a_single_outcome_over_all_known_cells() {
        let half = judged(0.5);
        assert_eq!(half.len(), 1);
        assert_eq!((half[0].verdict, half[0].ours.as_deref()), (ExpectationVerdict::Met, Some("50.0 %: 1 of 2")));
        assert_eq!(half[0].expected, "dante: mb_s at least 2 MB/s, in at least 50 % of 4");
        let remark = half[0].remark.clone().unwrap();
        assert!(remark.starts_with("missed: dante, short, http: at least 2.00 MB/s (1.00 MB/s)"), "{remark}");
        assert!(remark.ends_with("nothing is known of 2"), "FTP was not run: {remark}");
        assert_eq!(judged(0.6)[0].verdict, ExpectationVerdict::Missed);
    }

    #[test]
    fn share_needs_a_bound_and_is_at_most_one() {
        for wrong in ["at_least = 1\nshare = 1.5", "maximum_over = \"delay\"\nis = \"short\"\nshare = 0.5"] {
            let mistakes = small_experiment(&format!("[[expect]]\ntreatment = \"dante\"\n{wrong}")).unwrap_err();
            assert!(mistakes[0].starts_with("expect 1: share: "), "{mistakes:?}");
        }
    }
}
