use super::*;
use crate::experiment::expect::outcomes;

/// A client's section of 0 or 1 ms, with or without loss, before a line of 28.6 ms.
const PAIR: &str = r#"
lab = 1
name = "pair"
title = "A pair"
[host.client]
congestion = "reno"
window = "64KiB"
[host.relay]
forward = true
[host.server]
[link.lan]
ends = ["client", "relay"]
[link.line]
ends = ["relay", "server"]
delay = "14.3ms"
rate = "1Gbit/s"
count = "wire"
[workload]
protocol = "stream"
time = { quick = "1s", full = "1s" }
chain = ["relay"]
[treatment.direct]
program = "direct"
[treatment.section]
program = "direct"
set = { "link.line.delay" = "0ms" }
[treatment.pair]
program = "haproxy"
transparent = true
[experiment]
treatments = ["direct", "section", "pair"]
metric = "mbit_s"
blocks = { quick = 1, full = 1 }
[[factor]]
name = "loss"
levels = [{ name = "0" }, { name = "0.1%", set = { "link.lan.loss" = { model = "bernoulli", p = 0.001 } } }]
[[factor]]
name = "delay"
levels = [{ name = "0ms" }, { name = "1ms", set = { "link.lan.delay" = "1ms" } }]
[[expect]]
treatment = "pair"
ratio_to = "direct"
of_limit = 0.9
ceiling = "section"
source = "them"
[expect.gain]
rows = "loss"
columns = "delay"
without = [[18.3, 16.1], [7.62, 6.85]]
with = [[806, 201], [472, 133]]
"#;

fn run([treatment, loss, delay]: [&str; 3], mbit_s: f64) -> Run {
    Run {
        treatment: treatment.to_owned(),
        levels: [("loss", loss), ("delay", delay)].map(|(factor, level)| (factor.to_owned(), level.to_owned())).into(),
        metrics: [("mbit_s".to_owned(), mbit_s)].into(),
        ..Run::default()
    }
}

/// What comes of a direct and a relayed figure at one combination of levels.
fn judged(loss: &str, delay: &str, [direct, pair]: [f64; 2]) -> (GainRow, ExpectationOutcome) {
    let experiment = Experiment::parse("pair", PAIR).unwrap();
    let runs =
        [run(["direct", loss, delay], direct), run(["pair", loss, delay], pair), run(["section", loss, delay], 950.0)];
    let row =
        gain_rows(&experiment, true, &runs).into_iter().find(|row| row.verdict != ExpectationVerdict::Unknown).unwrap();
    let outcome =
        outcomes(&experiment, true, &runs).into_iter().find(|found| found.verdict != ExpectationVerdict::Unknown);
    (row, outcome.unwrap())
}

#[test]
fn the_published_gain_is_the_bar_where_the_base_is_no_better() {
    // 806 / 18.3 is 44.04.
    let (row, outcome) = judged("0", "0ms", [18.0, 794.0]);
    assert_eq!((row.verdict, row.published), (ExpectationVerdict::Met, [18.3, 806.0]));
    assert_eq!(outcome.expected, "pair, 0ms, 0: at least 44.0 x direct");
    assert_eq!(outcome.published.as_deref(), Some("18.3 → 806 Mbit/s, 44.0 x"));
    assert_eq!(outcome.ours.as_deref(), Some("44.1 x direct"));
    assert_eq!(outcome.remark.as_deref(), Some("the slowest section alone carries 950 Mbit/s"));
    assert_eq!(judged("0", "0ms", [18.0, 791.0]).0.verdict, ExpectationVerdict::Missed);
}

#[test]
fn a_share_of_the_limit_is_the_bar_where_the_base_is_better() {
    // 65,535 bytes in 2 ms are 262.1 Mbit/s; nine tenths of it 235.9.
    let (row, outcome) = judged("0", "1ms", [17.0, 236.0]);
    assert_eq!((row.verdict, row.bound.as_str()), (ExpectationVerdict::Met, "window, client → relay"));
    assert_eq!(outcome.expected, "pair, 1ms, 0: at least 0.9 of the limit 262 Mbit/s (window, client → relay)");
    assert_eq!(outcome.ours.as_deref(), Some("236 Mbit/s"));
    assert!(outcome.remark.unwrap().starts_with("direct is better here than published: 17.0 Mbit/s"));
    assert_eq!(judged("0", "1ms", [17.0, 235.0]).0.verdict, ExpectationVerdict::Missed);
    // 1.22 / sqrt(0.001) packets of 1460 bytes in 2 ms are 225.3 Mbit/s.
    assert_eq!(judged("0.1%", "1ms", [14.0, 203.0]).0.verdict, ExpectationVerdict::Met);
}

#[test]
fn without_runs_nothing_is_known() {
    let experiment = Experiment::parse("pair", PAIR).unwrap();
    let rows = gain_rows(&experiment, true, &[run(["direct", "0", "0ms"], 18.0)]);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.verdict == ExpectationVerdict::Unknown && row.ceiling.is_none()));
}

#[test]
fn gains_that_say_nothing_are_mistakes() {
    let wrong = [
        ("of_limit = 0.9\n", "", "gain: with ratio_to, and of_limit"),
        ("rows = \"loss\"\n", "", "gain: rows: as many as the factor has levels"),
        ("[806, 201]", "[806]", "gain: without and with: rows of the same length"),
        ("metric = \"mbit_s\"", "metric = \"seconds\"", "gain: of a rate only"),
        ("congestion = \"reno\"", "congestion = \"bbr\"", "no limit is known for pair, 0ms, 0.1%"),
        ("ceiling = \"section\"", "ceiling = \"sky\"", "there is no treatment \"sky\""),
    ];
    for (from, to, wanted) in wrong {
        let mistakes = Experiment::parse("pair", &PAIR.replace(from, to)).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:?}");
    }
}
