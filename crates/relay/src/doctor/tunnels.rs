//! What tunnels need, and what was left of them.

use std::io;

use ekiden_sys::{netns, tun};
use std::os::fd::AsFd;

use super::finding::Finding;
use super::reading::Reading;

/// Looks at both.
pub fn all(reading: &Reading) -> Vec<Finding> {
    let mut findings = vec![fitness()];
    findings.extend(reading.kept_devices.iter().map(|name| kept(name)));
    findings
}

/// Tries to make a device, where nobody sees it.
fn fitness() -> Finding {
    let finding = |found: String| Finding::new("tunnels", "tunnels", found);
    match probe() {
        None => finding("not tried: a network namespace to try it in takes root".to_owned()),
        Some(Ok(())) => finding(format!("{} makes devices", tun::PATH)),
        Some(Err(error)) => {
            let effect = "tun listeners need it, or a kernel with CONFIG_TUN; a container needs --device /dev/net/tun";
            finding(format!("{}: {error}", tun::PATH)).could(effect, "modprobe tun")
        }
    }
}

/// Makes one in a network namespace that is thrown away; `None` where we may not have that.
fn probe() -> Option<io::Result<()>> {
    let namespace = netns::new_network().ok()?;
    let inside = || {
        netns::enter_network(namespace.as_fd()).ok()?;
        Some(tun::create_bare("ekiden0").map(drop))
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// A relay's devices end with it, so this one was made by hand.
fn kept(name: &str) -> Finding {
    let finding = Finding::new("device", format!("device {name}"), "stays without a relay");
    finding.bad(format!("a tun listener with device = {name:?} cannot start"), format!("ip link delete {name}"))
}
