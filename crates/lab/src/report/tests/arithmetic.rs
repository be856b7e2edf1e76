//! Reports with arithmetic floors and limits beside the measured values, and extra metrics.

use crate::experiment::collect::results::{
    ExpectationVerdict, ExtraMetricCells, FloorRow, GainRow, Metric, Results, Summary,
};
use crate::report::tests::fixture;
use crate::report::{render_html, render_markdown, render_terminal};

/// Results whose metric is the first byte, with an extra metric and a floor.
pub fn with_floors() -> Results {
    let mut results = fixture::single();
    let metric = |key: &str| Metric { key: key.to_owned(), unit: "ms".to_owned(), higher_is_better: false };
    results.manifest.metric = metric("first_byte_ms");
    results.also = vec![ExtraMetricCells { metric: metric("completion_ms"), cells: results.cells.clone() }];
    let measured = Summary { n: 7, median: 146.0, low: 145.0, high: 147.0, confidence: 0.98, ..Summary::default() };
    results.floors = vec![FloorRow {
        levels: results.cells[0].levels.clone(),
        treatment: "ekiden".to_owned(),
        formula: "c + T + max(c, s)".to_owned(),
        floor: 140.0,
        measured,
    }];
    results
}

#[test]
fn floors_are_shown_beside_measured_values() {
    let results = with_floors();
    let row = "| 25-25 | ekiden | c + T + max(c, s) | 140.0 | 146.0 | 145.0 – 147.0 | 4.29 % |";
    assert!(render_markdown(&results).contains(row), "{}", render_markdown(&results));
    assert!(render_html(&results).contains("c from the client to the first relay"));
    assert!(
        !render_markdown(&fixture::single()).contains("Arithmetic floors"),
        "no floors without the first byte as metric"
    );
}

/// Results with a measured gain, and an expected gain without runs.
pub fn with_gains() -> Results {
    let mut results = fixture::single();
    let of = |median: f64| Summary { n: 1, median, low: median, high: median, ..Summary::default() };
    let row = GainRow {
        levels: results.cells[0].levels.clone(),
        treatment: "ekiden-pair".to_owned(),
        to: "direct".to_owned(),
        published: [16.1, 201.0],
        base: of(17.1),
        measured: of(236.0),
        gain: of(13.8),
        limit: 262.14,
        bound: "window, client → relay1".to_owned(),
        of_limit: 0.9,
        ceiling: Some(of(241.0)),
        verdict: ExpectationVerdict::Met,
    };
    let none = Summary::default();
    let unknown = GainRow {
        base: none,
        measured: none,
        gain: none,
        ceiling: None,
        verdict: ExpectationVerdict::Unknown,
        ..row.clone()
    };
    results.gains = vec![row, unknown];
    results
}

#[test]
fn gains_are_shown_beside_published_values_and_limits() {
    let results = with_gains();
    let text = render_markdown(&results);
    let measured = "| 25-25 | ekiden-pair | 16.1 → 201 | 12.5 | 17.1 → 236 | 13.8 | 262 | window, client → relay1 | 0.900 | 241 | \
                    0.9 of limit | met |";
    let unknown = "| 25-25 | ekiden-pair | 16.1 → 201 | 12.5 | – → – | – | 262 | window, client → relay1 | – |  | gain | unknown |";
    assert!(text.contains(measured) && text.contains(unknown), "{text}");
    assert!(render_html(&results).contains("<h2>Gains</h2>") && render_terminal(&results, 200).contains("17.1 → 236"));
    assert!(!render_markdown(&fixture::single()).contains("## Gains"), "no section without expected gains");
}

#[test]
fn extra_metric_has_its_own_table_and_chart() {
    let results = with_floors();
    assert!(render_markdown(&results).contains("## Results: time to completion\n"));
    let page = render_html(&results);
    assert!(
        page.contains("25-25: time to completion by treatment")
            && page.contains("<h2>Results: time to completion</h2>")
    );
    assert_eq!(page.matches("<h2>Expectations</h2>").count(), 1);
}
