//! The fleet as `ekiden status` and `ekiden fleet list` show it.

use ekiden_proto::fleet::{RelayState, VerifyKey};
use ekiden_proto::key::PublicKey;
use serde::Serialize;
use serde_json::Value;

/// The fleet in `/api/fleet`.
#[derive(Debug, Clone, Serialize)]
pub struct FleetView {
    /// The key that signs certificates.
    pub fleet: VerifyKey,
    /// The name of this relay in the fleet.
    pub name: Option<String>,
    /// Whether the etcd of the fleet answers.
    pub etcd_up: bool,
    /// Since when that is so.
    pub etcd_seconds: Option<f64>,
    /// The server in use.
    pub etcd_server: String,
    /// The last error of etcd.
    pub etcd_trouble: Option<String>,
    /// Entries that we have written.
    pub written: u64,
    /// Entries that were not believed.
    pub refused: u64,
    /// All known members, this relay included.
    pub members: Vec<MemberView>,
}

/// One member of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct MemberView {
    /// The name of the member.
    pub name: String,
    /// The public key of the member.
    pub key: PublicKey,
    /// The address of its section listener.
    pub address: String,
    /// Whether it accepts sessions.
    pub state: RelayState,
    /// Age of its last entry.
    pub age_seconds: f64,
    /// Time since etcd last listed it.
    pub missing_seconds: Option<f64>,
    /// Until when its certificate is valid, in seconds since 1970.
    pub not_after: u64,
    /// Number of relays that it has measured.
    pub neighbours: usize,
}

/// Counts of the fleet in `/api/sessions`.
#[derive(Debug, Clone, Serialize)]
pub struct FleetSummary {
    /// The name of this relay in the fleet.
    pub name: Option<String>,
    /// Relays of the fleet, this one included.
    pub relays: usize,
    /// Relays that take no new sessions.
    pub draining: usize,
    /// Relays that etcd no longer lists.
    pub missing: usize,
    /// Whether the etcd of the fleet answers.
    pub etcd_up: bool,
    /// The last error of etcd.
    pub etcd_trouble: Option<String>,
}

impl FleetView {
    /// Counts of the members.
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
}

/// The answer of `/api/fleet` as a table for people; `None` without a fleet.
#[must_use]
pub fn table(json: &str) -> Option<String> {
    let fleet: Value = serde_json::from_str(json).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let seconds = |value: &Value| value.as_f64().map_or("-".to_owned(), |seconds| format!("{seconds:.0}s"));
    let mut output = format!("{:<16} {:<28} {:<9} {:>8} {:>8}  KEY\n", "NAME", "ADDRESS", "STATE", "AGE", "MISSING");
    for member in fleet["members"].as_array()? {
        let [name, address, state, key] = ["name", "address", "state", "key"].map(|field| text(&member[field]));
        let (age, missing) = (seconds(&member["age_seconds"]), seconds(&member["missing_seconds"]));
        output.push_str(&format!("{name:<16} {address:<28} {state:<9} {age:>8} {missing:>8}  {key}\n"));
    }
    let (server, since) = (text(&fleet["etcd_server"]), seconds(&fleet["etcd_seconds"]));
    output.push_str(&match fleet["etcd_up"] == true {
        true => format!("etcd {server}: reachable for {since}\n"),
        false => {
            format!("etcd: unreachable for {since}: {}; this is the last known state\n", text(&fleet["etcd_trouble"]))
        }
    });
    Some(output)
}
