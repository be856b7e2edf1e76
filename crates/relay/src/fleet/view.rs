//! The state of etcd, and the view of the fleet for status.

use std::time::{Duration, Instant};

use ekiden_proto::fleet::MemberList;
use ekiden_proto::key::PublicKey;

use crate::config::FleetConfig;
use crate::status::fleet::{FleetView, MemberView};

/// The state of etcd, as seen by its thread.
#[derive(Debug, Default)]
pub struct EtcdStatus {
    /// Whether the etcd of the fleet answers.
    pub up: bool,
    /// The server in use.
    pub server: String,
    /// Number of entries that this relay has written.
    pub written: u64,
    /// Number of rejected entries of other relays.
    pub refused: u64,
    /// Number of changes of the members.
    pub version: u64,
    /// Time of the last change of state; `None` before the first request.
    since: Option<Instant>,
    last_error: Option<String>,
}

impl EtcdStatus {
    /// Records that a server answers. Returns the duration of the outage that this ends, if any.
    pub fn mark_up(&mut self, server: &str) -> Option<Duration> {
        let down = self.since.filter(|_| !self.up).map(|since| since.elapsed());
        if !self.up {
            self.since = Some(Instant::now());
        }
        (self.up, self.last_error) = (true, None);
        server.clone_into(&mut self.server);
        down
    }

    /// Records that no server answers. Returns whether this is a change.
    pub fn mark_down(&mut self, error: &str) -> bool {
        let is_change = self.up || self.since.is_none();
        if is_change {
            self.since = Some(Instant::now());
        }
        (self.up, self.last_error) = (false, Some(error.to_owned()));
        is_change
    }
}

/// Returns the view of the members in `roster` and of the state of etcd.
pub(super) fn fleet_view(settings: &FleetConfig, roster: &MemberList, etcd: &EtcdStatus, now: Duration) -> FleetView {
    let member = |(key, member): (&PublicKey, &ekiden_proto::fleet::FleetMember)| {
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
    FleetView {
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
