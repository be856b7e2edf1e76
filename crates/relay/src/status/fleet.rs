//! The fleet in `/api/fleet` and `/api/sessions`, and the table of `ekiden fleet list`.

use ekiden_proto::fleet::{RelayState, VerifyKey};
use ekiden_proto::key::PublicKey;
use serde::Serialize;
use serde_json::Value;

/// The fleet in `/api/fleet`.
#[derive(Debug, Clone, Serialize)]
pub struct FleetView {
    /// The public key that verifies the certificates of members.
    pub fleet: VerifyKey,
    /// The name of this relay in the fleet; `None` if this relay only reads the entries of others.
    pub name: Option<String>,
    /// Whether etcd is reachable.
    pub etcd_up: bool,
    /// Time since `etcd_up` last changed, in seconds.
    pub etcd_seconds: Option<f64>,
    /// The etcd server in use.
    pub etcd_server: String,
    /// The last error of the etcd connection.
    pub etcd_trouble: Option<String>,
    /// Number of entries that this relay has written to etcd.
    pub written: u64,
    /// Number of entries of other relays that this relay has rejected.
    pub refused: u64,
    /// All known members, this relay included.
    pub members: Vec<MemberView>,
}

/// A member of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct MemberView {
    /// The name of the member.
    pub name: String,
    /// The public key of the member.
    pub key: PublicKey,
    /// The address of its section listener.
    pub address: String,
    /// Whether the member accepts new sessions.
    pub state: RelayState,
    /// Time since the member's last entry was received, in seconds.
    pub age_seconds: f64,
    /// Time since etcd last listed the member, in seconds; `None` while etcd lists it.
    pub missing_seconds: Option<f64>,
    /// End of the validity of the member's certificate, in seconds since 1970 (UTC).
    pub not_after: u64,
    /// Number of relays to which the member has measured sections.
    pub neighbours: usize,
}

/// Counts of the fleet in `/api/sessions`.
#[derive(Debug, Clone, Serialize)]
pub struct FleetSummary {
    /// The name of this relay in the fleet; `None` if this relay only reads the entries of others.
    pub name: Option<String>,
    /// Number of relays in the fleet, this one included.
    pub relays: usize,
    /// Number of relays that accept no new sessions.
    pub draining: usize,
    /// Number of relays that etcd no longer lists.
    pub missing: usize,
    /// Whether etcd is reachable.
    pub etcd_up: bool,
    /// The last error of the etcd connection.
    pub etcd_trouble: Option<String>,
}

impl FleetView {
    /// A fleet with these members whose etcd is reachable.
    #[cfg(test)]
    pub fn for_test(members: Vec<MemberView>) -> Self {
        Self {
            fleet: ekiden_proto::fleet::SigningKey::generate().verify_key(),
            name: None,
            etcd_up: true,
            etcd_seconds: None,
            etcd_server: String::new(),
            etcd_trouble: None,
            written: 0,
            refused: 0,
            members,
        }
    }

    /// Returns the counts of members by state.
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

/// Formats the response of `/api/fleet` as a text table; `None` without a fleet.
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
