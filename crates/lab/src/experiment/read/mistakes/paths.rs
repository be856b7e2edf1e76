//! What can be wrong where a relay chooses among paths, and where things change while transfers are made.

use std::time::Duration;

use crate::experiment::file::PrimeSettings;
use crate::experiment::read::RunSpec;
use crate::experiment::treatment::{RelayProgram, Treatment};
use crate::program::agent::Agent;
use crate::program::server::Protocol;

/// Finds what is wrong with a combination of levels and a treatment.
pub(super) fn validate_path_choice(spec: &RunSpec, mistakes: &mut Vec<String>) {
    validate_mesh_relays(&spec.treatment, mistakes);
    validate_path_workload(spec, mistakes);
    if !spec.treatment.relays.is_empty() && spec.workload.agent != Agent::Curl {
        mistakes.push("relays: with agent = \"curl\" only: it tells by which connection it came".into());
    }
}

/// What is fetched before, or all the time, and what happens meanwhile.
fn validate_path_workload(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let workload = &spec.workload;
    let is_http = workload.protocol == Protocol::Http;
    if (workload.prime.is_some() || !workload.arrivals.is_empty()) && !is_http {
        mistakes.push("workload: prime and arrivals: of HTTP only".into());
    }
    let is_empty = |prime: &PrimeSettings| prime.sessions == Some(0) || prime.time.0.is_zero();
    if workload.prime.as_ref().is_some_and(is_empty) {
        mistakes.push("workload: prime: sessions and time: more than nothing".into());
    }
    if workload.arrivals.iter().any(|arrivals| arrivals.every.0.is_zero()) {
        mistakes.push("workload: arrivals: every: more than nothing".into());
    }
    if workload.file_sizes().any(|file| file.0 == 0) {
        mistakes.push("workload: nothing to transfer".into());
    }
    if !workload.arrivals.is_empty() && workload.transfers > 1 {
        mistakes.push("workload: arrivals or transfers, not both".into());
    }
    validate_event_times(spec, mistakes);
}

/// Nobody knows beforehand when transfers begin, unless the file says it.
fn validate_event_times(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let workload = &spec.workload;
    let late: Vec<Duration> = spec
        .background
        .iter()
        .filter_map(|traffic| traffic.at)
        .chain(workload.kill.iter().map(|kill| kill.at))
        .map(|at| at.0)
        .collect();
    let begins = workload.begins.map(|begins| begins.0);
    if late.iter().any(|at| begins.is_none_or(|begins| *at <= begins)) {
        mistakes
            .push("workload.kill, background: at: later than workload.begins, which says when transfers begin".into());
    }
    let stands = |host: &String| spec.treatment.relays.contains(host) || spec.treatment.chain.contains(host);
    if workload.worse.as_ref().is_some_and(|relay| workload.arrivals.is_empty() || !stands(relay)) {
        mistakes.push("workload.worse: with arrivals, and the host of a relay of this treatment".into());
    }
    for kill in workload.kill.iter().filter(|kill| !stands(&kill.relay)) {
        mistakes.push(format!("workload.kill: no relay of this treatment stands at {:?}", kill.relay));
    }
}

fn validate_mesh_relays(treatment: &Treatment, mistakes: &mut Vec<String>) {
    let Treatment { relays, path, chain, .. } = treatment;
    if relays.is_empty() != path.is_none() {
        mistakes.push("relays and path belong together".into());
    }
    if relays.is_empty() {
        return;
    }
    if treatment.program != RelayProgram::Ekiden || treatment.sections || treatment.transparent {
        mistakes.push("relays: with program = \"ekiden\", without sections and transparent".into());
    }
    if chain.len() != 1 || relays.contains(&chain[0]) {
        mistakes.push("chain: with relays it is one host, that of the chooser, at which no other relay stands".into());
    }
    if relays.iter().enumerate().any(|(place, name)| relays[..place].contains(name)) {
        mistakes.push("relays: each host once".into());
    }
    if path.as_ref().is_some_and(|path| !path.is_valid_for(relays)) {
        mistakes.push("path: \"auto\", [\"direct\"], or some of the relays, each once".into());
    }
}
