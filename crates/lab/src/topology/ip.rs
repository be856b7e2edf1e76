//! Runs `ip` of iproute2 to configure links, addresses, neighbours and routes.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::topology::host::HostHandle;

/// Runs commands in order up to the first failure, on a host, or in the emulator's network namespace if `host` is
/// `None`.
///
/// # Errors
/// `ip` is missing, or a command failed. The error has the command and the message of `ip`.
pub fn run_batch(host: Option<&HostHandle>, commands: &[String]) -> anyhow::Result<()> {
    let mut ip = ip_command(host, &["-batch", "-"]);
    ip.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn().map_err(spawn_error)?;
    let text: String = commands.iter().flat_map(|command| [command.as_str(), "\n"]).collect();
    let write_result = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().context("cannot wait for `ip`")?;
    if output.status.success() {
        return write_result.context("cannot write to `ip`");
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let failed = failed_command_number(&stderr).and_then(|number| commands.get(number - 1));
    let failed = failed.map_or_else(|| commands.join("; "), Clone::clone);
    let stderr = stderr.lines().filter(|line| !line.starts_with("Command failed")).collect::<Vec<_>>().join(" ");
    bail!("`ip {failed}`: {stderr}")
}

/// Returns the output of `ip`.
///
/// # Errors
/// `ip` is missing or failed.
pub fn query(host: Option<&HostHandle>, arguments: &[&str]) -> anyhow::Result<String> {
    let output = ip_command(host, arguments).output().map_err(spawn_error)?;
    if !output.status.success() {
        bail!("`ip {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip_command(host: Option<&HostHandle>, arguments: &[&str]) -> Command {
    let mut ip = host.map_or_else(|| Command::new("ip"), |host| host.command("ip"));
    ip.args(arguments);
    ip
}

fn spawn_error(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("there is no program `ip`: install the package iproute2"),
        _ => anyhow::Error::new(error).context("cannot start `ip`"),
    }
}

/// Parses the number of the failed command, from 1, out of `Command failed -:3`.
fn failed_command_number(stderr: &str) -> Option<usize> {
    let line = stderr.lines().find_map(|line| line.strip_prefix("Command failed -:"))?;
    line.trim().parse().ok().filter(|number| *number > 0)
}

/// Timeout until an interface is operational. After `up`, the kernel completes the change in the background (link
/// watch). Until then, the interface drops packets, and a new connection loses one second.
const OPERATIONAL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until all of these veth interfaces are operational, on a host, or in the emulator's network namespace if
/// `host` is `None`.
///
/// # Errors
/// An interface is not operational after 10 s, or `ip` failed.
pub fn wait_operational(host: Option<&HostHandle>, interfaces: &BTreeSet<&str>) -> anyhow::Result<()> {
    let deadline = Instant::now() + OPERATIONAL_TIMEOUT;
    while !interfaces.is_empty() {
        let shown = query(host, &["-o", "link", "show", "type", "veth"])?;
        let operational = shown.lines().filter_map(operational_interface).collect();
        let Some(waiting) = interfaces.difference(&operational).next() else { break };
        ensure!(Instant::now() < deadline, "interface {waiting:?} is not operational after {OPERATIONAL_TIMEOUT:?}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the interface of a line like `2: wan@if3: <UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT`, if
/// the interface is up.
fn operational_interface(line: &str) -> Option<&str> {
    let name = line.split(": ").nth(1)?;
    line.contains(" state UP ").then(|| name.split('@').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_command_number_is_parsed_from_ip_output() {
        assert_eq!(failed_command_number("Error: Nexthop has invalid gateway.\nCommand failed -:3\n"), Some(3));
        assert_eq!(failed_command_number("Cannot open file\n"), None);
    }

    #[test]
    fn only_interfaces_that_are_up_count() {
        let line = |state| {
            format!("2: wan@if3: <UP,LOWER_UP> mtu 1500 qdisc noqueue state {state} mode DEFAULT group default")
        };
        assert_eq!(operational_interface(&line("UP")), Some("wan"));
        assert_eq!(operational_interface(&line("LOWERLAYERDOWN")), None);
    }
}
