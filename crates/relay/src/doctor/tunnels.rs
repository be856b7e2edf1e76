//! What tunnels need, and what was left of them.

use std::io;
use std::os::fd::AsFd;

use ekiden_sys::{netns, tun};

use super::finding::Finding;
use super::system::SystemState;

/// Looks at both.
pub fn tunnel_checks(reading: &SystemState) -> Vec<Finding> {
    let mut findings = vec![check_device()];
    findings.extend(reading.persistent_devices.iter().map(|name| persistent_device(name)));
    findings
}

/// Tries to make a device, where nobody sees it.
fn check_device() -> Finding {
    let finding = |found: String| Finding::new("tunnels", "tunnels", found);
    match try_create_device() {
        None => finding("not tried: a network namespace to try it in takes root".to_owned()),
        Some(Ok(())) => finding(format!("{} makes devices", tun::PATH)),
        Some(Err(error)) => {
            let effect = "tun listeners need it, or a kernel with CONFIG_TUN; a container needs --device /dev/net/tun";
            finding(format!("{}: {error}", tun::PATH)).with_hint(effect, "modprobe tun")
        }
    }
}

/// Makes one in a network namespace that is thrown away; `None` where we may not have that.
fn try_create_device() -> Option<io::Result<()>> {
    let namespace = netns::new_network_namespace().ok()?;
    let inside = || {
        netns::enter_network_namespace(namespace.as_fd()).ok()?;
        Some(tun::create_plain("ekiden0").map(drop))
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// A relay's devices end with it, so this one was made by hand.
fn persistent_device(name: &str) -> Finding {
    let finding = Finding::new("device", format!("device {name}"), "stays without a relay");
    finding.with_error(format!("a tun listener with device = {name:?} cannot start"), format!("ip link delete {name}"))
}
