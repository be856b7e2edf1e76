//! A program that runs on a host until it is dropped: started, found ready, watched.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::topology::network::HostHandle;

/// How long a program may take until it accepts connections.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How often it is looked at until then.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How many lines of its standard error an error quotes.
const QUOTED_LINES: usize = 5;

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// What people call it.
    pub name: String,
    /// Its executable.
    pub executable: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The TCP port on which it accepts connections once it is ready; none: it is ready at once.
    pub port: Option<u16>,
}

/// A program that runs. Dropping it kills its process group.
#[derive(Debug)]
pub struct Service {
    name: String,
    host: String,
    child: Child,
    log: PathBuf,
    killed: bool,
}

impl Service {
    /// Starts it, its output in a file in `folder`, and waits until it accepts connections.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not accept connections in 20 s; with its last lines.
    pub fn start(host: &HostHandle, launch: LaunchSpec, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{}-{}.log", launch.name, host.name()));
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let child = host
            .command(&launch.executable)
            .args(&launch.arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} on {}", launch.executable.display(), host.name()))?;
        let mut service = Self { name: launch.name, host: host.name().to_owned(), child, log, killed: false };
        if let Some(port) = launch.port {
            service.wait_until_ready(host, port)?;
        }
        Ok(service)
    }

    fn wait_until_ready(&mut self, host: &HostHandle, port: u16) -> anyhow::Result<()> {
        let addresses = [Ipv4Addr::LOCALHOST, host.address()].map(|address| SocketAddr::from((address, port)));
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if host.enter(|| addresses.iter().any(|to| TcpStream::connect_timeout(to, CONNECT_TIMEOUT).is_ok()))? {
                return Ok(());
            }
            if let Some(failure) = self.failure() {
                anyhow::bail!(failure);
            }
            anyhow::ensure!(!signal::is_interrupted(), "interrupted");
            let late = Instant::now() > deadline;
            anyhow::ensure!(
                !late,
                "{} on {} does not accept connections on port {port}: {}",
                self.name,
                self.host,
                self.tail()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The host it runs on.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Kills it, as a crash would. That is no failure.
    pub fn kill(&mut self) {
        self.killed = true;
        // The group may be gone already.
        let _ = signal::kill_group(self.child.id());
    }

    /// Why it does not run any more, with its last lines; `None` while it runs, or if it was killed as it was meant to be.
    pub fn failure(&mut self) -> Option<String> {
        if self.killed {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        Some(format!("{} on {} {}: {}", self.name, self.host, describe_exit(status), self.tail()))
    }

    /// Who it is and the last lines it printed, in one.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} on {}: {}", self.name, self.host, self.tail())
    }

    /// The last lines it printed, in one.
    fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The group may be gone already.
        let _ = signal::kill_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// The last lines of a log, in one.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "it printed nothing".into(),
        lines => lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" | "),
    }
}

/// How a process ended, as the end of a sentence.
fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_the_last_lines_only() {
        assert_eq!(last_lines("1\n2\n\n3\n4\n5\n6\n"), "2 | 3 | 4 | 5 | 6");
        assert_eq!(last_lines(" \n"), "it printed nothing");
    }

    #[test]
    fn an_end_is_told_by_status_or_signal() {
        assert_eq!(describe_exit(ExitStatus::from_raw(3 << 8)), "ended with exit status 3");
        assert_eq!(describe_exit(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}
