//! Groups of connections that share a bottleneck: `[[workload.group]]`.

use std::time::Duration;

use ekiden_proto::units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use super::file::Workload;
use crate::program::server::Protocol;

/// Connections with the same settings, which send concurrently with those of other groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowGroup {
    /// The name of the group.
    pub name: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// The congestion control of the sender.
    pub congestion: String,
    /// Number of connections that always have data to send, or of concurrent short flows.
    #[serde(default = "one")]
    pub connections: u32,
    /// Size and interval of short flows. With this key, each connection is replaced by short flows, one after another.
    pub short: Option<ShortFlowSettings>,
}

/// Short flows of one size, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShortFlowSettings {
    /// Size of each flow.
    pub bytes: Bytes,
    /// Interval between the starts of two flows; a flow that takes longer delays the next until its end.
    pub every: Span,
}

const fn one() -> u32 {
    1
}

/// Maximum size of a short flow beside bulk flows, in bytes: the flow is sent from one buffer in memory.
const MAX_SHORT_FLOW_BYTES: u64 = 16 << 20;

/// Maximum number of connections of one iperf3 process.
const MAX_CONNECTIONS: u32 = 128;

/// Validates the groups of a workload.
pub fn validate(workload: &Workload, mistakes: &mut Vec<String>) {
    let mut wrong = |text: String| mistakes.push(format!("workload: {text}"));
    let shares = workload.protocol == Protocol::Share;
    if shares == workload.group.is_empty() {
        return wrong(
            "[[workload.group]]: expected at least one with protocol = \"share\", none with other protocols".into(),
        );
    }
    let has_flows = workload.protocol == Protocol::Flows;
    if !shares && (workload.ratio.is_some() || (workload.warm_up.is_some() && !has_flows)) {
        wrong("ratio requires protocol = \"share\", warm_up requires \"share\" or \"flows\"".into());
    }
    if workload.connections.is_some_and(|connections| !(1..=MAX_CONNECTIONS).contains(&connections)) {
        wrong(format!("connections: expected 1 to {MAX_CONNECTIONS}"));
    }
    if has_flows != workload.connections.is_some() || (workload.short.is_some() && !has_flows) {
        wrong(
            "connections: mandatory with protocol = \"flows\"; connections and short: not supported with other \
             protocols"
                .into(),
        );
    }
    if workload
        .short
        .is_some_and(|short| short.bytes.0 == 0 || short.bytes.0 > MAX_SHORT_FLOW_BYTES || short.every.0.is_zero())
    {
        wrong("short: expected bytes from 1B to 16MiB, and every above 0".into());
    }
    for (index, group) in workload.group.iter().enumerate() {
        let name = &group.name;
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
            wrong(format!("group {name:?}: expected a name of letters, digits and '-'"));
        }
        if workload.group[..index].iter().any(|other| other.name == *name) {
            wrong(format!("group {name:?} is defined twice"));
        }
        if !(1..=MAX_CONNECTIONS).contains(&group.connections) {
            wrong(format!("group {name:?}: connections: expected 1 to {MAX_CONNECTIONS}"));
        }
        if group.short.is_some_and(|short| short.bytes.0 == 0 || short.every.0.is_zero()) {
            wrong(format!("group {name:?}: short: expected bytes and every above 0"));
        }
    }
    if let Some([a, b]) = workload.ratio.as_ref().filter(|[a, b]| a == b) {
        wrong(format!("ratio: expected two different groups, not {a:?} and {b:?}"));
    }
    let Some(time) = workload.time else { return };
    let warm_up = workload.warm_up.map_or(Duration::ZERO, |span| span.0);
    if warm_up.subsec_nanos() > 0 || warm_up >= time.quick.0.min(time.full.0) {
        wrong("warm_up: expected whole seconds, less than time".into());
    }
}

impl Workload {
    /// Returns the groups that are not groups of short flows.
    pub fn long_groups(&self) -> impl Iterator<Item = &FlowGroup> {
        self.group.iter().filter(|group| group.short.is_none())
    }
}

#[cfg(test)]
mod tests;
