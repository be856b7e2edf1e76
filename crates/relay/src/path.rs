//! Which way to a target. For now one path for all: the hops given by `-F`, or direct.

use crate::config::Config;

/// The name of the path in logs: its hops, without their credentials, or `direct`.
#[must_use]
pub fn select(config: &Config) -> String {
    if config.forward.is_empty() {
        return "direct".to_owned();
    }
    let hops: Vec<String> = config.forward.iter().map(|hop| hop.to_string()).collect();
    hops.join(",")
}
