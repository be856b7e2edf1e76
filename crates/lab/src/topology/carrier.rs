//! Waiting until interfaces really send. After `up` the kernel still has work to do in the background (link watch); until
//! then it drops what it is given to send, and a connection begun then loses a second.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::topology::host::HostHandle;
use crate::topology::ip;

const OPERATIONAL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until all of these veth interfaces are operational, on a host or in the wire room.
///
/// # Errors
/// One still is not after 10 s, or `ip` failed.
pub fn wait_operational(host: Option<&HostHandle>, interfaces: &BTreeSet<&str>) -> anyhow::Result<()> {
    let deadline = Instant::now() + OPERATIONAL_TIMEOUT;
    while !interfaces.is_empty() {
        let shown = ip::query(host, &["-o", "link", "show", "type", "veth"])?;
        let operational = shown.lines().filter_map(operational_interface).collect();
        let Some(waiting) = interfaces.difference(&operational).next() else { break };
        ensure!(Instant::now() < deadline, "interface {waiting:?} does not come up");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The interface of a line like `2: wan@if3: <UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT`, if it is up.
fn operational_interface(line: &str) -> Option<&str> {
    let name = line.split(": ").nth(1)?;
    line.contains(" state UP ").then(|| name.split('@').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_that_are_up_count() {
        let line = |state| {
            format!("2: wan@if3: <UP,LOWER_UP> mtu 1500 qdisc noqueue state {state} mode DEFAULT group default")
        };
        assert_eq!(operational_interface(&line("UP")), Some("wan"));
        assert_eq!(operational_interface(&line("LOWERLAYERDOWN")), None);
    }
}
