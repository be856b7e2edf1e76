//! Messages of a service to its manager (sd_notify(3), sd_watchdog_enabled(3)): one datagram of `NAME=VALUE` lines
//! each.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::clock::monotonic;

/// Timeout for a manager that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection to the service manager. By default there is no manager.
#[derive(Debug, Default)]
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads the manager's environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`. Without the first,
    /// messages are dropped.
    ///
    /// # Errors
    /// `InvalidInput` for a `NOTIFY_SOCKET` that is neither a path from the root nor an abstract name with `@`; else
    /// the kernel's.
    pub fn from_env() -> io::Result<Self> {
        Self::read(|name| env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let manager = match variable("NOTIFY_SOCKET") {
            Some(name) => Some((UnixDatagram::unbound()?, address(&name)?)),
            None => None,
        };
        if let Some((socket, _)) = &manager {
            socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        }
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables may be inherited and describe the watchdog of another process.
        let is_own = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(std::process::id().into());
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_own && *micros > 0).map(Duration::from_micros);
        Ok(Self { manager, watchdog })
    }

    /// Returns the time after the last watchdog message at which the manager kills this process; `None` without a
    /// watchdog.
    #[must_use]
    pub const fn watchdog_timeout(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the service is ready, at the start or after `reloading`.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn ready(&self) -> io::Result<()> {
        self.send("READY=1")
    }

    /// Reports that the service reloads its configuration; `ready` reports the end of the reload.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn reloading(&self) -> io::Result<()> {
        // By this time the manager recognises the reload that it has requested.
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic().as_micros()))
    }

    /// Reports that the service is about to end.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn stopping(&self) -> io::Result<()> {
        self.send("STOPPING=1")
    }

    /// Sends a keep-alive message for the watchdog.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn watchdog_ping(&self) -> io::Result<()> {
        self.send("WATCHDOG=1")
    }

    /// Sends one line about the service for `systemctl status`.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn status(&self, text: &str) -> io::Result<()> {
        // A line break would begin another assignment.
        self.send(&format!("STATUS={}", text.replace(['\n', '\r'], " ")))
    }

    /// Reports that process `pid` is the main process from now on; the manager then ignores messages of this process.
    ///
    /// # Errors
    /// The kernel's error; nothing is sent then.
    pub fn set_main_pid(&self, pid: u32) -> io::Result<()> {
        self.send(&format!("MAINPID={pid}"))
    }

    fn send(&self, state: &str) -> io::Result<()> {
        let Some((socket, address)) = &self.manager else { return Ok(()) };
        loop {
            match socket.send_to_addr(state.as_bytes(), address) {
                // Retry after a signal.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET must begin with / or @")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(variables: &[(&str, &str)]) -> io::Result<Notifier> {
        Notifier::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    fn receive_text(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        manager.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn check_all_messages(manager: &UnixDatagram, name: &str) {
        let notifier = notifier(&[("NOTIFY_SOCKET", name)]).unwrap();
        notifier.ready().unwrap();
        assert_eq!(receive_text(manager), "READY=1");
        notifier.watchdog_ping().unwrap();
        assert_eq!(receive_text(manager), "WATCHDOG=1");
        let before = monotonic();
        notifier.reloading().unwrap();
        let reloading = receive_text(manager);
        let at = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!((before.as_micros()..=monotonic().as_micros()).contains(&at), "{reloading}");
        notifier.status("one\nREADY=1").unwrap();
        assert_eq!(receive_text(manager), "STATUS=one READY=1");
        notifier.set_main_pid(4711).unwrap();
        assert_eq!(receive_text(manager), "MAINPID=4711");
        notifier.stopping().unwrap();
        assert_eq!(receive_text(manager), "STOPPING=1");
    }

    #[test]
    fn messages_reach_a_socket_at_a_path() {
        let path = env::temp_dir().join(format!("ekiden-notify-{}", std::process::id()));
        let manager = UnixDatagram::bind(&path).unwrap();
        // The file is removed even if an assertion fails.
        let result = std::panic::catch_unwind(|| check_all_messages(&manager, path.to_str().unwrap()));
        std::fs::remove_file(&path).unwrap();
        result.unwrap();
    }

    #[test]
    fn messages_reach_an_abstract_socket() {
        let name = format!("ekiden-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        check_all_messages(&manager, &format!("@{name}"));
    }

    #[test]
    fn unset_socket_is_ignored_and_unusable_sockets_are_errors() {
        notifier(&[]).unwrap().ready().unwrap();
        let name = format!("@ekiden-no-socket-{}", std::process::id());
        let gone = notifier(&[("NOTIFY_SOCKET", &name)]).unwrap();
        assert_eq!(gone.ready().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        for name in ["", "relative", "vsock:2:1234"] {
            assert_eq!(notifier(&[("NOTIFY_SOCKET", name)]).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn full_socket_of_the_manager_does_not_block() {
        let name = format!("ekiden-deaf-{}", std::process::id());
        let _manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = notifier(&[("NOTIFY_SOCKET", &format!("@{name}"))]).unwrap();
        let error = std::iter::repeat_with(|| notifier.watchdog_ping()).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn watchdog_timeout_applies_to_the_named_process_only() {
        let own = std::process::id().to_string();
        let watchdog = |variables: &[(&str, &str)]| notifier(variables).unwrap().watchdog_timeout();
        assert_eq!(watchdog(&[]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "30000000")]), Some(Duration::from_secs(30)));
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "500"), ("WATCHDOG_PID", &own)]), Some(Duration::from_micros(500)));
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "500"), ("WATCHDOG_PID", "1")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "500"), ("WATCHDOG_PID", "no number")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "soon")]), None);
    }
}
