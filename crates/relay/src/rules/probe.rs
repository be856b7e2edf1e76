//! Would it work on this machine? Tried in a network namespace that is thrown away.

use std::os::fd::AsFd;

use ekiden_sys::netns;

use super::error::RulesError;
use super::owner::Owner;
use super::tool::run;
use super::{Applied, Family, Marks, Ruleset, routing};
use crate::config::read::{Flags, load};

/// Every kind of rule, for both address families.
const EVERYTHING: [&str; 3] = [
    "tproxy://[::]:7001?interfaces=lan0",
    "redirect://[::]:7002?interfaces=lan0&interfaces=lo",
    "tun://ekiden0?net=192.0.2.0/24,2001:db8::/32",
];

/// Where the last of them would lead.
const ONWARD: &str = "socks5://127.0.0.1:1";

/// Applies rules of every kind where nobody sees them; `None` where we may not have a namespace for that.
///
/// # Errors
/// What is missing, and the remedy.
pub fn probe() -> Result<Option<Applied>, RulesError> {
    let flags =
        Flags { listen: EVERYTHING.map(str::to_owned).into(), forward: vec![ONWARD.to_owned()], ..Flags::default() };
    let config = load(None, &flags).expect("invariant: the listeners are right");
    let rules = Ruleset::of(&config).expect("invariant: transparent listeners need rules");
    let Ok(namespace) = netns::new_network_namespace() else { return Ok(None) };
    let inside = || {
        let Ok(()) = netns::enter_network_namespace(namespace.as_fd()) else { return Ok(None) };
        run("ip", &["link", "set", "lo", "up"], "")?;
        rules.apply(Owner::Operator).map(Some)
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Whether there is routing for `instance`, which may be all that is left of its rules.
#[must_use]
pub fn has_parts(instance: u8) -> bool {
    [Family::Ipv4, Family::Ipv6]
        .into_iter()
        .any(|family| routing::is_there(family, Marks::new(instance)).unwrap_or(false))
}
