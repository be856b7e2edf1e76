//! For tests: a network namespace of the test's own, which ends with it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use crate::netns;

/// Runs `test` on a thread in a new network namespace where `lo` is up and `commands`, whose words are apart by one
/// space, have been run. Where this machine cannot do that it says so, and the test is skipped.
pub(crate) fn run_in_namespace(commands: &[&str], test: impl FnOnce() + Send) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let body = || match prepare(commands) {
        Ok(()) => test(),
        Err(why) => drop(writeln!(io::stderr(), "skipped: {name}: {why}")),
    };
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn prepare(commands: &[&str]) -> io::Result<()> {
    netns::enter_network_namespace(netns::new_network_namespace()?.as_fd())?;
    run("ip link set lo up")?;
    commands.iter().try_for_each(|command| run(command))
}

fn run(command: &str) -> io::Result<()> {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap_or_default());
    let done = program.args(words).output().map_err(|error| io::Error::other(format!("{command}: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command}: {}", String::from_utf8_lossy(&done.stderr))))
}
