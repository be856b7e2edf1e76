//! Validation across several keys of an experiment file: detects contradictory or meaningless combinations.

use std::time::Duration;

use ekiden_proto::units::Bytes;
use toml::{Table, Value};

use super::RunSpec;
use crate::experiment::spec::factor::{self, Factor, QuickRule};
use crate::experiment::spec::file::{ExperimentSettings, PrimeSettings, TOP_LEVEL_KEYS, Workload};
use crate::experiment::spec::group;
use crate::experiment::spec::treatment::{RelayProgram, Treatment};
use crate::program::agent::Agent;
use crate::program::command::{self, ProxyKind};
use crate::program::ekiden::ListenerKind;
use crate::program::server::{Protocol, ServerProgram};
use crate::program::{chain, sink};
use crate::topology::{self, Backend, Family};

/// Maximum size of a block, in bytes: a block is held in memory and written with one write(2).
const MAX_BLOCK_BYTES: u64 = 16 << 20;

/// Returns the reason to skip a meaningless combination of levels and treatment; `None` if the combination can run.
pub fn skip_reason(spec: &RunSpec) -> Option<String> {
    let (treatment, protocol) = (&spec.treatment, spec.workload.protocol);
    if treatment.program == RelayProgram::Direct {
        return None;
    }
    if protocol == Protocol::Share {
        return Some("groups that share a bottleneck connect directly".into());
    }
    if treatment.chain.is_empty() {
        return Some("the chain is empty, so the path equals the direct path".into());
    }
    if !treatment.protocols.is_empty() && !treatment.protocols.contains(&protocol) {
        return Some(format!("the protocols of the treatment do not include {}", protocol.name()));
    }
    if treatment.encrypt && treatment.chain.len() == 1 && treatment.relays.is_empty() {
        return Some("no section between relays: there is nothing to encrypt".into());
    }
    let forwards = chain::proxy_kind(treatment) == ProxyKind::Forward;
    let is_open = forwards || chain::proxy_kind(treatment) == ProxyKind::Transparent;
    match protocol {
        Protocol::Ftp if forwards => Some("FTP's data connections cannot pass a forwarder of one port".into()),
        Protocol::Stream if !is_open => Some("iperf3 does not support proxies".into()),
        Protocol::Blocks | Protocol::Flows if !is_open => Some("the writer does not support proxies".into()),
        Protocol::Http | Protocol::Ftp | Protocol::Stream | Protocol::Share | Protocol::Blocks | Protocol::Flows => {
            None
        }
    }
}

/// Validates a combination of levels and a treatment.
pub fn validate_spec(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let mut host = |key: &str, name: &String| {
        if !spec.lab.hosts.contains_key(name) {
            mistakes.push(format!("{key}: there is no host {name:?}"));
        }
    };
    for group in &spec.workload.group {
        host("workload.group.from", &group.from);
        host("workload.group.to", &group.to);
    }
    if spec.workload.protocol != Protocol::Share {
        host("workload.client", &spec.workload.client);
        host("workload.server", &spec.workload.server);
    }
    spec.treatment.chain.iter().for_each(|name| host("chain", name));
    spec.treatment.relays.iter().for_each(|name| host("relays", name));
    for traffic in &spec.background {
        host("background.from", &traffic.from);
        host("background.to", &traffic.to);
    }
    validate_packet_log(spec, mistakes);
    validate_family(spec, mistakes);
    validate_workload(&spec.workload, mistakes);
    let treatment = &spec.treatment;
    let is_open = matches!(chain::proxy_kind(treatment), ProxyKind::Transparent | ProxyKind::Http) && !treatment.tunnel;
    if spec.workload.agent == Agent::Wget && !is_open && treatment.program != RelayProgram::Direct {
        mistakes.push("workload: wget supports only HTTP proxies without tunnel = true: set agent = \"curl\"".into());
    }
    for traffic in &spec.background {
        if (traffic.flows > 0) == traffic.rate.is_some() {
            mistakes.push("background: expected either flows (at least 1) or rate".into());
        }
    }
    validate_treatment(&spec.treatment, mistakes);
    validate_path_choice(spec, mistakes);
}

/// Reports programs and protocols whose configurations or rules support only IPv4, if the lab uses IPv6.
fn validate_family(spec: &RunSpec, mistakes: &mut Vec<String>) {
    use RelayProgram::{Command, Direct, Ekiden, Haproxy, Squid};
    if spec.lab.family == Family::Ipv4 {
        return;
    }
    if !matches!(spec.treatment.program, Direct | Ekiden | Haproxy | Squid | Command) {
        mistakes.push(format!("family = \"ipv6\": not supported with {:?}", spec.treatment.program));
    }
    if spec.treatment.transparent {
        mistakes.push("family = \"ipv6\": not supported with transparent relays".into());
    }
    if spec.workload.protocol == Protocol::Ftp {
        mistakes.push("family = \"ipv6\": not supported with ftp".into());
    }
}

/// Validates the packet log: only the emulator can log the packets of a link.
fn validate_packet_log(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let log = &spec.workload.packet_log;
    for name in log {
        if !spec.lab.links.contains_key(name) {
            mistakes.push(format!("workload.packet_log: there is no link {name:?}"));
        } else if spec.lab.is_bare(name) {
            mistakes
                .push(format!("workload.packet_log: link {name:?} has no emulator: set a delay or another condition"));
        }
    }
    if !log.is_empty() && spec.lab.backend == Backend::Netem {
        mistakes.push("workload.packet_log: not supported with backend = \"netem\"".into());
    }
    if !log.is_empty() && spec.workload.protocol == Protocol::Share {
        mistakes.push("workload.packet_log: not supported with protocol = \"share\"".into());
    }
}

fn validate_workload(workload: &Workload, mistakes: &mut Vec<String>) {
    let own = matches!(workload.protocol, Protocol::Share | Protocol::Flows) && workload.program.is_none();
    if workload.server_program().protocol() != workload.protocol && !own {
        let (program, protocol) = (workload.server_program().name(), workload.protocol.name());
        mistakes.push(format!("workload: {program} does not speak {protocol}"));
    }
    group::validate(workload, mistakes);
    let [is_stream, is_blocks, is_file] = match workload.protocol {
        Protocol::Stream | Protocol::Share | Protocol::Flows => [true, false, false],
        Protocol::Blocks => [false, true, false],
        Protocol::Http | Protocol::Ftp => [false, false, true],
    };
    let has = [workload.time.is_some(), workload.amount.is_some(), workload.file.is_some()];
    let arrive = !workload.arrivals.is_empty();
    if has != [is_stream || arrive, is_blocks, is_file && !arrive] || workload.block.is_some() != is_blocks {
        mistakes.push(
            "workload: a stream has time = { quick = \"5s\", full = \"60s\" }, blocks have an amount and the size of a \
             block, arrivals a time and files of their own, everything else has a file"
                .into(),
        );
    }
    if workload.idle.is_some() && (!is_file || workload.transfers < 2) {
        mistakes.push("workload: idle: requires a file and at least 2 transfers".into());
    }
    validate_blocks(workload, mistakes);
    validate_rates(workload, mistakes);
    let times = workload.time.iter().flat_map(|time| [time.quick.0, time.full.0]);
    if times.into_iter().any(|time| time.is_zero() || time.subsec_nanos() > 0) {
        mistakes.push("workload: time: expected whole seconds above 0".into());
    }
    let is_empty = |size: Option<Bytes>| size.is_some_and(|size| size.0 == 0);
    if is_empty(workload.file) || is_empty(workload.amount) || workload.transfers == 0 {
        mistakes.push("workload: nothing to transfer: file, amount and transfers must be above 0".into());
    }
}

fn validate_blocks(workload: &Workload, mistakes: &mut Vec<String>) {
    let least = if workload.pause.is_some() { sink::STAMP_LEN as u64 } else { 1 };
    if workload.block.is_some_and(|block| !(least..=MAX_BLOCK_BYTES).contains(&block.0)) {
        mistakes.push(format!(
            "workload: block: expected 1B to {MAX_BLOCK_BYTES}B; with a pause at least {}B, for the timestamp",
            sink::STAMP_LEN
        ));
    }
    if workload.pause.is_some() && workload.protocol != Protocol::Blocks {
        mistakes.push("workload: pause: requires protocol = \"blocks\"".into());
    }
    let is_capped = matches!(workload.protocol, Protocol::Blocks | Protocol::Http) && workload.agent == Agent::Curl;
    if workload.cap.is_some_and(|cap| cap.0.is_zero() || !is_capped) {
        mistakes.push(
            "workload: cap: expected a time above 0, with protocol = \"blocks\" or \"http\" and agent = \"curl\""
                .into(),
        );
    }
}

fn validate_rates(workload: &Workload, mistakes: &mut Vec<String>) {
    let is_http = workload.protocol == Protocol::Http;
    if workload.client_rate.is_some() && !(is_http && workload.agent == Agent::Curl) {
        mistakes.push("workload: client_rate: requires protocol = \"http\" and agent = \"curl\"".into());
    }
    if workload.server_rate.is_some() && workload.server_program() != ServerProgram::Nginx {
        mistakes.push("workload: server_rate: requires program = \"nginx\"".into());
    }
}

fn validate_treatment(treatment: &Treatment, mistakes: &mut Vec<String>) {
    if treatment.program == RelayProgram::Command {
        mistakes.extend(command::parse_ready_port(&treatment.ready).err().map(|mistake| format!("ready: {mistake}")));
        if treatment.command.is_empty() {
            mistakes.push("command: expected a program and its arguments".into());
        }
    }
    if treatment.tunnel && chain::proxy_kind(treatment) != ProxyKind::Http {
        mistakes.push("tunnel: requires an HTTP proxy".into());
    }
    let can_reuse = matches!(treatment.program, RelayProgram::Squid | RelayProgram::Haproxy) && !treatment.transparent;
    if treatment.reuse && !can_reuse {
        mistakes.push(
            "reuse: requires program = \"squid\" or \"haproxy\" without transparent; for ekiden, set profile or config"
                .into(),
        );
    }
    if treatment.sections && treatment.program != RelayProgram::Ekiden {
        mistakes.push("sections: requires program = \"ekiden\"".into());
    }
    if treatment.program.is_pair() && treatment.chain.len() != 2 {
        mistakes.push("chain: expected two hosts, one for each end of the tunnel".into());
    }
    let has_keys = treatment.sections || !treatment.relays.is_empty();
    if treatment.mode == ListenerKind::Tcp && !has_keys {
        mistakes
            .push("mode: tcp requires sections = true or relays; for a single relay, set program = \"command\"".into());
    }
    if treatment.transparent && !matches!(treatment.program, RelayProgram::Haproxy | RelayProgram::Ekiden) {
        mistakes.push("transparent: requires program = \"haproxy\" or \"ekiden\"".into());
    }
    if treatment.transparent && treatment.sections {
        mistakes.push("transparent: not supported with sections = true".into());
    }
    let has_more = !treatment.config.is_empty() || !treatment.wrap.is_empty();
    if has_more && (treatment.program != RelayProgram::Ekiden || !treatment.relays.is_empty()) {
        mistakes.push("config, wrap: require program = \"ekiden\" without relays".into());
    }
    if treatment.config.values().any(|value| !value.is_table() && !is_array_of_tables(value)) {
        mistakes.push("config: expected tables, like { log = { format = \"json\" } }".into());
    }
    if treatment.near_profile.is_some() && !treatment.transparent {
        mistakes.push("near_profile: requires transparent = true".into());
    }
    if (treatment.early || treatment.encrypt) && !has_keys {
        mistakes.push("early, encrypt: require sections = true or relays".into());
    }
}

fn is_array_of_tables(value: &Value) -> bool {
    value.as_array().is_some_and(|all| all.iter().all(Value::is_table))
}

/// Validates the settings of the campaign.
pub fn validate_settings(settings: &ExperimentSettings, document: &Table, mistakes: &mut Vec<String>) {
    let tables = document.get("treatment").and_then(Value::as_table).cloned().unwrap_or_default();
    if settings.treatments.is_empty() {
        mistakes.push("experiment.treatments: expected at least one".into());
    }
    for name in &settings.treatments {
        if !tables.contains_key(name) {
            mistakes.push(format!("experiment.treatments: there is no [treatment.{name}]"));
        }
    }
    for name in tables.keys().filter(|name| !settings.treatments.contains(name)) {
        mistakes.push(format!("treatment.{name}: not in experiment.treatments"));
    }
    if settings.jobs == 0 {
        mistakes.push("experiment.jobs: expected at least 1".into());
    }
    if settings.blocks.quick == 0 || settings.blocks.full == 0 {
        mistakes.push("experiment.blocks: expected at least 1".into());
    }
}

/// Validates the factors and levels that `quick` rules name.
pub fn validate_quick_rules(factors: &[Factor], mistakes: &mut Vec<String>) {
    let is_known = |factor: &String, level: &String| {
        factors.iter().any(|other| other.name == *factor && other.levels.iter().any(|other| other.name == *level))
    };
    for level in factors.iter().flat_map(|factor| &factor.levels) {
        let QuickRule::AtLevels(others) = &level.quick else { continue };
        for (factor, names) in others {
            let unknown = names.iter().filter(|name| !is_known(factor, name));
            mistakes.extend(
                unknown.map(|name| {
                    format!("level {}: quick: there is no level {name:?} of a factor {factor:?}", level.name)
                }),
            );
        }
    }
}

/// Validates the factors and levels that a map or a treatment names.
pub fn validate_level_names(
    settings: &ExperimentSettings,
    factors: &[Factor],
    document: &Table,
    mistakes: &mut Vec<String>,
) {
    for name in settings.map.iter().flatten().filter(|name| !factors.iter().any(|factor| factor.name == **name)) {
        mistakes.push(format!("experiment.map: there is no factor {name:?}"));
    }
    if settings.map.as_ref().is_some_and(|[across, up]| across == up) {
        mistakes.push("experiment.map: expected two different factors".into());
    }
    let treatments = document.get("treatment").and_then(Value::as_table).into_iter().flatten();
    for (name, treatment) in treatments {
        let read = treatment.clone().try_into::<Treatment>().ok();
        let unknown = read.iter().flat_map(|read| &read.at).flat_map(|at| factor::unknown_levels(factors, &at.levels));
        mistakes.extend(unknown.map(|mistake| format!("treatment.{name}.at: {mistake}")));
    }
}

/// Reports unknown keys at the top of a file.
pub fn validate_top_level_keys(document: &Table, mistakes: &mut Vec<String>) {
    let known = |key: &str| TOP_LEVEL_KEYS.contains(&key) || topology::file::LAB_KEYS.contains(&key);
    mistakes.extend(document.keys().filter(|key| !known(key)).map(|key| format!("{key}: unknown key")));
}

/// Validates the path choice of a combination of levels and a treatment.
fn validate_path_choice(spec: &RunSpec, mistakes: &mut Vec<String>) {
    validate_mesh_relays(&spec.treatment, mistakes);
    validate_path_workload(spec, mistakes);
    if !spec.treatment.relays.is_empty() && spec.workload.agent != Agent::Curl {
        mistakes.push("relays: requires agent = \"curl\", which reports the local port of a transfer".into());
    }
}

/// Validates transfers before and beside the measured ones, and events.
fn validate_path_workload(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let workload = &spec.workload;
    let is_http = workload.protocol == Protocol::Http;
    if (workload.prime.is_some() || !workload.arrivals.is_empty()) && !is_http {
        mistakes.push("workload: prime, arrivals: require protocol = \"http\"".into());
    }
    let is_empty = |prime: &PrimeSettings| prime.sessions == Some(0) || prime.time.0.is_zero();
    if workload.prime.as_ref().is_some_and(is_empty) {
        mistakes.push("workload: prime: expected sessions and time above 0".into());
    }
    if workload.arrivals.iter().any(|arrivals| arrivals.every.0.is_zero()) {
        mistakes.push("workload: arrivals: every: expected a time above 0".into());
    }
    if workload.file_sizes().any(|file| file.0 == 0) {
        mistakes.push("workload: nothing to transfer: each file must be above 0B".into());
    }
    if !workload.arrivals.is_empty() && workload.transfers > 1 {
        mistakes.push("workload: expected arrivals or transfers, not both".into());
    }
    validate_event_times(spec, mistakes);
}

/// Validates the times of events, which must be later than `begins`: without this key, the start of the transfers is
/// unknown.
fn validate_event_times(spec: &RunSpec, mistakes: &mut Vec<String>) {
    let workload = &spec.workload;
    let times: Vec<Duration> = spec
        .background
        .iter()
        .filter_map(|traffic| traffic.at)
        .chain(workload.kill.iter().map(|kill| kill.at))
        .map(|at| at.0)
        .collect();
    let begins = workload.begins.map(|begins| begins.0);
    if times.iter().any(|at| begins.is_none_or(|begins| *at <= begins)) {
        mistakes
            .push("workload.kill, background: at: expected a time after workload.begins, which is mandatory".into());
    }
    let has_relay = |host: &String| spec.treatment.relays.contains(host) || spec.treatment.chain.contains(host);
    if workload.worse.as_ref().is_some_and(|relay| workload.arrivals.is_empty() || !has_relay(relay)) {
        mistakes.push("workload.worse: requires arrivals, and the host of a relay of this treatment".into());
    }
    for kill in workload.kill.iter().filter(|kill| !has_relay(&kill.relay)) {
        mistakes.push(format!("workload.kill: no relay of this treatment runs on host {:?}", kill.relay));
    }
}

fn validate_mesh_relays(treatment: &Treatment, mistakes: &mut Vec<String>) {
    let Treatment { relays, path, chain, .. } = treatment;
    if relays.is_empty() != path.is_none() {
        mistakes.push("relays, path: set both or neither".into());
    }
    if relays.is_empty() {
        return;
    }
    if treatment.program != RelayProgram::Ekiden || treatment.sections || treatment.transparent {
        mistakes.push("relays: requires program = \"ekiden\", without sections and transparent".into());
    }
    if chain.len() != 1 || relays.contains(&chain[0]) {
        mistakes.push("chain: with relays, expected one host, that of the chooser, which is not in relays".into());
    }
    if relays.iter().enumerate().any(|(index, name)| relays[..index].contains(name)) {
        mistakes.push("relays: expected each host once".into());
    }
    if path.as_ref().is_some_and(|path| !path.is_valid_for(relays)) {
        mistakes.push("path: expected \"auto\", [\"direct\"], or some of the relays, each once".into());
    }
}
