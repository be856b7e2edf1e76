//! Metrics of a run in which several groups shared a bottleneck.

use std::collections::BTreeMap;

use super::metric::{GROUP_PREFIX, JAIN, RATIO};
use super::results::GroupRun;
use crate::experiment::spec::file::Workload;
use crate::stats::{jain, mean};
use crate::topology::{Lab, plan};
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::waits::QueueDelayHistogram;

/// Returns the metrics of a run by key. The ratio is that of the mean rates per connection, as in the published
/// figures. Jain's index is over all connections that always have data to send.
#[must_use]
pub fn group_metrics(
    groups: &[GroupRun],
    ratio: Option<&[String; 2]>,
    queue_delays: &QueueDelayHistogram,
) -> BTreeMap<String, f64> {
    let sum: f64 = groups.iter().map(|group| group.mbit_s).sum();
    let rate = |name: &String| groups.iter().find(|group| group.name == *name).and_then(|group| mean(&group.rates));
    let ratio = ratio.and_then(|[of, to]| Some(rate(of)? / rate(to)?)).filter(|ratio| ratio.is_finite());
    let long: Vec<f64> = groups.iter().flat_map(|group| &group.rates).copied().collect();
    let flows: Vec<f64> = groups.iter().flat_map(|group| &group.completions).copied().collect();
    #[allow(clippy::cast_precision_loss, reason = "a number of packets")]
    let retransmits = groups.iter().filter_map(|group| group.retransmits).sum::<u64>() as f64;
    let totals = [("mbit_s", sum), ("mb_s", sum / 8.0), ("retransmits", retransmits)];
    let optional = [
        (RATIO, ratio),
        (JAIN, jain(&long)),
        ("completion_ms", (!flows.is_empty()).then(|| crate::stats::median(&flows))),
    ];
    let per_group =
        groups.iter().filter_map(|group| Some((format!("{GROUP_PREFIX}{}", group.name), mean(&group.rates)?)));
    let optional = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let named = totals.into_iter().chain(optional).chain(queueing_metrics(queue_delays));
    named.map(|(key, value)| (key.to_owned(), value)).chain(per_group).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a time below 2^53 ns")]
fn queueing_metrics(waits: &QueueDelayHistogram) -> [(&'static str, f64); 3] {
    let quantile = |q| waits.quantile(q) as f64 / 1e6;
    [("queueing_ms", waits.mean() / 1e6), ("queueing_p95_ms", quantile(0.95)), ("queueing_p99_ms", quantile(0.99))]
}

/// Returns the queueing delays between two readings at the bottleneck: the direction of a link with the largest total
/// queueing delay.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a number of packets")]
pub fn bottleneck_delays(before: &[DirectionReport], after: &[DirectionReport]) -> QueueDelayHistogram {
    let waits = before.iter().zip(after).map(|(before, after)| after.waits.since(&before.waits));
    let all = |waits: &QueueDelayHistogram| waits.mean() * waits.packets() as f64;
    waits.max_by(|a, b| all(a).total_cmp(&all(b))).unwrap_or_default()
}

/// Returns the mean window of a connection, in packets of full size: its rate times the round-trip time of the links,
/// without queueing delay. `None` without a connection.
#[must_use]
pub fn mean_window(lab: &Lab, workload: &Workload, groups: &[GroupRun]) -> Option<f64> {
    let window = |run: &GroupRun| {
        let group = workload.group.iter().find(|group| group.name == run.name)?;
        let route = plan::route_hops(lab, &group.from, &group.to)?;
        let mtu = route.iter().map(|hop| hop.link.mtu).min()?;
        let bytes = mean(&run.rates)? * 1e6 / 8.0 * plan::round_trip(lab, &group.from, &group.to)?;
        Some(bytes / f64::from(mtu - HEADER_BYTES))
    };
    mean(&groups.iter().filter_map(window).collect::<Vec<f64>>())
}

/// Headers of IPv4, and of TCP with timestamps, in bytes.
const HEADER_BYTES: u32 = 52;

/// Every metric that groups can have.
#[cfg(test)]
pub fn every_metric_for_tests() -> BTreeMap<String, f64> {
    let group =
        |name: &str| GroupRun { name: name.into(), rates: vec![1.0], completions: vec![1.0], ..GroupRun::default() };
    group_metrics(&[group("a"), group("b")], Some(&["a".into(), "b".into()]), &QueueDelayHistogram::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, rates: &[f64]) -> GroupRun {
        GroupRun {
            name: name.into(),
            mbit_s: rates.iter().sum(),
            rates: rates.to_vec(),
            retransmits: Some(3),
            ..GroupRun::default()
        }
    }

    #[test]
    fn ratio_compares_connections_and_mbit_s_sums_groups() {
        let groups = [group("cubic", &[30.0, 50.0]), group("ctcp", &[10.0])];
        let figures = group_metrics(&groups, Some(&["ctcp".into(), "cubic".into()]), &QueueDelayHistogram::default());
        assert!((figures["ratio"] - 0.25).abs() < 1e-12, "10 divided by the mean of 30 and 50");
        assert!((figures["mbit_s"] - 90.0).abs() < 1e-12 && (figures["retransmits"] - 6.0).abs() < 1e-12);
        assert!((figures["mbit_s.cubic"] - 40.0).abs() < 1e-12, "the rate of one connection");
        assert!((figures["jain"] - 8100.0 / (3.0 * 3500.0)).abs() < 1e-12);
        assert!(!figures.contains_key("completion_ms"));
    }

    #[test]
    fn ratio_is_missing_for_a_single_group_or_a_zero_base() {
        let figures = group_metrics(
            &[group("cubic", &[94.0])],
            Some(&["ctcp".into(), "cubic".into()]),
            &QueueDelayHistogram::default(),
        );
        assert!(!figures.contains_key("ratio") && (figures["jain"] - 1.0).abs() < 1e-12);
        let silent = group_metrics(
            &[group("cubic", &[0.0]), group("ctcp", &[1.0])],
            Some(&["ctcp".into(), "cubic".into()]),
            &QueueDelayHistogram::default(),
        );
        assert!(!silent.contains_key("ratio"), "a rate of 0 is no base");
    }

    #[test]
    fn bottleneck_is_the_direction_with_the_most_total_wait() {
        let direction = |waits: &[u64]| {
            let mut report = DirectionReport::default();
            waits.iter().for_each(|wait| report.waits.record(*wait));
            report
        };
        let before = [direction(&[1]), direction(&[2_000_000])];
        let after = [direction(&[1, 9_000_000]), direction(&[2_000_000, 5_000_000, 5_000_000])];
        let waits = bottleneck_delays(&before, &after);
        assert_eq!(waits.packets(), 2);
        assert!((group_metrics(&[], None, &waits)["queueing_ms"] - 5.0).abs() < 1e-9);
    }
}
