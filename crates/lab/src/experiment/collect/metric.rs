//! The metrics of a run: their keys and units, and their calculation from transfers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::results::Metric;
use super::{choices, links, named, visits};
use crate::experiment::judge::regret;
use crate::experiment::run::transfer::{FlowStats, Transfer};
use crate::stats::{self, jain};

const METRICS: [(&str, &str, bool); 30] = [
    ("mb_s", "MB/s", true),
    ("mbit_s", "Mbit/s", true),
    ("steady_mb_s", "MB/s", true),
    ("steady_mbit_s", "Mbit/s", true),
    ("seconds", "s", false),
    (FIRST_BYTE, "ms", false),
    (COMPLETION, "ms", false),
    (COMPLETION_P95, "ms", false),
    ("completion_s", "s", false),
    ("write_s", "s", false),
    ("write_mbit_s", "Mbit/s", true),
    ("block_ms", "ms", false),
    ("block_p99_ms", "ms", false),
    (RATIO, "", true),
    (JAIN, "", true),
    ("stalled", "", false),
    ("queueing_ms", "ms", false),
    ("queueing_p95_ms", "ms", false),
    ("queueing_p99_ms", "ms", false),
    ("window_packets", "packets", true),
    ("retransmits", "packets", false),
    (PREDICTED, "ms", false),
    (PREDICTION_ERROR, "", false),
    (regret::REGRET, "", false),
    (regret::OVER_DIRECT, "", true),
    (choices::TIME_TO_LEAVE, "s", false),
    (choices::PATH_CHANGES, "", false),
    (choices::COMPLETION_AFTER_CHANGE, "ms", false),
    (choices::FAILED_SHARE, "", false),
    (named::LIMIT_NAMED, "", true),
];

/// The key of the time to the first byte, which has an arithmetic [floor](crate::experiment::judge::floor).
pub const FIRST_BYTE: &str = "first_byte_ms";

/// The key of the ratio of the rates of two groups.
pub const RATIO: &str = "ratio";
/// The key of Jain's fairness index.
pub const JAIN: &str = "jain";
/// The key of the time to the last byte, in milliseconds.
pub const COMPLETION: &str = "completion_ms";
/// The key of the 95th percentile of times to the last byte, in milliseconds.
pub const COMPLETION_P95: &str = "completion_p95_ms";
/// The key of the completion time that the path model [predicts](crate::experiment::judge::predict), in milliseconds.
pub const PREDICTED: &str = "predicted_ms";
/// The key of the relative error of a prediction.
pub const PREDICTION_ERROR: &str = "prediction_error";

/// The prefix of keys for the mean rate of a group's connections, in Mbit/s.
pub const GROUP_PREFIX: &str = "mbit_s.";

/// The prefix of keys for the CPU use of the programs on a host, in percent of a processor.
pub const CPU_PREFIX: &str = "cpu.";

/// Returns the metric with this key.
///
/// # Errors
/// There is no such metric; the text lists the metrics.
pub fn by_name(key: &str) -> Result<Metric, String> {
    if key.strip_prefix(GROUP_PREFIX).is_some_and(|group| !group.is_empty()) {
        return Ok(Metric { key: key.into(), unit: "Mbit/s".into(), higher_is_better: true });
    }
    if key.strip_prefix(CPU_PREFIX).is_some_and(|host| !host.is_empty()) {
        return Ok(Metric { key: key.into(), unit: "% of a processor".into(), higher_is_better: false });
    }
    if key.strip_prefix(links::RATE_PREFIX).is_some_and(|link| !link.is_empty()) {
        return Ok(Metric { key: key.into(), unit: "Mbit/s".into(), higher_is_better: true });
    }
    if let Some(metric) = visits::metric_by_name(key) {
        return Ok(metric);
    }
    let known = METRICS.iter().find(|(name, ..)| *name == key);
    let (_, unit, higher_is_better) = known.ok_or_else(|| {
        let names = METRICS.map(|(name, ..)| name).join(", ");
        let visits = visits::PREFIXES.map(|(prefix, _)| format!("{prefix}VISIT")).join(", ");
        format!(
            "there is no metric {key:?}; metrics are {names}, {GROUP_PREFIX}GROUP, {CPU_PREFIX}HOST, {}LINK, {visits}",
            links::RATE_PREFIX
        )
    })?;
    Ok(Metric { key: key.into(), unit: (*unit).into(), higher_is_better: *higher_is_better })
}

/// Returns whether values on one side of another value are better than that value. Of the ratio of two groups they are
/// not: the best ratio is 1.
#[must_use]
pub fn has_better_side(metric: &Metric) -> bool {
    metric.key != RATIO
}

/// Returns which values of the metric are better, in words.
#[must_use]
pub fn best_description(metric: &Metric) -> &'static str {
    match metric.key.as_str() {
        RATIO | JAIN => "1 is best",
        _ if metric.higher_is_better => "more is better",
        _ => "less is better",
    }
}

/// Converts a rate in bytes per second to the unit of a metric; `None` if the metric is not a rate.
#[must_use]
pub fn rate_in_metric(key: &str, bytes_per_second: f64) -> Option<f64> {
    match key {
        "mb_s" | "steady_mb_s" => Some(bytes_per_second / 1e6),
        "mbit_s" | "steady_mbit_s" => Some(bytes_per_second * 8.0 / 1e6),
        _ => None,
    }
}

/// Returns the metrics of a run with these transfers. Rates include the whole duration of each transfer, from the start
/// to the last byte; 1 MB is 10^6 bytes. Times of a single transfer are medians over all transfers, so that one
/// disturbed transfer has no additional weight.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
pub fn transfer_metrics(transfers: &[Transfer]) -> BTreeMap<String, f64> {
    let count = transfers.len().max(1) as f64;
    let seconds: f64 = transfers.iter().map(|transfer| transfer.seconds).sum();
    let median = |values: Vec<f64>| stats::summarise(&values).median;
    let first_bytes: Vec<f64> = transfers.iter().filter_map(|transfer| transfer.first_byte).collect();
    let steady: f64 = transfers.iter().map(|transfer| steady_rate(&transfer.timeline)).sum::<f64>() / count;
    let bytes = transfers.iter().map(|transfer| transfer.bytes).sum::<u64>() as f64;
    let rate = if seconds > 0.0 { bytes / seconds } else { 0.0 };
    let figures = [
        ("mb_s", rate / 1e6),
        ("mbit_s", rate * 8.0 / 1e6),
        ("steady_mb_s", steady / 1e6),
        ("steady_mbit_s", steady * 8.0 / 1e6),
        ("seconds", seconds),
        (COMPLETION, median(transfers.iter().map(|transfer| transfer.seconds).collect()) * 1e3),
        ("bytes", bytes),
    ];
    // The first byte of a stream is not measured.
    let first_byte = (!first_bytes.is_empty()).then(|| (FIRST_BYTE, median(first_bytes) * 1e3));
    let all = figures.into_iter().chain(first_byte).chain(block_metrics(transfers)).chain(flow_metrics(transfers));
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the CPU use of the programs on each host in percent of one processor; several processors give more than
/// 100 %. `before` and `now` are two readings of their CPU times, and `elapsed` is the time between these. Writers on
/// `client` have ended before the second reading, so their CPU time comes from their reports.
#[must_use]
pub fn cpu_metrics(
    before: &BTreeMap<String, f64>,
    now: &BTreeMap<String, f64>,
    client: &str,
    transfers: &[Transfer],
    elapsed: Duration,
) -> BTreeMap<String, f64> {
    let writers: f64 =
        transfers.iter().filter_map(|transfer| transfer.block_stats.as_ref()).map(|blocks| blocks.cpu_s).sum();
    let share = |(host, now): (&String, &f64)| {
        let ended = if host == client { writers } else { 0.0 };
        let used = now - before.get(host).copied().unwrap_or_default() + ended;
        (format!("{CPU_PREFIX}{host}"), 100.0 * used / elapsed.as_secs_f64())
    };
    now.iter().map(share).filter(|(_, share)| share.is_finite()).collect()
}

/// Returns further metrics of transfers in blocks.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn block_metrics(transfers: &[Transfer]) -> Vec<(&'static str, f64)> {
    let blocks: Vec<_> = transfers.iter().filter_map(|transfer| transfer.block_stats.as_ref()).collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let median = |values: Vec<f64>| stats::summarise(&values).median;
    let write: f64 = blocks.iter().map(|blocks| blocks.write_s).sum();
    let bits = transfers.iter().map(|transfer| transfer.bytes).sum::<u64>() as f64 * 8.0;
    let mut figures = vec![
        ("completion_s", median(transfers.iter().map(|transfer| transfer.seconds).collect())),
        ("write_s", median(blocks.iter().map(|blocks| blocks.write_s).collect())),
        ("write_mbit_s", if write > 0.0 { bits / write / 1e6 } else { 0.0 }),
    ];
    let mut delays: Vec<f64> = blocks.iter().flat_map(|blocks| &blocks.block_delays).map(|delay| delay * 1e3).collect();
    delays.sort_by(f64::total_cmp);
    if !delays.is_empty() {
        figures.extend([("block_ms", stats::quantile(&delays, 0.5)), ("block_p99_ms", stats::quantile(&delays, 0.99))]);
    }
    figures
}

/// Returns further metrics of concurrent flows. Their completion times are those of the short flows.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53, and of flows")]
fn flow_metrics(transfers: &[Transfer]) -> Vec<(&'static str, f64)> {
    let flows: Vec<&FlowStats> = transfers.iter().filter_map(|transfer| transfer.flow_stats.as_ref()).collect();
    let rates: Vec<f64> = flows.iter().flat_map(|flows| &flows.bytes).map(|bytes| *bytes as f64).collect();
    if rates.is_empty() {
        return Vec::new();
    }
    let stalled_share = rates.iter().filter(|rate| **rate <= 0.0).count() as f64 / rates.len() as f64;
    let mut took: Vec<f64> = flows.iter().flat_map(|flows| &flows.completions).map(|took| took * 1e3).collect();
    took.sort_by(f64::total_cmp);
    let completions = if took.is_empty() {
        Vec::new()
    } else {
        vec![(COMPLETION, stats::quantile(&took, 0.5)), (COMPLETION_P95, stats::quantile(&took, 0.95))]
    };
    [("stalled", stalled_share)].into_iter().chain(jain(&rates).map(|jain| (JAIN, jain))).chain(completions).collect()
}

/// Returns the mean rate in the second half of the time, in bytes per second.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn steady_rate(timeline: &[(f64, u64)]) -> f64 {
    let Some(&(end, all)) = timeline.last() else { return 0.0 };
    let (from, before) = timeline.iter().copied().find(|(at, _)| *at >= end / 2.0).unwrap_or((end, all));
    if end > from { (all - before) as f64 / (end - from) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::fairness;
    use crate::experiment::run::transfer::BlockWriteStats;

    #[test]
    fn start_up_counts_in_mb_s_but_not_in_steady_mb_s() {
        let timeline = vec![(1.0, 0), (2.0, 1_000_000), (4.0, 9_000_000)];
        let transfer =
            Transfer { seconds: 4.0, first_byte: Some(0.5), bytes: 9_000_000, timeline, ..Transfer::default() };
        let figures = transfer_metrics(&[transfer]);
        assert!((figures["mb_s"] - 2.25).abs() < 1e-9 && (figures["mbit_s"] - 18.0).abs() < 1e-9);
        assert!((figures["steady_mb_s"] - 4.0).abs() < 1e-9 && (figures["first_byte_ms"] - 500.0).abs() < 1e-9);
    }

    #[test]
    fn medians_ignore_a_single_slow_transfer() {
        let took = |first_byte: f64| Transfer {
            seconds: 2.0 * first_byte,
            first_byte: Some(first_byte),
            ..Transfer::default()
        };
        let figures = transfer_metrics(&[took(0.1), took(0.9), took(0.11)]);
        assert!((figures["first_byte_ms"] - 110.0).abs() < 1e-9 && (figures["completion_ms"] - 220.0).abs() < 1e-9);
        assert!((figures["seconds"] - 2.22).abs() < 1e-9);
    }

    #[test]
    fn block_metrics_separate_writing_from_completion() {
        let blocks = BlockWriteStats {
            write_s: 2.0,
            block_delays: (1..=200).rev().map(|wait| f64::from(wait) / 1e3).collect(),
            cpu_s: 0.0,
        };
        let figures = transfer_metrics(&[Transfer {
            seconds: 4.0,
            bytes: 1_000_000,
            block_stats: Some(blocks),
            ..Transfer::default()
        }]);
        let is = |key: &str, wanted: f64| (figures[key] - wanted).abs() < 1e-9;
        assert!(
            is("mbit_s", 2.0) && is("write_mbit_s", 4.0) && is("write_s", 2.0) && is("completion_s", 4.0),
            "{figures:?}"
        );
        assert!(is("block_ms", 100.5) && is("block_p99_ms", 198.01), "{figures:?}");
        assert!(!transfer_metrics(&[Transfer::default()]).contains_key("write_s"));
    }

    #[test]
    fn flows_without_bytes_count_as_stalled_and_in_jain() {
        let flows = FlowStats { bytes: vec![100, 300, 0, 0], completions: vec![0.3, 0.1, 2.0] };
        let figures =
            transfer_metrics(&[Transfer { seconds: 4.0, bytes: 400, flow_stats: Some(flows), ..Transfer::default() }]);
        let is = |key: &str, wanted: f64| (figures[key] - wanted).abs() < 1e-9;
        assert!(is("stalled", 0.5) && is("jain", 0.4) && is("mb_s", 1e-4), "{figures:?}");
        assert!(is("completion_ms", 300.0) && is("completion_p95_ms", 1830.0), "{figures:?}");
        let silent = FlowStats { bytes: vec![0], completions: Vec::new() };
        let figures = transfer_metrics(&[Transfer { seconds: 4.0, flow_stats: Some(silent), ..Transfer::default() }]);
        assert!((figures["stalled"] - 1.0).abs() < 1e-9 && !figures.contains_key("jain"), "{figures:?}");
    }

    #[test]
    fn cpu_share_is_per_host_and_the_writer_counts_at_the_client() {
        let hosts = |client: f64, left: f64| BTreeMap::from([("client".into(), client), ("left".into(), left)]);
        let blocks = Some(BlockWriteStats { cpu_s: 1.5, ..BlockWriteStats::default() });
        let transfers = [Transfer { seconds: 2.0, block_stats: blocks, ..Transfer::default() }];
        let elapsed = Duration::from_secs(2);
        let shares = cpu_metrics(&hosts(1.0, 3.0), &hosts(1.0, 6.0), "client", &transfers, elapsed);
        assert_eq!(shares, BTreeMap::from([("cpu.client".into(), 75.0), ("cpu.left".into(), 150.0)]));
        let none = cpu_metrics(&hosts(0.0, 0.0), &hosts(0.0, 1.0), "client", &[], Duration::ZERO);
        assert_eq!(none, BTreeMap::new(), "no time has passed");
        assert_eq!(by_name("cpu.left").unwrap().unit, "% of a processor");
    }

    /// CPU time between the transfers was divided by the time of the transfers alone.
    #[test]
    fn cpu_share_includes_the_time_between_transfers() {
        let host = |seconds: f64| BTreeMap::from([("relay".to_owned(), seconds)]);
        let transfers = [Transfer { seconds: 4.0, ..Transfer::default() }];
        let shares = cpu_metrics(&host(1.0), &host(6.0), "client", &transfers, Duration::from_secs(5));
        assert_eq!(shares, BTreeMap::from([("cpu.relay".to_owned(), 100.0)]));
    }

    #[test]
    fn transfer_without_a_first_byte_lacks_the_metric() {
        assert!(!transfer_metrics(&[Transfer::default()]).contains_key(FIRST_BYTE));
    }

    #[test]
    fn transfers_groups_and_sessions_have_the_listed_metrics() {
        let blocks = Some(BlockWriteStats { write_s: 1.0, block_delays: vec![1.0], cpu_s: 1.0 });
        let flows = Some(FlowStats { bytes: vec![1], completions: vec![1.0] });
        let mut figures = transfer_metrics(&[Transfer {
            first_byte: Some(0.0),
            block_stats: blocks,
            flow_stats: flows,
            ..Transfer::default()
        }]);
        figures.extend(fairness::every_metric_for_tests());
        figures.extend(choices::every_metric_for_tests());
        let not_here: Vec<&str> =
            METRICS.iter().map(|(name, ..)| *name).filter(|name| !figures.contains_key(*name)).collect();
        // These need more than the transfers, groups or sessions of a run.
        let elsewhere =
            ["window_packets", PREDICTED, PREDICTION_ERROR, regret::REGRET, regret::OVER_DIRECT, named::LIMIT_NAMED];
        assert_eq!(not_here, elsewhere);
        assert!(by_name("mb/s").unwrap_err().contains("metrics are mb_s, mbit_s"));
        assert!(!by_name("seconds").unwrap().higher_is_better);
    }
}
