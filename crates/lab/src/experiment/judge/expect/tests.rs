use super::*;
use crate::experiment::examples_for_tests::{TEXT, small_experiment};

/// Runs of three blocks over HTTP. A row has a treatment, a delay, and the rate in MB/s.
fn runs(table: &[(&str, &str, f64)]) -> Vec<Run> {
    let one = |block: u32, (treatment, delay, value): &(&str, &str, f64)| Run {
        block,
        levels: [("delay", *delay), ("protocol", "http")].map(|(f, l)| (f.to_owned(), l.to_owned())).into(),
        treatment: (*treatment).to_owned(),
        metrics: [("mb_s".to_owned(), value + f64::from(block) / 100.0)].into(),
        ..Run::default()
    };
    (0..3).flat_map(|block| table.iter().map(move |row| one(block, row))).collect()
}

fn judged(expectation: &str, table: &[(&str, &str, f64)]) -> Vec<ExpectationOutcome> {
    let experiment = small_experiment(&format!("[[expect]]\n{expectation}")).unwrap();
    outcomes(&experiment, true, &runs(table))
}

const TABLE: [(&str, &str, f64); 6] = [
    ("direct", "short", 10.0),
    ("direct", "long", 5.0),
    ("dante", "short", 17.0),
    ("dante", "long", 6.0),
    ("haproxy", "short", 15.0),
    ("haproxy", "long", 9.0),
];

#[test]
fn ratio_is_judged_at_every_matching_combination() {
    let http = "treatment = \"dante\"\nwhere = { protocol = \"http\" }\nratio_to = \"direct\"\nat_least = 1.5\n\
                published = \"17.7 MB/s\"\npublished_ratio = 1.7\nsource = \"them\"";
    let outcomes = judged(http, &TABLE);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>(),
        [ExpectationVerdict::Met, ExpectationVerdict::Missed]
    );
    let first = &outcomes[0];
    assert_eq!(first.expected, "dante, short, http: at least 1.50 x direct");
    assert_eq!((first.ours.as_deref(), first.source.as_str()), (Some("1.70 x direct"), "them"));
    assert_eq!(first.published.as_deref(), Some("17.7 MB/s, 1.70 x"));
}

#[test]
fn best_of_others_is_selected_per_combination() {
    let outcomes = judged(
        "treatment = \"direct\"\nwhere = { protocol = \"http\" }\n\
        ratio_to_best_of = [\"dante\", \"haproxy\"]\nat_most = 0.6",
        &TABLE,
    );
    let ours: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.ours.clone()).collect();
    assert_eq!(ours, ["0.59 x dante", "0.56 x haproxy"]);
    assert!(outcomes.iter().all(|outcome| outcome.verdict == ExpectationVerdict::Met));
}

#[test]
fn maximum_over_expects_the_level_with_the_largest_value() {
    let shape = |level: &str| {
        let text = format!(
            "treatment = \"dante\"\nwhere = {{ protocol = \"http\" }}\nmaximum_over = \"delay\"\nis = \"{level}\""
        );
        judged(&text, &TABLE).remove(0)
    };
    assert_eq!(shape("short").verdict, ExpectationVerdict::Met);
    assert_eq!(shape("short").expected, "dante, http: largest at delay short");
    assert_eq!(shape("long").verdict, ExpectationVerdict::Missed);
    assert!(shape("long").remark.unwrap().contains("17.0 MB/s, at short"));
}

/// A level was the largest if no other level had a valid run.
#[test]
fn maximum_over_needs_figures_of_all_levels() {
    let levels = TEXT.replace("{ name = \"long\"", "{ name = \"middle\" },\n    { name = \"long\"");
    let largest = "where = { protocol = \"http\" }\nmaximum_over = \"delay\"\nis = \"short\"";
    let text = format!("{levels}\n[[expect]]\ntreatment = \"dante\"\n{largest}");
    let experiment = Experiment::parse("small", &text).unwrap();
    let judged = |table: &[(&str, &str, f64)]| {
        let outcome = outcomes(&experiment, true, &runs(table)).remove(0);
        (outcome.verdict, outcome.remark)
    };
    let no_run = |levels: &str| Some(format!("no valid run at {levels}"));
    let short = ("dante", "short", 17.0);
    assert_eq!(judged(&[short]), (ExpectationVerdict::Unknown, no_run("middle, long")));
    assert_eq!(judged(&[short, ("dante", "long", 6.0)]), (ExpectationVerdict::Unknown, no_run("middle")));
    assert_eq!(judged(&[short, ("dante", "long", 18.0)]).0, ExpectationVerdict::Missed);
    let all = [short, ("dante", "middle", 16.0), ("dante", "long", 6.0)];
    assert_eq!(judged(&all), (ExpectationVerdict::Met, None));
}

#[test]
fn expectations_are_unknown_without_runs() {
    let outcomes = judged("what = \"all well\"\ntreatment = \"dante\"\nat_least = 1", &[]);
    assert!(outcomes.iter().all(|outcome| outcome.verdict == ExpectationVerdict::Unknown && outcome.ours.is_none()));
    assert_eq!(outcomes[0].expected, "all well, short, http");
}

/// The outcomes for three blocks with these times to the first byte, over a link of 1 ms in each direction.
fn first_byte_outcomes(expectation: &str, values: [f64; 3]) -> Vec<ExpectationOutcome> {
    let text = format!("[[expect]]\nwhere = {{ delay = \"short\", protocol = \"http\" }}\n{expectation}");
    let experiment = small_experiment(&text).unwrap();
    let mut runs = runs(&[("direct", "short", 0.0)]);
    for (run, value) in runs.iter_mut().zip(values) {
        run.metrics.insert("first_byte_ms".to_owned(), value);
    }
    outcomes(&experiment, true, &runs)
}

/// The range of fewer than six values was in the column of 95 % intervals without a mark.
#[test]
fn interval_of_few_values_is_marked_as_their_range() {
    let interval = |values: &[f64]| format_interval(&crate::stats::summarise(values));
    assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).as_deref(), Some("1.00 to 5.00, range of 5"));
    assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 60.0]).as_deref(), Some("1.00 to 60.0"));
    assert_eq!(interval(&[]), None);
}

#[test]
fn over_floor_bounds_the_metric_by_the_delay_floor() {
    let text = "treatment = \"direct\"\nmetric = \"first_byte_ms\"\nover_floor = 1.05";
    let outcome = first_byte_outcomes(text, [4.1, 4.1, 9.0]).remove(0);
    assert_eq!(outcome.expected, "direct, short, http: at most 4.2 ms, 1.05 x the floor 2T = 4.0 ms");
    assert_eq!((outcome.verdict, outcome.ours.as_deref()), (ExpectationVerdict::Met, Some("4.10 ms")));
    assert_eq!(outcome.remark.as_deref(), Some("the interval contains the bound"));
    assert_eq!(first_byte_outcomes(text, [4.3, 4.3, 4.3])[0].verdict, ExpectationVerdict::Missed);
    let stricter = format!("{text}\nat_most = 4.05");
    assert_eq!(first_byte_outcomes(&stricter, [4.1, 4.1, 4.1])[0].verdict, ExpectationVerdict::Missed);
}

#[test]
fn invalid_expectations_are_rejected() {
    let wrong = [
        ("treatment = \"best\"\nat_least = 1", "there is no treatment \"best\""),
        ("treatment = \"dante\"", "expected at_least, at_most, over_floor, gain, or maximum_over and is"),
        ("treatment = \"dante\"\nwhere = { delay = \"none\" }\nat_least = 1", "there is no level \"none\""),
        ("treatment = \"haproxy\"\nwhere = { protocol = \"ftp\" }\nat_least = 1", "the expectation matches no cell"),
        ("treatment = \"direct\"\nover_floor = 1.05", "over_floor: requires first_byte_ms or completion_ms"),
        (
            "treatment = \"direct\"\nmetric = \"first_byte_ms\"\nwhere = { protocol = \"ftp\" }\nover_floor = 1.05",
            "cells with a known floor",
        ),
        (
            "treatment = \"direct\"\nmetric = \"first_byte_ms\"\nminus = \"dante\"\nover_floor = 1.05",
            "without a ratio or difference",
        ),
        (
            "treatment = \"direct\"\nmetric = \"first_byte_ms\"\nratio_to_level = { delay = \"short\" }\nover_floor = 1.05",
            "without a ratio or difference",
        ),
        ("treatment = \"dante\"\nmaximum_over = \"delay\"\nat_least = 1", "maximum_over, is: set both or neither"),
    ];
    for (text, wanted) in wrong {
        let mistakes = small_experiment(&format!("[[expect]]\n{text}")).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{text}: {mistakes:?}");
    }
}

#[test]
fn treatment_can_be_compared_across_its_levels() {
    let own = "treatment = \"dante\"\nwhere = { delay = \"long\", protocol = \"http\" }\nat_least = 0.3\nat_most = 0.36\n\
               ratio_to_level = { delay = \"short\" }";
    let outcomes = judged(own, &TABLE);
    assert_eq!(outcomes.len(), 1, "6 to 17");
    assert_eq!(outcomes[0].verdict, ExpectationVerdict::Met);
    assert_eq!(outcomes[0].expected, "dante, long, http: at least 0.30, at most 0.36 x that at short");
    assert_eq!(outcomes[0].ours.as_deref(), Some("0.35 x that at short"));

    // The quick size has no long delay to compare with, so there is no outcome.
    let other =
        own.replace("delay = \"long\"", "delay = \"short\"").replace("{ delay = \"short\" }", "{ delay = \"long\" }");
    let experiment = small_experiment(&format!("[[expect]]\n{other}")).unwrap();
    assert_eq!(super::outcomes(&experiment, false, &runs(&TABLE)).len(), 0);

    let wrong = small_experiment(&format!("[[expect]]\n{own}\nratio_to = \"direct\"")).unwrap_err();
    assert_eq!(
        wrong,
        ["expect 1: expected at most one of ratio_to, ratio_to_best_of, ratio_to_level, ratio_to_metric and minus"]
    );
    let wrong = small_experiment(&format!("[[expect]]\n{}", own.replace("= \"short\"", "= \"none\""))).unwrap_err();
    assert_eq!(wrong, ["expect 1: there is no level \"none\" of a factor \"delay\""]);
}

#[test]
fn metric_can_be_compared_with_another_of_the_same_run() {
    let own = "treatment = \"direct\"\nwhere = { delay = \"short\", protocol = \"http\" }\nat_most = 0.5\n\
               metric = \"completion_ms.later\"\nratio_to_metric = \"completion_ms.first\"";
    let experiment = small_experiment(&format!("[[expect]]\n{own}")).unwrap();
    let mut runs = runs(&[("direct", "short", 0.0)]);
    for run in &mut runs {
        run.metrics.extend([("completion_ms.first".to_owned(), 80.0), ("completion_ms.later".to_owned(), 20.0)]);
    }
    let outcome = outcomes(&experiment, true, &runs).remove(0);
    assert_eq!(outcome.expected, "direct, short, http: completion_ms.later at most 0.50 x completion_ms.first");
    assert_eq!(
        (outcome.verdict, outcome.ours.as_deref()),
        (ExpectationVerdict::Met, Some("0.25 x completion_ms.first"))
    );
    let wrong = small_experiment(&format!("[[expect]]\n{}", own.replace(".first", ".last"))).unwrap_err();
    assert!(wrong[0].starts_with("expect 1: there is no metric \"completion_ms.last\""), "{wrong:?}");
}

/// With a base of 0 in every block the expectation was unknown, and with a base of 0 in some blocks the worst blocks
/// were left out.
#[test]
fn ratio_to_a_base_of_zero_is_judged() {
    let text = "treatment = \"direct\"\nwhere = { delay = \"short\", protocol = \"http\" }\nat_most = 1.5\n\
                metric = \"retransmitted.later\"\nratio_to_metric = \"retransmitted.first\"";
    let experiment = small_experiment(&format!("[[expect]]\n{text}")).unwrap();
    let judged = |first: [f64; 3], later: f64| {
        let mut runs = runs(&[("direct", "short", 0.0)]);
        for (run, first) in runs.iter_mut().zip(first) {
            let visits = [("retransmitted.first", first), ("retransmitted.later", later)];
            run.metrics.extend(visits.map(|(key, value)| (key.to_owned(), value)));
        }
        let outcome = outcomes(&experiment, true, &runs).remove(0);
        (outcome.verdict, outcome.ours.unwrap(), outcome.interval)
    };
    let against_zero = "50.0 % against 0.00 (retransmitted.first)".to_owned();
    assert_eq!(judged([0.0; 3], 50.0), (ExpectationVerdict::Missed, against_zero.clone(), None));
    let at_least = Some("at least 1.25, range of 3".to_owned());
    assert_eq!(judged([0.0, 40.0, 0.0], 50.0), (ExpectationVerdict::Missed, against_zero, at_least));
    let equal = ("1.00 x retransmitted.first".to_owned(), Some("1.00 to 1.00, range of 3".to_owned()));
    assert_eq!(judged([0.0; 3], 0.0), (ExpectationVerdict::Met, equal.0, equal.1));
}

#[test]
fn minus_compares_the_difference_in_the_unit_of_the_metric() {
    let more = "treatment = \"dante\"\nwhere = { protocol = \"http\" }\nminus = \"direct\"\nat_most = 5";
    let outcomes = judged(more, &TABLE);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>(),
        [ExpectationVerdict::Missed, ExpectationVerdict::Met]
    );
    assert_eq!(outcomes[0].expected, "dante, short, http: at most 5.00 MB/s more than direct");
    assert_eq!(outcomes[1].ours.as_deref(), Some("1.00 MB/s more than direct"));
    let wrong = small_experiment(&format!("[[expect]]\n{}", more.replace("direct", "nobody"))).unwrap_err();
    assert_eq!(wrong, ["expect 1: there is no treatment \"nobody\""]);
}
