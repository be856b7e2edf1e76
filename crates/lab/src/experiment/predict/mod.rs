//! What the model of paths says of a run, before it is made: [`ekiden_proto::path::model`], fed with the keys of the lab file and
//! nothing that was measured.
//!
//! | of a section | from |
//! |---|---|
//! | round trip | the delays of its links, there and back |
//! | loss, line | as [`limit`](mod@super::limit) has them |
//! | window | the least `window` of its two hosts, or what the receiver's `tcp_rmem` leaves |
//! | congestion control | what its sender's host pins |
//! | whether it is ready | sections between relays that know each other are |
//!
//! A transfer of files is predicted from its size, from the client's `connect()` to the last byte; a stream from what arrived,
//! as its clock runs from the first byte.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::path::model::{self, CongestionControl, RelayCosts, SectionModel};

use crate::experiment::limit;
use crate::experiment::metric::{PREDICTED, PREDICTION_ERROR};
use crate::experiment::read::RunSpec;
use crate::experiment::transfer::Transfer;
use crate::experiment::treatment::{RelayProgram, Treatment};
use crate::program::chain;
use crate::program::command::ProxyKind;
use crate::program::server::Protocol;
use crate::stats;
use crate::topology::{Host, Lab, routes, window};

/// The share of a receive buffer that is window (see [`window`]).
const RECEIVE_WINDOW_SHARE: (u64, u64) = (657, 1000);

/// What was predicted of these transfers, and how far from it they were: medians, as a metric and as a share of what was
/// measured. Nothing if the model does not cover what is run.
#[must_use]
pub fn prediction_metrics(spec: &RunSpec, transfers: &[Transfer]) -> BTreeMap<String, f64> {
    let Some(predict) = predictor(spec).filter(|_| !transfers.is_empty()) else { return BTreeMap::new() };
    let pairs = transfers.iter().map(|transfer| (predict(transfer.bytes), transfer.seconds));
    let (predicted, measured): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let [predicted, measured] = [predicted, measured].map(|values| stats::median(&values));
    let figures = [(PREDICTED, predicted * 1e3), (PREDICTION_ERROR, (predicted - measured).abs() / measured)];
    let figures = figures.into_iter().filter(|(_, value)| value.is_finite());
    figures.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// From bytes to seconds.
fn predictor(spec: &RunSpec) -> Option<impl Fn(u64) -> f64> {
    let is_stream = spec.workload.protocol == Protocol::Stream;
    if !(is_stream || spec.workload.protocol == Protocol::Http) || !spec.background.is_empty() {
        return None;
    }
    let sections = path_sections(spec, is_stream)?;
    let (costs, greeting) = request_costs(&spec.treatment, &sections)?;
    Some(move |bytes| {
        let whole = model::completion(&sections, bytes, &costs) + greeting;
        let before = if is_stream { model::time_to_first_byte(&sections, &costs) } else { Duration::ZERO };
        whole.saturating_sub(before).as_secs_f64()
    })
}

/// What the way of asking costs: in each relay, and a greeting before. `None` if the model knows no such way.
fn request_costs(treatment: &Treatment, sections: &[SectionModel]) -> Option<(RelayCosts, Duration)> {
    let waits = RelayCosts { waits_for_connect: true, ..RelayCosts::default() };
    let relays_know_each_other = treatment.sections || treatment.chain.len() < 2;
    match (treatment.program, chain::proxy_kind(treatment)) {
        (RelayProgram::Direct | RelayProgram::Haproxy, _) | (_, ProxyKind::Transparent) => {
            Some((RelayCosts::default(), Duration::ZERO))
        }
        (RelayProgram::Ekiden, _) if treatment.early || !relays_know_each_other => None,
        (RelayProgram::Ekiden, ProxyKind::Forward) => Some((RelayCosts::default(), Duration::ZERO)),
        (RelayProgram::Ekiden, ProxyKind::Http) if treatment.tunnel => Some((waits, Duration::ZERO)),
        (RelayProgram::Ekiden, ProxyKind::Socks) => Some((waits, sections.first()?.rtt)),
        _ => None,
    }
}

/// The sections, from the client's end; `upload` says that the client sends.
fn path_sections(spec: &RunSpec, upload: bool) -> Option<Vec<SectionModel>> {
    let treatment = &spec.treatment;
    let relays = if treatment.program == RelayProgram::Direct { &[] } else { treatment.chain.as_slice() };
    let (client, server) = (&spec.workload.client, &spec.workload.server);
    let hosts: Vec<&String> = std::iter::once(client).chain(relays).chain([server]).collect();
    let last = hosts.len() - 2;
    let pairs = hosts.windows(2).enumerate().map(|(place, pair)| {
        let (from, to) = if upload { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
        let warm = treatment.program == RelayProgram::Ekiden && treatment.sections && place > 0 && place < last;
        path_section(&spec.lab, from, to, warm)
    });
    pairs.collect()
}

/// The section on which `from` sends to `to`.
fn path_section(lab: &Lab, from: &str, to: &str, warm: bool) -> Option<SectionModel> {
    let hosts = [lab.hosts.get(from)?, lab.hosts.get(to)?];
    let way = routes::route_hops(lab, from, to)?;
    let payload = limit::payload_per_packet(&way, hosts);
    let line = limit::line_rate(&way, payload);
    let windows = hosts.iter().filter_map(|host| host.window).map(window::usable_bytes);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than an MTU, and whole")]
    Some(SectionModel {
        rtt: Duration::from_secs_f64(routes::round_trip(lab, from, to)?),
        loss: limit::path_loss(&way)?,
        window: windows.chain(receive_buffer(hosts[1])).min(),
        line_rate: line.is_finite().then_some(line),
        congestion: hosts[0].congestion.as_deref().map_or(CongestionControl::default(), CongestionControl::from_name),
        mss: payload as u16,
        is_warm: warm,
    })
}

/// What a receiver's buffer leaves for the window, if the lab file says how large it may grow.
fn receive_buffer(host: &Host) -> Option<u64> {
    let sizes = host.sysctl.get("net.ipv4.tcp_rmem")?;
    let largest: u64 = sizes.split_whitespace().next_back()?.parse().ok()?;
    Some(largest * RECEIVE_WINDOW_SHARE.0 / RECEIVE_WINDOW_SHARE.1)
}

#[cfg(test)]
mod tests;
