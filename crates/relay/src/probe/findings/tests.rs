use std::sync::Arc;

use super::*;
use crate::config::{Hop, HopKind, Path};

fn download(curve: &[(u64, u64)], whole: bool) -> Download {
    let curve = curve.iter().map(|(bytes, ms)| (*bytes, Duration::from_millis(*ms))).collect();
    Download { first_byte: Duration::from_millis(100), progress: curve, is_complete: whole, ..Download::default() }
}

#[test]
fn a_download_tells_times_and_rate() {
    let half = 512 << 10;
    let download = download(&[(0, 100), (half, 1100), (2 * half, 1600)], false);
    assert_eq!(download.second_half(), Some((half, Duration::from_millis(500))));
    assert_eq!(download.time_at(half / 2), Some(Duration::from_millis(600)));
    let later = download.completion_time(4 * half, Some(2.0 * half as f64)).unwrap();
    assert!(later.is_extrapolated && later.time == Duration::from_millis(2600), "{later:?}");
}

#[test]
fn a_small_file_has_no_rate_and_is_not_continued() {
    let small = download(&[(20_000, 150)], true);
    assert_eq!((small.second_half(), small.completion_time(100_000, Some(1e6))), (None, None));
    assert!(small.completion_time(10_000, None).is_some_and(|time| !time.is_extrapolated));
}

fn findings(hops: usize, curves: &[&[(u64, u64)]]) -> CandidateFindings {
    let hop = Arc::new(Hop {
        name: "osaka".into(),
        kind: HopKind::Socks5(None),
        address: "127.0.0.1:1".parse().unwrap(),
        profile: Arc::default(),
    });
    let path = Path { name: if hops == 0 { "direct".into() } else { "osaka".into() }, hops: vec![hop; hops] };
    let mut findings = CandidateFindings::new(PathChoice {
        path: Arc::new(path),
        beyond: Vec::new(),
        profile: Arc::default(),
        expected: None,
    });
    findings.connections.push(ConnectResult {
        setup: Duration::from_millis(50),
        sections: vec![Duration::from_millis(50)],
        segments: 1,
        retransmitted: 0,
    });
    findings.downloads = curves.iter().map(|curve| download(curve, false)).collect();
    findings
}

fn verdict_of(direct: &[(u64, u64)], relayed: &[(u64, u64)]) -> String {
    let wanted = "http://server.example/file".parse().unwrap();
    let mut relayed = findings(1, &[relayed]);
    relayed.downloads[0].first_byte += Duration::from_millis(12);
    crate::probe::verdict::verdict_text(&ProbeReport {
        target: wanted,
        findings: vec![findings(0, &[direct]), relayed],
    })
}

#[test]
fn the_verdict_is_in_plain_words() {
    let (mib, fast) = (1 << 20, [(10_000, 112), (100_000, 120), (1 << 20, 400), (16 << 20, 3900)]);
    let slow = [(10_000, 100), (100_000, 121), (mib, 800), (16 * mib, 7800)];
    assert_eq!(
        verdict_of(&slow, &fast),
        "via osaka is 2.00 times as fast as direct for files of 1MiB and more; small pages are 12 ms slower."
    );
    assert!(verdict_of(&fast, &slow).starts_with("Direct is the best: via osaka, the best of the others, takes 2"));
    let same = verdict_of(&fast, &fast);
    assert!(same.starts_with("Direct is as good as any: via osaka is as fast for large files; small"), "{same}");
}

#[test]
fn a_slow_download_counts_for_as_long_as_it_took() {
    let (mib, ms) = (1 << 20, 1000);
    let both = findings(0, &[&[(mib, ms), (2 * mib, 2 * ms)], &[(mib, ms), (2 * mib, 4 * ms)]]);
    assert_eq!(both.rate(), Some(2.0 * mib as f64 / 4.0));
    assert!((both.spread() - 3.0).abs() < 1e-9, "{}", both.spread());
}

/// As a download that goes on at so many MB/s, once its first byte has come.
fn at_speed(speed: f64) -> Vec<(u64, u64)> {
    [10_000, 100_000, 1 << 20, 16 << 20].map(|bytes: u64| (bytes, 100 + (bytes as f64 / speed / 1e3) as u64)).to_vec()
}

fn report(findings: Vec<CandidateFindings>) -> ProbeReport {
    ProbeReport { target: "http://server.example/file".parse().unwrap(), findings }
}

fn named(name: &str, curves: &[&[(u64, u64)]]) -> CandidateFindings {
    let mut findings = findings(1, curves);
    let path = Path { name: name.into(), hops: findings.path_choice.path.hops.clone() };
    findings.path_choice.path = Arc::new(path);
    findings
}

fn failed(mut findings: CandidateFindings, failure: &str) -> CandidateFindings {
    (findings.connections, findings.downloads) = (Vec::new(), Vec::new());
    findings.record_failure(failure.to_owned());
    findings
}

fn words(findings: Vec<CandidateFindings>) -> String {
    crate::probe::verdict::verdict_text(&report(findings))
}

#[test]
fn the_best_of_several_is_compared() {
    let (slow, fast) = (at_speed(2.0), at_speed(8.0));
    let text = words(vec![findings(0, &[&slow]), named("a", &[&at_speed(4.0)]), named("b", &[&fast])]);
    assert!(
        text.starts_with("via b is ") && text.ends_with(" times as fast as direct for files of 100kB and more."),
        "{text}"
    );
}

#[test]
fn what_is_the_weather_is_no_difference() {
    let (one, other) = (at_speed(8.0), at_speed(8.2));
    let text = words(vec![findings(0, &[&one]), findings(1, &[&other])]);
    assert_eq!(text, "Direct is as good as any: via osaka is as fast for large files.");
    let mut sooner = findings(1, &[&one]);
    sooner.downloads[0].first_byte -= Duration::from_millis(30);
    let text = words(vec![findings(0, &[&one]), sooner]);
    assert!(text.ends_with("; small pages are 30 ms faster."), "{text}");
    let (even, uneven) = (at_speed(8.0), at_speed(4.0));
    let text = words(vec![findings(0, &[&even, &uneven]), findings(1, &[&even, &even])]);
    assert!(text.contains(" But downloads by the same way differ by 2"), "{text}");
}

#[test]
fn a_relay_may_be_faster_for_middle_sizes_only() {
    let (mib, end) = (1 << 20, (8 << 20, 2300));
    let direct = [(10_000, 110), (100_000, 200), (mib, 800), end];
    let relayed = [(10_000, 110), (100_000, 150), (mib, 400), end];
    let text = words(vec![findings(0, &[&direct]), findings(1, &[&relayed])]);
    assert!(
        text.starts_with("via osaka is 2.00 times as fast as direct for files of 1MiB, and as fast for larger"),
        "{text}"
    );
}

#[test]
fn small_files_tell_of_first_bytes() {
    let mut late = named("late", &[&[(9_000, 120)]]);
    late.downloads[0].first_byte += Duration::from_millis(50);
    let small = [(9_000_u64, 101_u64)];
    let text = words(vec![findings(0, &[&small]), late, named("soon", &[&small])]);
    assert_eq!(text, "Too little was downloaded to compare rates; first bytes are as fast either way via soon.");
}

#[test]
fn ways_that_do_not_work_are_said_not_to() {
    let works = || at_speed(8.0);
    let refused = |findings: CandidateFindings| failed(findings, "the target refuses");
    let text = words(vec![refused(findings(0, &[])), findings(1, &[&works()])]);
    assert_eq!(text, "Direct does not work: the target refuses. Via osaka does.");
    assert_eq!(words(vec![refused(findings(0, &[])), refused(findings(1, &[]))]), "No way leads there.");
    assert_eq!(words(vec![findings(0, &[&works()]), refused(findings(1, &[]))]), "Direct is the only way that works.");
    assert!(words(vec![findings(0, &[&works()])]).starts_with("There is only direct: name relays"));
    let mut untried = findings(0, &[]);
    untried.connections.clear();
    let table = crate::probe::table::table(&report(vec![untried, {
        let mut twice = findings(1, &[&works()]);
        twice.record_failure("one".to_owned());
        twice.record_failure("the server did not answer".to_owned());
        twice
    }]));
    assert!(
        table.contains("direct              not tried yet") && table.contains("2 failed: the server did"),
        "{table}"
    );
}

fn connected(setup: u64, sections: &[u64], (segments, retransmitted): (u32, u32)) -> ConnectResult {
    let ms = Duration::from_millis;
    ConnectResult { setup: ms(setup), sections: sections.iter().map(|rtt| ms(*rtt)).collect(), segments, retransmitted }
}

/// Without hops between, a connection is made first: nothing comes before two round trips.
#[test]
fn a_prediction_is_made_from_round_trips_and_buffers() {
    let predicted = |hops, connections: &[ConnectResult], window: u64| {
        let mut findings = findings(hops, &[]);
        findings.connections = connections.to_vec();
        findings.predict(Some(window));
        findings.prediction.unwrap()
    };
    let of = |loss| [connected(50, &[50], loss)];
    let direct = predicted(0, &of((2, 0)), 4 << 20);
    assert!((100..200).contains(&direct.completion_times[0].as_millis()), "{direct:?}");
    assert_eq!(direct, predicted(0, &of((2, 1)), 64 << 20), "nothing is known of loss, and the sender has its bound");
    assert!(predicted(0, &of((1000, 20)), 4 << 20).rate < direct.rate / 2.0);
    let both = predicted(1, &[connected(60, &[5, 50], (2, 0))], 64 << 10);
    let window_over = |rtt: f64| f64::from(64 << 10) / rtt;
    assert!(both.rate > window_over(0.05) * 2.0, "ours is the window of the nearest section: {both:?}");

    let mut two = findings(0, &[]);
    two.predict(Some(4 << 20));
    let mut wanted = report(vec![two, named("b", &[])]);
    wanted.target = "server.example:443".parse().unwrap();
    wanted.predict(Some(4 << 20));
    assert!(crate::probe::verdict::verdict_text(&wanted).starts_with("Predicted, not measured: "));
}

#[test]
fn of_several_connections_the_fastest_and_the_middle_one_tell() {
    let mut findings = findings(0, &[]);
    findings.connections =
        [(90, 90), (50, 45), (60, 55)].map(|(setup, rtt)| connected(setup, &[rtt], (10, 1))).to_vec();
    assert_eq!(findings.sections(), [Duration::from_millis(45)]);
    assert_eq!(findings.setup(), Some(Duration::from_millis(60)));
    assert_eq!(findings.loss(), Some(LossCount { missing: 3, segments: 30 }));
    findings.downloads = vec![Download { segments: 1000, gaps: 7, ..download(&[(1 << 20, 500)], false) }];
    assert_eq!(
        findings.loss(),
        Some(LossCount { missing: 7, segments: 1000 }),
        "what came says more than what was sent"
    );
    assert_eq!(
        findings.completion_times().iter().map(|time| time.unwrap().is_extrapolated).collect::<Vec<_>>(),
        [false, false, false, true]
    );
}
