//! Metrics of single transfers of a run: the first visit of a client, and later visits.

use std::collections::BTreeMap;

use super::packets::{self, DirectionLog};
use super::results::Metric;
use crate::experiment::run::transfer::Transfer;
use crate::stats;

/// Metrics of one visit: the prefix of the key, and the unit. Lower is better. The rest of the key is `first`, `later`
/// or the number of the transfer, from 1.
pub const PREFIXES: [(&str, &str); 5] = [
    ("completion_ms.", "ms"),
    ("first_byte_ms.", "ms"),
    ("retransmitted.", "%"),
    ("timeouts.", ""),
    ("burst_kb.", "kB"),
];

/// The name of the first transfer of a run.
const FIRST: &str = "first";
/// The name of all later transfers; the metric is the median over them.
const LATER: &str = "later";

/// Payload of a packet of 1500 bytes with TCP timestamps, in bytes.
const SEGMENT_BYTES: f64 = 1448.0;

/// Returns the metric of a visit; `None` if the key is not that of a visit.
#[must_use]
pub fn metric_by_name(key: &str) -> Option<Metric> {
    let (visit, unit) = PREFIXES.iter().find_map(|(prefix, unit)| Some((key.strip_prefix(prefix)?, unit)))?;
    let is_visit = [FIRST, LATER].contains(&visit) || visit.parse().is_ok_and(|number: u32| number > 0);
    is_visit.then(|| Metric { key: key.into(), unit: (*unit).into(), higher_is_better: false })
}

/// Returns the metrics of each transfer, of the first transfer, and of all later ones. Bursts are measured on the first
/// link of the `log`.
#[must_use]
pub fn visit_metrics(transfers: &[Transfer], log: &[DirectionLog]) -> BTreeMap<String, f64> {
    let ends = transfers.iter().skip(1).map(|next| next.at).chain([f64::INFINITY]);
    let burst = |(transfer, end): (&Transfer, f64)| packets::first_burst(log, [transfer.at, end]);
    let bursts = transfers.iter().zip(ends).map(burst);
    let each: Vec<[Option<f64>; 5]> =
        transfers.iter().zip(bursts).map(|(transfer, burst)| visit_figures(transfer, burst)).collect();
    let mut metrics = BTreeMap::new();
    for (index, (prefix, _)) in PREFIXES.iter().enumerate() {
        let numbered = (1..).zip(&each).map(|(number, figures): (u32, _)| (number.to_string(), figures[index]));
        let later: Vec<f64> = each.iter().skip(1).filter_map(|figures| figures[index]).collect();
        let named = [
            (FIRST.to_owned(), each.first().and_then(|figures| figures[index])),
            (LATER.to_owned(), (!later.is_empty()).then(|| stats::median(&later))),
        ];
        let known = numbered.chain(named).filter_map(|(visit, value)| Some((format!("{prefix}{visit}"), value?)));
        metrics.extend(known);
    }
    metrics
}

/// Returns the figures of a transfer in the order of [`PREFIXES`].
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53, and of segments")]
fn visit_figures(transfer: &Transfer, burst: Option<u64>) -> [Option<f64>; 5] {
    let segments = transfer.bytes as f64 / SEGMENT_BYTES;
    [
        Some(transfer.seconds * 1e3),
        transfer.first_byte.map(|seconds| seconds * 1e3),
        (segments > 0.0).then(|| 100.0 * transfer.recovery.retransmitted as f64 / segments),
        Some(transfer.recovery.timeouts as f64),
        burst.map(|bytes| bytes as f64 / 1e3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::counters::RecoveryCounters;

    fn visit(seconds: f64, retransmitted: u64) -> Transfer {
        let recovery = RecoveryCounters { retransmitted, timeouts: 1 };
        Transfer { seconds, bytes: 144_800, recovery, ..Transfer::default() }
    }

    #[test]
    fn later_visits_are_summarised_apart_from_the_first() {
        let figures = visit_metrics(&[visit(0.5, 0), visit(0.1, 2), visit(0.3, 4), visit(0.2, 6)], &[]);
        let expected = [
            ("completion_ms.first", 500.0),
            ("completion_ms.later", 200.0),
            ("completion_ms.1", 500.0),
            ("completion_ms.3", 300.0),
            ("retransmitted.first", 0.0),
            ("retransmitted.later", 4.0),
            ("timeouts.4", 1.0),
        ];
        for (key, value) in expected {
            assert!((figures[key] - value).abs() < 1e-9, "{key}: {figures:?}");
        }
        assert!(!figures.contains_key("first_byte_ms.first"), "the first byte was not measured");
        assert!(figures.keys().all(|key| metric_by_name(key).is_some()));
    }

    #[test]
    fn visit_suffix_is_first_later_or_a_number() {
        assert_eq!(metric_by_name("retransmitted.later").unwrap().unit, "%");
        for wrong in ["completion_ms.last", "completion_ms.0", "completion_ms.", "completion_ms", "seconds.first"] {
            assert_eq!(metric_by_name(wrong), None, "{wrong}");
        }
    }
}
