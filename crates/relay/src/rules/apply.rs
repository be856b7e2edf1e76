//! Adds rules to the kernel and removes them, with nft(8), ip(8) and `iptables-restore`. Routing is added first and
//! removed last, so that every marked packet has a route. nftables replaces all rules in one transaction.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};

use ekiden_sys::netns;

use super::error::RulesError;
use super::marks::MASK;
use super::owner::{Holder, Owner, holder, table};
use super::queue::{self, Queue};
use super::{Family, Marks, Ruleset, nft, routing};
use crate::config::read::{Flags, load};

/// The result of applying rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// How first packets reach the gate. With `Queue::Missing`, `connect = "hold"` has the effect of `"strict"`.
    pub queue: Queue,
}

impl Ruleset {
    /// Replaces earlier rules of this instance in the kernel by these. On failure nothing has changed.
    ///
    /// # Errors
    /// A program has failed, or another running daemon has this instance.
    pub fn apply(&self, owner: Owner) -> Result<Applied, RulesError> {
        let before = claim(self.marks.instance(), owner)?;
        self.put(owner).inspect_err(|_| {
            if before.is_none() {
                // The failure itself is reported; rules that remain after a failed removal are found by `ekiden
                // doctor`.
                let _ = remove(self.marks.instance());
            }
        })
    }

    fn put(&self, owner: Owner) -> Result<Applied, RulesError> {
        let mut queue = if self.holds() { Queue::probe() } else { Queue::Nft };
        let comment = owner.comment(self.marks);
        let text = |queue: &Queue| nft::replace(self.marks) + &nft::text(self, queue, &comment);
        run("nft", &["-c", "-f", "-"], &text(&queue))?;
        self.add_routing()?;
        if queue == Queue::Iptables
            && let Err(error) = queue::apply(self)
        {
            queue = Queue::Missing(error.to_string());
        }
        run("nft", &["-f", "-"], &text(&queue))?;
        self.tidy(&queue)?;
        Ok(Applied { queue })
    }

    fn add_routing(&self) -> Result<(), RulesError> {
        self.families.iter().try_for_each(|family| routing::apply(*family, self.marks))
    }

    /// Adds the parts of applied rules that another program has removed, except the nftables table, which stays as it
    /// is.
    ///
    /// # Errors
    /// A program has failed.
    pub fn restore(&self, queue: &Queue) -> Result<(), RulesError> {
        self.add_routing()?;
        if *queue == Queue::Iptables { queue::apply(self) } else { Ok(()) }
    }

    /// Removes rules of an older configuration that this one does not need.
    fn tidy(&self, queue: &Queue) -> Result<(), RulesError> {
        for family in [Family::Ipv4, Family::Ipv6] {
            let needed = self.families.contains(&family);
            if !needed || *queue != Queue::Iptables {
                queue::remove(family, self.marks)?;
            }
            if !needed {
                // The error is ignored: without IPv6 there are no rules of this relay to remove.
                let _ = routing::remove(family, self.marks);
            }
        }
        Ok(())
    }
}

/// Returns the owner of existing rules of `instance`, if `owner` may replace them.
///
/// # Errors
/// Another running daemon has the instance, or nft has failed.
pub fn claim(instance: u8, owner: Owner) -> Result<Option<Holder>, RulesError> {
    match holder(instance)? {
        Some(Holder::Running(pid)) if !owner.succeeds(pid) => Err(owned(instance, pid)),
        holder => Ok(holder),
    }
}

/// Removes all rules of `instance` from the kernel, also partly existing ones; returns whether there were any.
///
/// # Errors
/// A program has failed. The rules that would be removed after it remain.
pub fn remove(instance: u8) -> Result<bool, RulesError> {
    let marks = Marks::new(instance);
    let mut found = match holder(instance) {
        Err(RulesError::NotInstalled { .. }) => false,
        result => result?.is_some(),
    };
    if found {
        run("nft", &["delete", "table", "inet", &table(marks)], "")?;
    }
    forget_ended(marks);
    for family in [Family::Ipv4, Family::Ipv6] {
        found |= queue::remove(family, marks)?;
        found |= match routing::remove(family, marks) {
            // The kernel may lack IPv6.
            Err(RulesError::Failed { .. }) if family == Family::Ipv6 => false,
            removed => removed?,
        };
    }
    Ok(found)
}

/// Destroys this relay's sockets in TIME_WAIT that have addresses of other hosts: when a client reuses a port, these
/// sockets would match packets that are to bypass the relay. On a kernel without this operation the sockets remain for
/// a minute.
pub fn forget_ended(marks: Marks) {
    let ours = format!("fwmark = {:#x}/{:#x}", marks.kept(), MASK);
    let _ = run("ss", &["-H", "-K", "-t", "-n", "-a", "state", "time-wait", &ours], "");
}

/// Returns the error for an instance of another daemon, with the number of a free instance.
fn owned(instance: u8, pid: u32) -> RulesError {
    let free = (1..=15).find(|other| matches!(holder(*other), Ok(None))).unwrap_or(instance);
    RulesError::Owned { instance, pid, free }
}

/// Runs a program with a text as its standard input; returns its output.
///
/// # Errors
/// The program is missing or has failed.
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

/// Returns a command whose `PATH` includes the `sbin` directories, which users' `PATH` often lacks.
pub(super) fn command(program: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsString::from(":/usr/sbin:/sbin"));
    let mut command = Command::new(program);
    // Error messages are parsed, so they must not be translated.
    command.env("PATH", path).env("LC_ALL", "C");
    command
}

/// Runs a command to its end, with `input` as its standard input.
pub(super) fn feed(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // These programs read all input before they write. A program that does not read has failed, and its message states
    // the reason.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    child.wait_with_output()
}

/// Every kind of rule, for both address families.
const EVERY_LISTENER_KIND: [&str; 3] = [
    "tproxy://[::]:7001?interfaces=lan0&quic=refuse",
    "redirect://[::]:7002?interfaces=lan0&interfaces=lo",
    "tun://ekiden0?net=192.0.2.0/24,2001:db8::/32",
];

/// The next hop of the tunnel in [`EVERY_LISTENER_KIND`].
const NEXT_HOP: &str = "socks5://127.0.0.1:1";

/// Applies rules of every kind in a new network namespace; `None` without the privilege to create one.
///
/// # Errors
/// A feature is missing; the error names it and the remedy.
pub fn probe() -> Result<Option<Applied>, RulesError> {
    let flags = Flags {
        listen: EVERY_LISTENER_KIND.map(str::to_owned).into(),
        forward: vec![NEXT_HOP.to_owned()],
        ..Flags::default()
    };
    let config = load(None, &flags).expect("invariant: the listeners are valid");
    let rules = Ruleset::of(&config).expect("invariant: transparent listeners need rules");
    let Ok(namespace) = netns::new_network_namespace() else { return Ok(None) };
    let inside = || {
        let Ok(()) = netns::enter_network_namespace(namespace.as_fd()) else { return Ok(None) };
        run("ip", &["link", "set", "lo", "up"], "")?;
        rules.apply(Owner::Operator).map(Some)
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Returns whether policy routing of `instance` exists, which may be the only remaining part of its rules.
#[must_use]
pub fn has_parts(instance: u8) -> bool {
    [Family::Ipv4, Family::Ipv6]
        .into_iter()
        .any(|family| routing::is_installed(family, Marks::new(instance)).unwrap_or(false))
}
