//! The fleet as `ekiden status`, `ekiden fleet list` and Prometheus show it.

use std::time::{Duration, Instant};

use ekiden_proto::fleet::{MemberList, RelayState, VerifyKey};
use ekiden_proto::key::PublicKey;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::Value;

use crate::config::FleetConfig;
use crate::events::metrics::{Declare, set_count};

/// How etcd does, as its thread sees it.
#[derive(Debug, Default)]
pub struct EtcdStatus {
    /// Whether it answers.
    pub up: bool,
    /// Which server of it.
    pub server: String,
    /// Entries that we have written.
    pub written: u64,
    /// Entries of others that were not believed.
    pub refused: u64,
    /// Grows with everything that is learnt.
    pub version: u64,
    /// Since when it is as it is; none before it was ever asked.
    since: Option<Instant>,
    last_error: Option<String>,
}

impl EtcdStatus {
    /// Notes that a server answers; for how long none did, where that was so.
    pub fn mark_up(&mut self, server: &str) -> Option<Duration> {
        let down = self.since.filter(|_| !self.up).map(|since| since.elapsed());
        if !self.up {
            self.since = Some(Instant::now());
        }
        (self.up, self.last_error) = (true, None);
        server.clone_into(&mut self.server);
        down
    }

    /// Notes that no server answers; true when that is news.
    pub fn mark_down(&mut self, trouble: &str) -> bool {
        let news = self.up || self.since.is_none();
        if news {
            self.since = Some(Instant::now());
        }
        (self.up, self.last_error) = (false, Some(trouble.to_owned()));
        news
    }
}

/// What is known of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct FleetView {
    /// Whose signature counts.
    pub fleet: VerifyKey,
    /// Our own name in it.
    pub name: Option<String>,
    /// Whether etcd answers.
    pub etcd_up: bool,
    /// Since when that is so.
    pub etcd_seconds: Option<f64>,
    /// Which server of it.
    pub etcd_server: String,
    /// Why it does not.
    pub etcd_trouble: Option<String>,
    /// Entries that we have written.
    pub written: u64,
    /// Entries that were not believed.
    pub refused: u64,
    /// Everybody who is known, ourselves among them.
    pub members: Vec<MemberView>,
}

/// One relay of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// Who it is.
    pub key: PublicKey,
    /// Where it listens.
    pub address: String,
    /// Whether it takes sessions.
    pub state: RelayState,
    /// How old its last word is.
    pub age_seconds: f64,
    /// Since when it is not listed any more.
    pub missing_seconds: Option<f64>,
    /// Until when its certificate is valid, in seconds since 1970.
    pub not_after: u64,
    /// To how many relays it has measured.
    pub neighbours: usize,
}

/// The same in a few numbers.
#[derive(Debug, Clone, Serialize)]
pub struct FleetSummary {
    name: Option<String>,
    relays: usize,
    draining: usize,
    missing: usize,
    etcd_up: bool,
    etcd_trouble: Option<String>,
}

/// A fleet as numbers for Prometheus, made when somebody asks.
#[derive(Debug, Default)]
pub struct FleetMetrics {
    members: Gauge,
    draining: Gauge,
    missing: Gauge,
    etcd_up: Gauge,
    written: Counter,
    refused: Counter,
}

impl FleetMetrics {
    /// Makes them known.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("fleet_members", "Relays of the fleet that are known, this one among them", &self.members),
            ("fleet_draining", "Those that take no new sessions", &self.draining),
            ("fleet_missing", "Those that etcd does not list any more", &self.missing),
            ("fleet_etcd_up", "Whether etcd answers", &self.etcd_up),
        ] {
            registry.declare(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("fleet_entries_written", "Entries of this relay that etcd has taken", &self.written),
            ("fleet_entries_refused", "Entries that were not believed", &self.refused),
        ] {
            registry.declare(name, help, counter.clone());
        }
    }

    /// Shows this fleet; zeros where there is none.
    pub fn update(&self, view: Option<FleetView>) {
        let Some(view) = view else { return };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let summary = view.summary();
        self.members.set(number(view.members.len()));
        self.draining.set(number(summary.draining));
        self.missing.set(number(summary.missing));
        self.etcd_up.set(i64::from(view.etcd_up));
        set_count(&self.written, view.written);
        set_count(&self.refused, view.refused);
    }
}

/// The answer of `/api/fleet` for people; none where there is no fleet in it.
#[must_use]
pub fn table(json: &str) -> Option<String> {
    let fleet: Value = serde_json::from_str(json).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let seconds = |value: &Value| value.as_f64().map_or("-".to_owned(), |seconds| format!("{seconds:.0}s"));
    let mut out = format!("{:<16} {:<28} {:<9} {:>8} {:>8}  KEY\n", "NAME", "ADDRESS", "STATE", "AGE", "MISSING");
    for member in fleet["members"].as_array()? {
        let [name, address, state, key] = ["name", "address", "state", "key"].map(|field| text(&member[field]));
        let (age, missing) = (seconds(&member["age_seconds"]), seconds(&member["missing_seconds"]));
        out.push_str(&format!("{name:<16} {address:<28} {state:<9} {age:>8} {missing:>8}  {key}\n"));
    }
    let (server, since) = (text(&fleet["etcd_server"]), seconds(&fleet["etcd_seconds"]));
    out.push_str(&match fleet["etcd_up"] == true {
        true => format!("etcd {server}: up for {since}\n"),
        false => format!("etcd: down for {since}: {}; this is the last known state\n", text(&fleet["etcd_trouble"])),
    });
    Some(out)
}

impl FleetView {
    /// The same in a few numbers.
    #[must_use]
    pub fn summary(&self) -> FleetSummary {
        let count = |is: fn(&&MemberView) -> bool| self.members.iter().filter(is).count();
        FleetSummary {
            name: self.name.clone(),
            relays: self.members.len(),
            draining: count(|member| member.state == RelayState::Draining),
            missing: count(|member| member.missing_seconds.is_some()),
            etcd_up: self.etcd_up,
            etcd_trouble: self.etcd_trouble.clone(),
        }
    }

    /// That of these.
    pub(super) fn new(settings: &FleetConfig, roster: &MemberList, etcd: &EtcdStatus, now: Duration) -> Self {
        let member = |(key, member): (&PublicKey, &ekiden_proto::fleet::Member)| {
            let certificate = &member.entry.signed_certificate.certificate;
            let since = |at: Duration| now.saturating_sub(at).as_secs_f64();
            MemberView {
                name: certificate.name.clone(),
                key: *key,
                address: certificate.address.to_string(),
                state: member.entry.state,
                age_seconds: since(member.received_at),
                missing_seconds: member.missing_since.map(since),
                not_after: certificate.not_after,
                neighbours: member.entry.neighbours.len(),
            }
        };
        let mut members: Vec<_> = roster.members().map(member).collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Self {
            fleet: settings.key,
            name: settings.certificate.as_ref().map(|issued| issued.certificate.name.clone()),
            etcd_up: etcd.up,
            etcd_seconds: etcd.since.map(|since| since.elapsed().as_secs_f64()),
            etcd_server: etcd.server.clone(),
            etcd_trouble: etcd.last_error.clone(),
            written: etcd.written,
            refused: etcd.refused,
            members,
        }
    }
}
