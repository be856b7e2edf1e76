//! What tunnels need.

use std::io;

use ekiden_sys::{netns, tun};
use std::os::fd::AsFd;

use super::checks::finding;
use super::{Finding, Verdict};

/// Tries to make a device, where nobody sees it.
pub fn fitness() -> Finding {
    let (found, wrong) = match probe() {
        None => ("not tried: a network namespace to try it in takes root".to_owned(), None),
        Some(Ok(())) => (format!("{} makes devices", tun::PATH), None),
        Some(Err(error)) => {
            let remedy = "tun listeners need it: modprobe tun, or a kernel with CONFIG_TUN; in a container the device has \
                to be passed in";
            (format!("{}: {error}", tun::PATH), Some((Verdict::Could, remedy.to_owned())))
        }
    };
    finding("tunnels", found, wrong)
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
