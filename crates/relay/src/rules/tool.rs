//! Running nft(8), ip(8) and `iptables-restore`.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};

use ekiden_sys::netns;

use super::error::RulesError;
use super::owner::Owner;
use super::{Applied, Family, Marks, Ruleset, routing};
use crate::config::read::{Flags, load};

/// Runs a program with a text as its standard input; returns what it wrote.
///
/// # Errors
/// That it is not there, or what it complained about.
pub(super) fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, RulesError> {
    let output = feed(command(program).args(arguments), input).map_err(|error| match error.kind() {
        ErrorKind::NotFound => RulesError::not_installed(program),
        _ => RulesError::failed(program, &error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(RulesError::failed(program, &String::from_utf8_lossy(&output.stderr)))
}

/// A program from where administrators keep theirs: users' `PATH` often lacks it.
pub(super) fn command(program: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsString::from(":/usr/sbin:/sbin"));
    let mut command = Command::new(program);
    // Messages are read here.
    command.env("PATH", path).env("LC_ALL", "C");
    command
}

/// Runs a command to its end.
pub(super) fn feed(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // These programs read all before they write. One that does not read fails, and says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    child.wait_with_output()
}

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
