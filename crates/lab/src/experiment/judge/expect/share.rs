//! Expectations that must hold for a share of their cells, such as 95 of 100. Cells without a result are excluded;
//! their number is in the remark.

use super::OWN_SOURCE;
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::Experiment;

/// The maximum number of cells named in the remark as missing the expectation.
const MAX_NAMED: usize = 8;

/// Validates the share of an expectation.
pub(super) fn validate(expectation: &Expectation, mut report: impl FnMut(String)) {
    let Some(share) = expectation.share else { return };
    if !(0.0..=1.0).contains(&share) {
        report("share: expected 0 to 1".into());
    }
    if expectation.at_least.or(expectation.at_most).is_none() || expectation.is.is_some() || expectation.gain.is_some()
    {
        report("share: requires at_least or at_most, without is and gain".into());
    }
}

/// Combines the outcomes of the cells into one outcome. Empty if there is no cell in this size.
#[allow(clippy::cast_precision_loss, reason = "a number of places")]
pub(super) fn share_outcome(
    experiment: &Experiment,
    expectation: &Expectation,
    outcomes: &[ExpectationOutcome],
) -> Vec<ExpectationOutcome> {
    let Some(share) = expectation.share.filter(|_| !outcomes.is_empty()) else { return Vec::new() };
    let count = |verdict: ExpectationVerdict| outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
    let (met, missed, unknown) =
        (count(ExpectationVerdict::Met), count(ExpectationVerdict::Missed), count(ExpectationVerdict::Unknown));
    let decided = met + missed;
    let met_share = if decided > 0 { met as f64 / decided as f64 } else { 0.0 };
    let verdict = match decided {
        0 => ExpectationVerdict::Unknown,
        _ if met_share >= share => ExpectationVerdict::Met,
        _ => ExpectationVerdict::Missed,
    };
    let outcome = ExpectationOutcome {
        expected: format!(
            "{}, in at least {:.0} % of {}",
            describe(experiment, expectation),
            share * 100.0,
            outcomes.len()
        ),
        source: expectation.source.clone().unwrap_or_else(|| OWN_SOURCE.into()),
        published: expectation.published.clone(),
        ours: (decided > 0).then(|| format!("{:.1} %: {met} of {decided}", met_share * 100.0)),
        interval: None,
        verdict,
        remark: remark(expectation, outcomes, unknown),
    };
    vec![outcome]
}

fn describe(experiment: &Experiment, expectation: &Expectation) -> String {
    if let Some(what) = &expectation.what {
        return what.clone();
    }
    let key = experiment.metric_key(expectation);
    let unit = metric::by_name(key).map(|metric| metric.unit).unwrap_or_default();
    let bounds = [("at least", expectation.at_least), ("at most", expectation.at_most)];
    let bounds: Vec<String> =
        bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", bound?))).collect();
    let to = expectation.ratio_to.as_ref().map_or_else(|| format!(" {unit}"), |to| format!(" x {to}"));
    format!("{}: {key} {}{}", expectation.treatment, bounds.join(", "), to.trim_end())
}

/// Returns the remark of the expectation, the cells that missed the expectation, and the number of cells without a
/// result.
fn remark(expectation: &Expectation, outcomes: &[ExpectationOutcome], unknown: usize) -> Option<String> {
    let missed: Vec<&ExpectationOutcome> =
        outcomes.iter().filter(|outcome| outcome.verdict == ExpectationVerdict::Missed).collect();
    let named =
        |outcome: &&&ExpectationOutcome| format!("{} ({})", outcome.expected, outcome.ours.as_deref().unwrap_or("?"));
    let mut remarks: Vec<String> = expectation.remark.iter().cloned().collect();
    if !missed.is_empty() {
        let names: Vec<String> = missed.iter().take(MAX_NAMED).map(|outcome| named(&outcome)).collect();
        let more = if missed.len() > MAX_NAMED { ", ..." } else { "" };
        remarks.push(format!("missed: {}{more}", names.join("; ")));
    }
    if unknown > 0 {
        remarks.push(format!("{unknown} without a result"));
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
        assert!(remark.ends_with("; 2 without a result"), "FTP was not run: {remark}");
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
