//! Predictions of the path model [`ekiden_proto::path::model`] for a run. The input is the lab file only, without
//! measured values.
//!
//! | parameter of a section | source |
//! |---|---|
//! | round trip | the delays of its links, there and back |
//! | loss, line | as in [`limit`](mod@super::limit) |
//! | window | the least of the `window` of both hosts and the window that the receiver's `tcp_rmem` allows |
//! | congestion control | the configuration of the sending host |
//! | connection | established in advance between relays with the section protocol; in use after the first transfer |
//!
//! The duration of a file transfer is predicted from the file size, and lasts from the client's `connect()` to the last
//! byte. The duration of a stream is predicted from the received bytes, and begins with the first byte.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::path::model::{self, CongestionControl, Connection, RelayCosts, SectionModel};

use super::limit;
use crate::experiment::collect::metric::{PREDICTED, PREDICTION_ERROR};
use crate::experiment::run::transfer::Transfer;
use crate::experiment::spec::read::RunSpec;
use crate::experiment::spec::treatment::{RelayProgram, Treatment};
use crate::program::chain;
use crate::program::command::ProxyKind;
use crate::program::server::Protocol;
use crate::stats;
use crate::topology::{Host, Lab, host, plan};

/// The share of a receive buffer that is offered as window, as numerator and denominator (see
/// [`topology::host`](crate::topology::host)).
const RECEIVE_WINDOW_SHARE: (u64, u64) = (657, 1000);

/// Returns the median predicted time of these transfers, and the error relative to the median measured time. Empty if
/// the model does not cover the runs.
#[must_use]
pub fn prediction_metrics(spec: &RunSpec, transfers: &[Transfer]) -> BTreeMap<String, f64> {
    let Some(predict) = predictor(spec).filter(|_| !transfers.is_empty()) else { return BTreeMap::new() };
    // The second transfer may begin before the section that carried the first is free. With five or more transfers, the
    // median is that of a later one.
    let visits = [Visit::First].into_iter().chain(std::iter::repeat(Visit::Later));
    let pairs =
        transfers.iter().zip(visits).map(|(transfer, visit)| (predict(transfer.bytes, visit), transfer.seconds));
    let (predicted, measured): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let [predicted, measured] = [predicted, measured].map(|values| stats::median(&values));
    let figures = [(PREDICTED, predicted * 1e3), (PREDICTION_ERROR, (predicted - measured).abs() / measured)];
    let figures = figures.into_iter().filter(|(_, value)| value.is_finite());
    figures.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Position of a transfer in its run, without the small warm-up transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    First,
    /// The sections have carried earlier transfers of the same size.
    Later,
}

/// Returns a function from the bytes and the position of a transfer to its predicted duration in seconds. `None` if the
/// model does not cover the runs.
fn predictor(spec: &RunSpec) -> Option<impl Fn(u64, Visit) -> f64> {
    let is_stream = spec.workload.protocol == Protocol::Stream;
    if !(is_stream || spec.workload.protocol == Protocol::Http) || !spec.background.is_empty() {
        return None;
    }
    let sections = path_sections(spec, is_stream)?;
    let (costs, greeting) = request_costs(&spec.treatment, &sections)?;
    Some(move |bytes, visit| {
        let after_earlier = |section: &SectionModel| match visit {
            Visit::First => *section,
            Visit::Later => section.after_transfer(bytes),
        };
        let sections: Vec<SectionModel> = sections.iter().map(after_earlier).collect();
        let completion = model::completion(&sections, bytes, &costs) + greeting;
        let before = if is_stream { model::time_to_first_byte(&sections, &costs) } else { Duration::ZERO };
        completion.saturating_sub(before).as_secs_f64()
    })
}

/// Returns the costs of the request method in the relays, and the additional time of a greeting. `None` for a method
/// that the model does not cover.
fn request_costs(treatment: &Treatment, sections: &[SectionModel]) -> Option<(RelayCosts, Duration)> {
    let connect_costs = RelayCosts { waits_for_connect: true, ..RelayCosts::default() };
    let is_single_request = treatment.sections || treatment.chain.len() < 2;
    match (treatment.program, chain::proxy_kind(treatment)) {
        (RelayProgram::Direct | RelayProgram::Haproxy, _) | (_, ProxyKind::Transparent) => {
            Some((RelayCosts::default(), Duration::ZERO))
        }
        (RelayProgram::Ekiden, _) if treatment.early || !is_single_request => None,
        (RelayProgram::Ekiden, ProxyKind::Forward) => Some((RelayCosts::default(), Duration::ZERO)),
        (RelayProgram::Ekiden, ProxyKind::Http) if treatment.tunnel => Some((connect_costs, Duration::ZERO)),
        (RelayProgram::Ekiden, ProxyKind::Socks) => Some((connect_costs, sections.first()?.rtt)),
        _ => None,
    }
}

/// Returns the sections in order from the client to the server. With `upload`, the client sends the data.
fn path_sections(spec: &RunSpec, upload: bool) -> Option<Vec<SectionModel>> {
    let treatment = &spec.treatment;
    let relays = if treatment.program == RelayProgram::Direct { &[] } else { treatment.chain.as_slice() };
    let (client, server) = (&spec.workload.client, &spec.workload.server);
    let hosts: Vec<&String> = std::iter::once(client).chain(relays).chain([server]).collect();
    let last = hosts.len() - 2;
    let pairs = hosts.windows(2).enumerate().map(|(index, pair)| {
        let (from, to) = if upload { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
        let is_ready = treatment.program == RelayProgram::Ekiden && treatment.sections && index > 0 && index < last;
        let connection = Connection::ready_if(is_ready);
        path_section(&spec.lab, from, to, connection)
    });
    pairs.collect()
}

/// Returns the model of the section on which `from` sends data to `to`. `None` without a route, or if the model does
/// not cover the losses.
fn path_section(lab: &Lab, from: &str, to: &str, connection: Connection) -> Option<SectionModel> {
    let hosts = [lab.hosts.get(from)?, lab.hosts.get(to)?];
    let route = plan::route_hops(lab, from, to)?;
    let payload = limit::payload_per_packet(&route, hosts, lab.family);
    let line = limit::line_rate(&route, payload);
    let windows = hosts.iter().filter_map(|host| host.window).map(host::usable_bytes);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than an MTU, and whole")]
    Some(SectionModel {
        rtt: Duration::from_secs_f64(plan::round_trip(lab, from, to)?),
        loss: limit::path_loss(&route)?,
        window: windows.chain(receive_buffer(hosts[1])).min(),
        line_rate: line.is_finite().then_some(line),
        congestion: hosts[0].congestion.as_deref().map_or(CongestionControl::default(), CongestionControl::from_name),
        mss: payload as u16,
        connection,
    })
}

/// Returns the window that the receiver's buffer allows, in bytes; `None` if the lab file does not set `tcp_rmem`.
fn receive_buffer(host: &Host) -> Option<u64> {
    let sizes = host.sysctl.get("net.ipv4.tcp_rmem")?;
    let largest: u64 = sizes.split_whitespace().next_back()?.parse().ok()?;
    Some(largest * RECEIVE_WINDOW_SHARE.0 / RECEIVE_WINDOW_SHARE.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec::read::Experiment;

    const GRID: &str = r#"
lab = 1
name = "grid"
title = "A path in three ways"
[default.host]
congestion = "bbr"
[host.client]
[host.r1]
forward = true
sysctl = { "net.ipv4.tcp_rmem" = "4096 131072 1000000" }
[host.r2]
forward = true
[host.server]
window = "256KiB"
[link.access]
ends = ["client", "r1"]
delay = "10ms"
rate = "100Mbit/s"
reverse = { loss = { model = "bernoulli", p = 0.01 } }
[link.middle]
ends = ["r1", "r2"]
delay = "20ms"
[link.far]
ends = ["r2", "server"]
delay = "5ms"
[workload]
protocol = "http"
file = "10kB"
chain = ["r1", "r2"]
[treatment.direct]
program = "direct"
[treatment.relayed]
program = "ekiden"
sections = true
mode = "MODE"
[experiment]
treatments = ["direct", "relayed"]
blocks = { quick = 1, full = 1 }
"#;

    fn specs(mode: &str) -> [RunSpec; 2] {
        let experiment = Experiment::parse("grid", &GRID.replace("MODE", mode)).unwrap();
        [0, 1].map(|place| experiment.cells[place].spec.clone())
    }

    fn fetched(seconds: f64) -> Transfer {
        Transfer { seconds, bytes: 10_000, ..Transfer::default() }
    }

    #[test]
    fn path_sections_match_the_experiment_file() {
        let [direct, relayed] = specs("tcp");
        let [whole] = path_sections(&direct, false).unwrap().try_into().unwrap();
        let [near, between, far]: [SectionModel; 3] = path_sections(&relayed, false).unwrap().try_into().unwrap();
        assert_eq!(whole.rtt, Duration::from_millis(70));
        assert_eq!([near.rtt, between.rtt, far.rtt].map(|rtt| rtt.as_millis()), [20, 40, 10]);
        assert_eq!(
            [near.connection, between.connection, far.connection],
            [Connection::New, Connection::Ready, Connection::New]
        );
        assert_eq!([near.mss, near.congestion as u16], [1448, CongestionControl::Bbr as u16]);
        assert!((near.loss - 0.01).abs() < 1e-9 && between.loss == 0.0 && (whole.loss - 0.01).abs() < 1e-9);
        assert!((near.line_rate.unwrap() - 12.5e6 * 1448.0 / 1500.0).abs() < 1.0 && between.line_rate.is_none());
        // Downstream r2 sends to r1, whose receive buffer is small; the server sends to r2.
        assert_eq!([near.window, between.window, far.window], [None, Some(657_000), Some(262_144)]);
        assert_eq!(path_sections(&direct, true).unwrap()[0].loss, 0.0, "no loss upstream");
    }

    #[test]
    fn request_costs_match_the_floor_of_the_mode() {
        let first_byte = |mode: &str| {
            let [_, spec] = specs(mode);
            let sections = path_sections(&spec, false).unwrap();
            let (costs, greeting) = request_costs(&spec.treatment, &sections)?;
            Some(model::time_to_first_byte(&sections, &RelayCosts { hop_delay: Duration::ZERO, ..costs }) + greeting)
        };
        let floor =
            |mode: &str| crate::experiment::judge::floor::first_byte_floor(&specs(mode)[1]).unwrap().milliseconds;
        assert_eq!(first_byte("socks"), Some(Duration::from_secs_f64(floor("socks") / 1e3)));
        // Round trips of the handshakes at both ends and of the request over the whole path: 20 + 10 + 70 ms.
        assert_eq!(first_byte("tcp"), Some(Duration::from_millis(100)));
        assert_eq!(first_byte("http"), None, "the model does not cover requests over persistent connections");
    }

    #[test]
    fn prediction_error_is_relative_to_the_measured_time() {
        let [direct, _] = specs("tcp");
        let predicted = prediction_metrics(&direct, &[fetched(1.0)])[PREDICTED];
        assert!(predicted > 140.0 && predicted < 160.0, "two round trips of 70 ms: {predicted}");
        let error = |seconds: f64| prediction_metrics(&direct, &[fetched(seconds)])[PREDICTION_ERROR];
        assert!(error(predicted / 1e3) < 1e-9);
        assert!((error(predicted / 2e3) - 1.0).abs() < 1e-9 && (error(predicted / 500.0) - 0.5).abs() < 1e-9);
    }

    /// Only the first transfer has a slow start on the section between the relays, which has the longest round trip.
    #[test]
    fn later_transfers_use_warm_sections() {
        let [direct, relayed] = specs("tcp");
        let predicted = |spec: &RunSpec, count: usize| {
            let transfers = vec![Transfer { seconds: 1.0, bytes: 100_000, ..Transfer::default() }; count];
            prediction_metrics(spec, &transfers)[PREDICTED]
        };
        // The prediction of three transfers is their median, which is that of a later transfer.
        let [first, later] = [1, 3].map(|count| predicted(&relayed, count));
        assert!(first - later > 30.0 && first - later < 50.0, "{first} and {later}: a round trip of 40 ms");
        let [first, later] = [1, 3].map(|count| predicted(&direct, count));
        assert!((first - later).abs() < 1e-9, "{first} and {later}");
    }

    #[test]
    fn unmodelled_runs_have_no_prediction_metrics() {
        assert!(prediction_metrics(&specs("http")[1], &[fetched(1.0)]).is_empty());
        assert!(prediction_metrics(&specs("tcp")[0], &[]).is_empty());
    }
}
