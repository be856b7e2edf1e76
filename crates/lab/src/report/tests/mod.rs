//! Whole reports of synthetic results.

mod arithmetic;
mod fixture;
mod sharing;
mod wellformed;

use super::view::ReportView;
use super::{plots, render_html, render_markdown, render_terminal, write};
use crate::experiment::collect::results::{ExpectationVerdict, Results, Summary};
use crate::experiment::collect::sequence::SequencePlot;

fn titles(results: &Results) -> Vec<Vec<String>> {
    let view = ReportView::new(results);
    let figures = plots::result_charts(&view).into_iter().chain(plots::emulator_charts(&view));
    figures.map(|figure| figure.charts.into_iter().map(|chart| chart.title).collect()).collect()
}

/// Results with HTML and Markdown markup in each kind of name.
fn hostile() -> Results {
    let evil = "<script>alert('1')</script>|`\"&".to_owned();
    let mut results = fixture::single();
    results.manifest.name.clone_from(&evil);
    results.manifest.title.clone_from(&evil);
    results.manifest.source = Some(evil.clone());
    results.manifest.metric.unit.clone_from(&evil);
    results.manifest.treatments[1].clone_from(&evil);
    results.manifest.factors = vec![(evil.clone(), vec![evil.clone()])];
    results.manifest.machine.push((evil.clone(), evil.clone()));
    results.warnings.push(format!("{evil}\u{1b}[2J"));
    results.checks[0].link.clone_from(&evil);
    results.outcomes[0].expected.clone_from(&evil);
    for cell in &mut results.cells {
        cell.levels = [(evil.clone(), evil.clone())].into();
    }
    for run in &mut results.runs {
        run.levels = [(evil.clone(), evil.clone())].into();
        run.links[0].link.clone_from(&evil);
        run.invalid = run.invalid.as_ref().map(|_| evil.clone());
    }
    results
}

/// Results with NaN, infinite, zero and negative values, with cells without values, and with a missing cell.
fn broken() -> Results {
    let mut results = fixture::full();
    results.cells[0].summary = Summary::default();
    results.cells[1].summary.median = f64::NAN;
    results.cells[2].summary.high = f64::INFINITY;
    results.cells[3].ratio = Some(Summary { n: 1, median: -1.0, ..Summary::default() });
    results.cells.remove(9);
    for (run, value) in results.runs.iter_mut().zip([f64::NAN, f64::INFINITY, 0.0, -3.0]) {
        run.invalid = None;
        run.metrics.insert("mb_s".to_owned(), value);
        run.metrics.insert("first_byte_ms".to_owned(), value);
        run.timeline = vec![(0.0, 5), (0.0, 9), (2.0, 9)];
        run.cpu_busy = value;
    }
    results
}

fn all() -> Vec<Results> {
    let others = [hostile(), broken(), arithmetic::with_floors(), arithmetic::with_gains()];
    let others = others.into_iter().chain([sharing::with_groups(), sharing::with_map()]);
    [fixture::full(), fixture::single(), fixture::without_runs()].into_iter().chain(others).collect()
}

#[test]
fn html_is_well_formed_and_small() {
    for results in all() {
        let page = render_html(&results);
        assert_eq!(wellformed::first_error(&page), None, "{}", results.manifest.name);
        assert!(page.len() < 1_000_000, "{} bytes", page.len());
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a value that is not a number");
    }
}

#[test]
fn html_has_no_external_references() {
    for results in all() {
        let page = render_html(&results);
        for word in ["href", "src=", "url(", "@import", "<script", "<link", "<iframe", "<object"] {
            assert!(!page.contains(word), "{word}");
        }
        let inside_tags = page.split('<').filter_map(|piece| piece.split_once('>')).map(|(tag, _)| tag);
        assert!(!inside_tags.into_iter().any(|tag| tag.contains("://")), "an address in a tag");
    }
    assert!(
        render_html(&fixture::full()).contains("https://example.org/paper"),
        "an address is permitted as the text of a source"
    );
}

#[test]
fn names_are_escaped_in_html_and_markdown() {
    let page = render_html(&hostile());
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;|`&quot;&amp;"), "escaped");
    let text = render_markdown(&hostile());
    assert!(!text.contains("<script"), "Markdown too");
    let lines: Vec<&str> = text.lines().collect();
    for table in lines.split(|line| !line.starts_with('|')).filter(|table| !table.is_empty()) {
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{table:#?}");
    }
}

#[test]
fn rendering_is_deterministic() {
    assert_eq!(render_html(&fixture::full()), render_html(&fixture::full()));
    assert_eq!(render_markdown(&fixture::full()), render_markdown(&fixture::full()));
}

#[test]
fn missed_expectations_are_listed_first() {
    let results = fixture::full();
    let verdicts: Vec<ExpectationVerdict> =
        ReportView::new(&results).outcomes().iter().map(|outcome| outcome.verdict).collect();
    assert_eq!(
        verdicts,
        [ExpectationVerdict::Missed, ExpectationVerdict::Unknown, ExpectationVerdict::Met, ExpectationVerdict::Met]
    );
    for text in [render_html(&results), render_markdown(&results), render_terminal(&results, 100)] {
        let place = |expected: &str| text.find(expected).unwrap();
        assert!(place("dante, 1MB") < place("vsftpd, 1MB") && place("vsftpd, 1MB") < place("squid, 100MB"));
    }
}

#[test]
fn every_title_names_its_condition() {
    let titles = titles(&fixture::full());
    assert_eq!(
        titles[0],
        [
            "1MB: goodput by split",
            "1MB: ratio to direct by split",
            "100MB: goodput by split",
            "100MB: ratio to direct by split"
        ]
    );
    assert_eq!([titles[1].len(), titles[2].len()], [6, 6], "the number of charts is limited");
    assert!(titles[1].contains(&"100MB, 25-25: throughput over time".to_owned()), "{:?}", titles[1]);
    assert!(titles[2].contains(&"100MB, 25-25: time to the first byte by treatment".to_owned()), "{:?}", titles[2]);
    assert_eq!(titles[3][0], "wan, client → server: lateness of packets, 336 runs");
    let mut all: Vec<&String> = titles.iter().flatten().collect();
    all.sort();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "no two charts have the same title");
}

#[test]
fn factor_with_a_single_level_is_no_axis() {
    let titles = titles(&fixture::single());
    assert_eq!(titles[0], ["25-25: goodput by treatment"]);
    assert_eq!(titles[1], ["25-25: throughput over time"]);
    assert!(self::titles(&fixture::without_runs()).is_empty(), "nothing to draw");
}

#[test]
fn published_figures_are_hollow_marks_at_their_cells() {
    let page = render_html(&fixture::full());
    assert_eq!(page.matches("mark hollow").count(), 2);
    assert_eq!(page.matches("<title>squid, 25-25: 1.74 × direct, published by Maki 2008").count(), 1);
    assert_eq!(page.matches("<title>dante, 40-10: 1.50 × direct, published by Maki 2008").count(), 1);
}

#[test]
fn failed_check_or_no_valid_run_is_reported_as_invalid() {
    let last = |results: &Results| render_terminal(results, 200).lines().last().unwrap().to_owned();
    let mut results = fixture::single();
    assert_eq!(last(&results), "4 expectations: 2 met, 1 missed, 1 unknown");
    results.outcomes.truncate(1);
    assert_eq!(last(&results), "1 expectation: 1 met, 0 missed");
    results.outcomes.clear();
    assert_eq!(last(&results), "no expectations, 42 runs");
    for run in &mut results.runs {
        run.invalid = Some("squid did not start".to_owned());
    }
    assert_eq!(last(&results), "run invalid: none of 42 runs is valid, the first because: squid did not start");
    results.checks[1].pass = false;
    assert_eq!(last(&results), "run invalid: 1 of 3 link checks failed, first rate of wan");
    assert!(render_html(&results).contains("<strong>Run invalid</strong>: 1 of 3 link checks failed"));
    assert_eq!(last(&fixture::without_runs()), "run invalid: there are no runs");
}

#[test]
fn equal_warnings_are_merged_with_a_run_count() {
    let mut results = fixture::single();
    results.runs[7].warnings = results.runs[5].warnings.clone();
    let warnings = ReportView::new(&results).warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(warnings[1], "curl waited 210 ms for a name; put it into hosts. (2 of 42 runs)");
}

#[test]
fn terminal_report_has_aligned_columns() {
    let expected = "\
split-position: Where on a long path does one relay help most, and by how much?

split  Treatment    Median (MB/s)      95 % CI  × direct                   95 % CI  n  Invalid
25-25  direct                3.15  2.99 – 3.18         –                         –  6        1
25-25  dante                 5.38  5.09 – 5.73      1.79               1.62 – 1.91  7        0
25-25  squid                 5.50  5.42 – 6.08      1.84               1.72 – 2.02  7        0
25-25  haproxy               5.90  5.81 – 6.20      1.96               1.83 – 1.96  7        0
25-25  ekiden                7.15  6.44 – 7.25      2.26               2.06 – 2.42  7        0
25-25  ekiden-pair           8.35  7.50 – 8.42      2.79  2.38 – 2.80 (range of 5)  6        1

warning: The default congestion control of this machine is bbr; hosts were pinned to cubic. Say
  `congestion = \"bbr\"` to measure it.
warning: curl waited 210 ms for a name; put it into hosts. (1 of 42 runs)

MISSED   dante, 1MB, 40-10: at least 1.5 × direct; published 1.50 × direct; ours 1.31 × direct (1.28
         – 1.37); the published path had a larger window
unknown  vsftpd, 1MB, 5-45: within 10 %
met      squid, 100MB, 25-25: at least 1.74 × direct; published 1.74 × direct; ours 1.81 × direct
         (1.28 – 1.37)
met      ekiden, 100MB, 25-25: at least squid; ours 2.20 × direct (1.28 – 1.37)

4 expectations: 2 met, 1 missed, 1 unknown
";
    assert_eq!(render_terminal(&fixture::single(), 100), expected);
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    for width in [60, 80, 100, 132] {
        for results in all() {
            let text = render_terminal(&results, width);
            let (body, _last) = text.trim_end().rsplit_once('\n').unwrap();
            let longest = body.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{longest:?} of {width}:\n{text}");
            assert!(!body.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        }
    }
}

#[test]
fn all_three_files_are_written() {
    let folder = crate::temp_dir::TempDir::for_test();
    let dir = folder.path().join("new");
    let results = fixture::full();
    let page = write(&results, &dir).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(page, dir.join("report.html"));
    assert_eq!(read("report.html"), render_html(&results));
    assert_eq!(read("report.md"), render_markdown(&results));
    let back: Results = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!((back.manifest, back.runs.len()), (results.manifest.clone(), results.runs.len()));
}

/// Results with packet logs of two links in the runs of two treatments, at one combination of levels.
fn with_sequences() -> Results {
    let mut results = fixture::single();
    for run in results.runs.iter_mut().filter(|run| ["direct", "ekiden"].contains(&run.treatment.as_str())) {
        let sequence = |link: &str, sent_again: u64| SequencePlot {
            link: link.into(),
            from: "left".into(),
            to: "right".into(),
            packets: 1000,
            sent_again,
            dropped: 2,
            line: vec![(0.0, 1000), (1.0, 10_000_000), (2.5, 20_000_000)],
            again_at: (0..sent_again).map(|number| (number as f64, 1_000_000)).collect(),
            dropped_at: vec![(0.5, 2_000_000), (0.6, 3_000_000)],
            is_cut: link == "long",
        };
        run.sequences = vec![sequence("access", 0), sequence("long", 3)];
    }
    results
}

#[test]
fn each_logged_treatment_has_a_sequence_chart_of_both_links() {
    let results = with_sequences();
    let titles = titles(&results);
    let drawn = titles.iter().find(|figure| figure[0].contains("sent again")).unwrap();
    assert_eq!(
        *drawn,
        ["25-25, direct: 2.50 s, sent again: upper 0, lower 3", "25-25, ekiden: 2.50 s, sent again: upper 0, lower 3"]
    );
    let page = render_html(&results);
    assert!(page.contains("upper: access") && page.contains("lower: long"));
    assert_eq!(page.matches("<title>sent again on long (lower)</title>").count(), 2 * 3);
    assert_eq!(page.matches("<title>dropped on access (upper)</title>").count(), 2 * 2);
    assert!(
        page.contains("long, left to right: 1,000 packets, 3 sent again, 2 dropped. The log was full before the end.")
    );
    assert!(!render_html(&fixture::single()).contains("Sequence numbers"), "there is no packet log");
}
