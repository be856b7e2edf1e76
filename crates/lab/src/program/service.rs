//! Supervised programs: started on a host, probed until ready, and killed on drop.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::topology::network::HostHandle;

/// Timeout until a program accepts connections.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of readiness probes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of one readiness probe.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of log lines quoted in errors.
const QUOTED_LINES: usize = 5;

/// Command line of a program, with its readiness port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// Name in logs and error messages.
    pub name: String,
    /// Path of the executable.
    pub executable: PathBuf,
    /// Arguments of the executable.
    pub arguments: Vec<String>,
    /// TCP port that accepts connections once the program is ready. `None`: no readiness probe.
    pub port: Option<u16>,
}

/// A running program. Dropping it kills its process group.
#[derive(Debug)]
pub struct Service {
    name: String,
    host: String,
    child: Child,
    log: PathBuf,
    killed: bool,
}

impl Service {
    /// Starts a program with its output in a log in `folder`, and waits until it accepts connections.
    ///
    /// # Errors
    /// The program cannot be started, exits, or does not accept connections within 20 s. The error has the last lines
    /// of the log.
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
            .with_context(|| format!("cannot start {} on {}", launch.executable.display(), host.name()))?;
        let mut service = Self { name: launch.name, host: host.name().to_owned(), child, log, killed: false };
        if let Some(port) = launch.port {
            service.wait_until_ready(host, port)?;
        }
        Ok(service)
    }

    fn wait_until_ready(&mut self, host: &HostHandle, port: u16) -> anyhow::Result<()> {
        let addresses = [Ipv4Addr::LOCALHOST.into(), host.address()].map(|address| SocketAddr::from((address, port)));
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

    /// Returns the name of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Kills the program, as a crash would. [`failure`](Self::failure) does not report this.
    pub fn kill(&mut self) {
        self.killed = true;
        // The process group may be gone already.
        let _ = signal::kill_group(self.child.id());
    }

    /// Returns how the program has exited, with the last lines of the log. Returns `None` while the program runs, or
    /// after [`kill`](Self::kill).
    pub fn failure(&mut self) -> Option<String> {
        if self.killed {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        Some(format!("{} on {} {}: {}", self.name, self.host, describe_exit(status), self.tail()))
    }

    /// Returns the name, the host and the last lines of the log, in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} on {}: {}", self.name, self.host, self.tail())
    }

    /// Returns the last lines of the log, in one line.
    fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The process group may be gone already.
        let _ = signal::kill_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// Returns the last lines of a log, joined into one line.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "no output".into(),
        lines => lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" | "),
    }
}

/// Describes the exit of a process, as the end of a sentence.
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
        assert_eq!(last_lines(" \n"), "no output");
    }

    #[test]
    fn exit_is_described_by_status_or_signal() {
        assert_eq!(describe_exit(ExitStatus::from_raw(3 << 8)), "ended with exit status 3");
        assert_eq!(describe_exit(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}
