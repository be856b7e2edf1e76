//! Synthetic results with all cases that a report must handle.

use std::collections::BTreeMap;

use crate::experiment::collect::results::{
    CellSummary, CheckRow, ExpectationOutcome, ExpectationVerdict, Manifest, Metric, Results, Run, Summary,
};
use crate::report::view::Levels;
use ekiden_emulator::lateness::LatenessHistogram;
use ekiden_emulator::ledger::{DirectionReport, DropCause};

const TREATMENTS: [&str; 6] = ["direct", "dante", "squid", "haproxy", "ekiden", "ekiden-pair"];
const GAIN: [f64; 6] = [1.0, 1.45, 1.52, 1.6, 1.83, 2.1];
const SPLITS: [&str; 4] = ["5-45", "10-40", "25-25", "40-10"];

/// Two factors, six treatments, seven blocks; every 23rd run is invalid, and every 11th has no first byte.
pub fn full() -> Results {
    let factors = [("size", vec!["1MB", "100MB"]), ("split", SPLITS.to_vec())];
    results(&factors, 7)
}

/// One factor with one level, so that only the treatment varies.
pub fn single() -> Results {
    results(&[("split", vec!["25-25"])], 7)
}

/// An experiment without runs.
pub fn without_runs() -> Results {
    Results { runs: Vec::new(), cells: Vec::new(), outcomes: Vec::new(), ..single() }
}

fn results(factors: &[(&str, Vec<&str>)], blocks: u32) -> Results {
    let mut runs = Vec::new();
    for block in 0..blocks {
        for levels in combinations(factors) {
            for treatment in TREATMENTS {
                runs.push(run(block, u32::try_from(runs.len()).unwrap(), &levels, treatment));
            }
        }
    }
    let cells = combinations(factors).iter().flat_map(|levels| cells(&runs, levels)).collect();
    let checks = vec![
        check("wan", "fixed delay", "one-way error, p99 ≤ 250 µs", "31.0 µs", true),
        check("wan", "rate", "bytes over 10 s, ± 0.5 %", "99.93 Mbit/s", true),
        check("lan", "hidden loss", "packets, = 0", "0 packets", true),
    ];
    let warnings = vec![
        "The default congestion control of this machine is bbr; hosts were pinned to cubic. Say `congestion = \"bbr\"` to \
         measure it."
            .to_owned(),
    ];
    Results {
        manifest: manifest(factors, blocks),
        runs,
        checks,
        cells,
        outcomes: outcomes(),
        warnings,
        ..Results::default()
    }
}

fn combinations(factors: &[(&str, Vec<&str>)]) -> Vec<Levels> {
    let Some(((name, levels), rest)) = factors.split_first() else { return vec![Levels::new()] };
    let with = |level: &&str| {
        let mut all = combinations(rest);
        all.iter_mut().for_each(|levels| drop(levels.insert((*name).to_owned(), (*level).to_owned())));
        all
    };
    levels.iter().flat_map(with).collect()
}

fn run(block: u32, order: u32, levels: &Levels, treatment: &str) -> Run {
    let style = TREATMENTS.iter().position(|name| *name == treatment).unwrap();
    let place = SPLITS.iter().position(|split| *split == levels["split"]).unwrap();
    let large = levels.get("size").is_none_or(|size| size == "100MB");
    // Deterministic noise: the middle bits of a product.
    let noise = f64::from((order.wrapping_mul(2_654_435_761) >> 12) % 1000) / 1000.0 - 0.5;
    let split = if style == 0 { 1.0 } else { [0.85, 1.0, 1.22, 0.95][place] };
    let speed = if large { 3.1 } else { 1.3 } * GAIN[style] * split * (1.0 + noise * 0.16);
    let bytes: u64 = if large { 100_000_000 } else { 1_000_000 };
    let seconds = bytes as f64 / 1e6 / speed;
    let mut metrics = BTreeMap::from([("mb_s".to_owned(), speed), ("seconds".to_owned(), seconds)]);
    if !order.is_multiple_of(11) {
        metrics.insert("first_byte_ms".to_owned(), 102.0 + 9.0 * style as f64 + 14.0 * noise);
    }
    let curve =
        |step: u32| (seconds * f64::from(step) / 100.0, (bytes as f64 * (f64::from(step) / 100.0).powf(1.35)) as u64);
    Run {
        block,
        order,
        levels: levels.clone(),
        treatment: treatment.to_owned(),
        metrics,
        invalid: order.is_multiple_of(23).then(|| "link wan was 3.10 ms late at p99.9, more than 1 ms".to_owned()),
        warnings: if order == 5 {
            vec!["curl waited 210 ms for a name; put it into hosts.".to_owned()]
        } else {
            Vec::new()
        },
        groups: Vec::new(),
        sessions: Vec::new(),
        links: vec![direction("wan", "client", "server", order), direction("wan", "server", "client", order + 1)],
        sequences: Vec::new(),
        timeline: (0..=100).map(curve).collect(),
        cpu_busy: 0.3 + 0.2 * noise,
        took: seconds + 1.0,
        started: "2026-01-02T03:04:05Z".to_owned(),
    }
}

fn direction(link: &str, from: &str, to: &str, seed: u32) -> DirectionReport {
    let bounds: Vec<u64> = (8..26).map(|power| 1 << power).chain([u64::MAX]).collect();
    let shape =
        |bucket: usize| (40_000.0 * (-(bucket as f64 - 6.0).powi(2) / 5.0).exp()) as u64 + u64::from(bucket < 13);
    let counts: Vec<u64> = (0..bounds.len()).map(shape).collect();
    DirectionReport {
        link: link.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        exact: true,
        packets_out: counts.iter().sum(),
        dropped: BTreeMap::from([(DropCause::Full, u64::from(seed % 7)), (DropCause::WireLoss, 3)]),
        lateness: LatenessHistogram { bounds, counts, max: 900_000 + u64::from(seed) * 100 },
        ..DirectionReport::default()
    }
}

fn cells(runs: &[Run], levels: &Levels) -> Vec<CellSummary> {
    let of = |treatment: &str| {
        let all = runs.iter().filter(|run| run.levels == *levels && run.treatment == treatment);
        all.partition::<Vec<&Run>, _>(|run| run.invalid.is_none())
    };
    let (direct, _) = of("direct");
    TREATMENTS
        .map(|treatment| {
            let (valid, invalid) = of(treatment);
            let speeds = valid.iter().map(|run| run.metrics["mb_s"]).collect();
            let pairs = valid.iter().filter_map(|run| {
                direct
                    .iter()
                    .find(|other| other.block == run.block)
                    .map(|other| run.metrics["mb_s"] / other.metrics["mb_s"])
            });
            let ratio = (treatment != "direct").then(|| summary(pairs.collect()));
            let (summary, invalid) = (summary(speeds), u32::try_from(invalid.len()).unwrap());
            CellSummary { levels: levels.clone(), treatment: treatment.to_owned(), summary, ratio, invalid }
        })
        .into()
}

fn summary(mut values: Vec<f64>) -> Summary {
    values.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else { return Summary::default() };
    let confidence = 1.0 - 2.0 * 0.5_f64.powi(i32::try_from(values.len()).unwrap());
    let n = u32::try_from(values.len()).unwrap();
    Summary { n, median: values[values.len() / 2], low: min, high: max, min, max, confidence }
}

fn check(link: &str, property: &str, wanted: &str, measured: &str, pass: bool) -> CheckRow {
    CheckRow {
        link: link.to_owned(),
        direction: "client → server".to_owned(),
        property: property.to_owned(),
        wanted: wanted.to_owned(),
        measured: measured.to_owned(),
        pass,
    }
}

fn outcomes() -> Vec<ExpectationOutcome> {
    vec![
        outcome(
            "squid, 100MB, 25-25: at least 1.74 × direct",
            Some("1.74 × direct"),
            "1.81 × direct",
            ExpectationVerdict::Met,
        ),
        outcome("ekiden, 100MB, 25-25: at least squid", None, "2.20 × direct", ExpectationVerdict::Met),
        outcome(
            "dante, 1MB, 40-10: at least 1.5 × direct",
            Some("1.50 × direct"),
            "1.31 × direct",
            ExpectationVerdict::Missed,
        ),
        ExpectationOutcome {
            ours: None,
            interval: None,
            ..outcome("vsftpd, 1MB, 5-45: within 10 %", None, "", ExpectationVerdict::Unknown)
        },
    ]
}

fn outcome(expected: &str, published: Option<&str>, ours: &str, verdict: ExpectationVerdict) -> ExpectationOutcome {
    ExpectationOutcome {
        expected: expected.to_owned(),
        source: if published.is_some() { "Maki 2008, table 2, https://example.org/paper" } else { "our own bar" }
            .to_owned(),
        published: published.map(str::to_owned),
        ours: Some(ours.to_owned()),
        interval: Some("1.28 – 1.37".to_owned()),
        verdict,
        remark: (verdict == ExpectationVerdict::Missed).then(|| "the published path had a larger window".to_owned()),
    }
}

fn manifest(factors: &[(&str, Vec<&str>)], blocks: u32) -> Manifest {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let owned = |levels: &Vec<&str>| levels.iter().map(|level| (*level).to_owned()).collect();
    Manifest {
        name: "split-position".to_owned(),
        title: "Where on a long path does one relay help most, and by how much?".to_owned(),
        source: Some("Maki 2008, table 2".to_owned()),
        size: "full".to_owned(),
        file: "name = \"split-position\"\n[links.wan]\ndelay = \"25ms\"\n".to_owned(),
        digest: "5f2c8d".to_owned(),
        seed: 42,
        blocks,
        factors: factors.iter().map(|(name, levels)| ((*name).to_owned(), owned(levels))).collect(),
        treatments: TREATMENTS.map(str::to_owned).into(),
        metric: Metric { key: "mb_s".to_owned(), unit: "MB/s".to_owned(), higher_is_better: true },
        map: None,
        started: "2026-01-02T03:04:05Z".to_owned(),
        machine: vec![pair("kernel", "Linux 6.18.0"), pair("cores", "2"), pair("memory", "8 GiB")],
        programs: vec![pair("squid", "5.7"), pair("haproxy", "2.6.12"), pair("curl", "7.88.1")],
        settings: vec![pair("net.ipv4.tcp_rmem", "4096 131072 6291456"), pair("congestion control", "cubic")],
    }
}
