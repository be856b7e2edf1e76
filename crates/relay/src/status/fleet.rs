//! The fleet as `ekiden status` and `ekiden fleet list` show it.

use ekiden_proto::fleet::{RelayState, VerifyKey};
use ekiden_proto::key::PublicKey;
use serde::Serialize;
use serde_json::Value;

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
    /// The name of this relay in the fleet.
    pub name: Option<String>,
    /// Relays of the fleet, this one included.
    pub relays: usize,
    /// Relays that take no new sessions.
    pub draining: usize,
    /// Relays that etcd no longer lists.
    pub missing: usize,
    /// Whether etcd answers.
    pub etcd_up: bool,
    /// The last error of etcd.
    pub etcd_trouble: Option<String>,
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
