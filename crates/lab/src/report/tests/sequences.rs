//! Pictures of sequence numbers.

use crate::experiment::results::Results;
use crate::experiment::sequence::SequencePlot;
use crate::report::render_html;
use crate::report::tests::{fixture, titles};

/// Logs of two links in the runs of two treatments at one combination of levels.
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
fn each_treatment_with_a_log_has_a_picture_with_both_links_and_their_marks() {
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
    assert!(!render_html(&fixture::single()).contains("Sequence numbers"), "nobody asked for a log");
}
