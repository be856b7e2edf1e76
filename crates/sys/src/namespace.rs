//! A network namespace for each test, removed at the end of the test.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use ekiden_testing::eventually;

use crate::netns;
use crate::transparent::is_local;

/// Runs `test` on a thread in a new network namespace, after setting `lo` up and running `commands`, whose words are
/// separated by single spaces. If this fails, the function prints the reason and skips the test.
pub(crate) fn run_in_namespace(commands: &[&str], test: impl FnOnce() + Send) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let body = || match prepare(commands) {
        Ok(()) => test(),
        Err(why) => drop(writeln!(io::stderr(), "skipped: {name}: {why}")),
    };
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Waits until the address `ip` of this host has a route: the kernel adds the route of a new IPv6 address after the
/// address.
pub(crate) fn wait_for_route(ip: &str) {
    let ip = ip.parse().unwrap();
    eventually("the route of the address", || is_local(ip).unwrap().then_some(()));
}

fn prepare(commands: &[&str]) -> io::Result<()> {
    netns::enter_network_namespace(netns::new_network_namespace()?.as_fd())?;
    run("ip link set lo up")?;
    commands.iter().try_for_each(|command| run(command))
}

fn run(command: &str) -> io::Result<()> {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap_or_default());
    let output = program.args(words).output().map_err(|error| io::Error::other(format!("{command}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command}: {}", String::from_utf8_lossy(&output.stderr))))
}
