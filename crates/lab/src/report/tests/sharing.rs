//! Reports of groups that share a bottleneck, and of maps.

use crate::experiment::collect::results::{GroupRun, Metric, Results, Summary};
use crate::report::tests::{fixture, titles};
use crate::report::{render_html, render_markdown};

/// Two groups in every run, and the ratio of their rates as the figure.
pub fn with_groups() -> Results {
    let mut results = fixture::full();
    results.manifest.metric = Metric { key: "ratio".into(), unit: String::new(), higher_is_better: true };
    for run in &mut results.runs {
        let group = |name: &str, rate: f64| GroupRun {
            name: name.into(),
            congestion: name.into(),
            mbit_s: 2.0 * rate,
            rates: vec![rate, rate],
            retransmits: Some(7),
            timeline: vec![(0.0, 0), (1.0, 1_000_000), (2.0, 3_000_000)],
            completions: Vec::new(),
        };
        let size = if run.levels["size"] == "1MB" { "cubic" } else { "ctcp" };
        run.groups = match run.treatment.as_str() {
            "direct" => vec![group(size, 90.0)],
            _ => vec![group("cubic", 60.0), group("ctcp", 30.0)],
        };
        run.metrics.insert("ratio".into(), 0.5);
    }
    results
}

/// The full results as a map over both factors, with one unknown cell.
pub fn with_map() -> Results {
    let mut results = fixture::full();
    results.manifest.map = Some(["split".into(), "size".into()]);
    results.cells[1].summary = Summary::default();
    results
}

#[test]
fn heat_map_has_a_cell_for_each_known_combination() {
    let results = with_map();
    let page = render_html(&results);
    assert_eq!(page.matches("class=\"heat\"").count(), results.cells.len() - 1);
    let titles = titles(&results);
    assert_eq!(titles[0].len(), 6, "one for each treatment: {:?}", titles[0]);
    assert_eq!(titles[0][0], "direct: goodput");
    assert!(page.contains("Goodput by split and size") && page.contains("The darker, the better: more is better."));
}

#[test]
fn ratio_of_rates_has_a_reference_line_and_no_ratio_chart() {
    let titles = titles(&with_groups());
    assert_eq!(titles[0], ["1MB: ratio of rates by split", "100MB: ratio of rates by split"]);
    assert!(render_html(&with_groups()).contains("class=\"reference\""));
}

#[test]
fn groups_have_separate_lines_and_single_groups_share_a_chart() {
    let titles = titles(&with_groups());
    assert_eq!(titles[1].len(), 11, "{:?}", titles[1]);
    assert_eq!(titles[1][0], "each alone, direct: goodput of a connection by split");
    assert!(titles[1].contains(&"100MB, squid: goodput of a connection by split".to_owned()));
    assert!(titles[2].iter().all(|title| title.ends_with("goodput of all connections of a group over time")));
}

#[test]
fn group_table_has_settings_and_rates_of_each_group() {
    let text = render_markdown(&with_groups());
    let row = text.lines().find(|line| line.contains("| squid | ctcp | ctcp | 2 |")).unwrap();
    assert!(row.ends_with("| 60.0 | 30.0 | 30.0 – 30.0 | 7.00 |"), "{row}");
    assert!(!render_markdown(&fixture::full()).contains("## Groups"));
}
