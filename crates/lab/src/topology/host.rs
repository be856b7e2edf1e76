//! A host of a running lab: a handle to its network namespace, and its TCP window, the maximum data in flight of a
//! connection.
//!
//! As a receiver, a host offers its receive buffer less the kernel's overhead: on Linux 6.18 the window is 0.657 of the
//! buffer, measured with `ss` at buffers of 400,000 to 600,000 bytes. As a sender, the send buffer would be only a
//! loose bound, since programs refill it only when a third is free. Routes therefore bound the congestion window (`cwnd
//! lock`, `ip-route(8)`), and `ss` shows the exact bound. The kernel applies the bound from its destination cache
//! (`ip-tcp_metrics(8)`), which the first connection to an address fills when it ends; later connections are bound.
//!
//! A host with a window of at most 64 KiB predates RFC 7323: it uses neither window scaling nor timestamps, and its
//! peers are bound by that as well.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::{fs, io};

use anyhow::Context as _;
use ekiden_proto::units::Bytes;
use ekiden_sys::netns;

use super::{Family, Host, kernel_settings};

/// A host of a running lab.
pub struct HostHandle {
    name: String,
    address: IpAddr,
    ipv4: Ipv4Addr,
    namespace: Arc<OwnedFd>,
}

impl HostHandle {
    pub(super) fn new(name: &str, address: IpAddr, ipv4: Ipv4Addr) -> anyhow::Result<Self> {
        let namespace = netns::new_network_namespace()
            .with_context(|| format!("host {name:?}: cannot create a network namespace"))?;
        Ok(Self { name: name.to_owned(), address, ipv4, namespace: Arc::new(namespace) })
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address to which the name resolves on every host of the lab: that of its first link, by name of
    /// link.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the IPv4 address of the same interface.
    #[must_use]
    pub const fn ipv4(&self) -> Ipv4Addr {
        self.ipv4
    }

    /// Returns a command that runs on this host. The process dies with the lab, as every process in the lab's pid
    /// namespace does. (`PR_SET_PDEATHSIG` would kill it when the starting *thread* ends.)
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        netns::start_in_network_namespace(&mut command, Arc::clone(&self.namespace));
        command
    }

    /// Runs `work` on a new thread on this host.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || netns::enter_network_namespace(self.namespace.as_fd()).map(|()| work());
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns a path by which other processes of the lab can open the namespace while this process lives.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn namespace_path(&self) -> io::Result<PathBuf> {
        // The pid of getpid(2) differs if /proc belongs to an outer pid namespace.
        let me = fs::read_link("/proc/self")?;
        Ok(PathBuf::from("/proc").join(me).join("fd").join(self.namespace.as_raw_fd().to_string()))
    }

    /// Sets sysctls of this host and verifies their values.
    pub(super) fn set_sysctls<'a>(
        &self,
        settings: impl Iterator<Item = (&'a str, &'a str)> + Send,
    ) -> anyhow::Result<()> {
        let mut settings = settings;
        self.enter(|| {
            settings.try_for_each(|(key, value)| {
                kernel_settings::set_sysctl(key, value)
                    .with_context(|| format!("host {:?}: sysctl {key} = {value:?}", self.name))
            })
        })?
    }
}

/// Maximum window without scaling (RFC 9293 section 3.1), in bytes.
pub const MAX_UNSCALED_WINDOW: u64 = 65_535;
/// Size of the TCP header with timestamps, in bytes.
const TCP_HEADER_BYTES: u32 = 32;

/// Returns the effective window, in bytes.
#[must_use]
pub fn usable_bytes(window: Bytes) -> u64 {
    if is_scaled(window) { window.0 } else { window.0.min(MAX_UNSCALED_WINDOW) }
}

/// Returns whether a host sends timestamps (RFC 7323), according to its window.
#[must_use]
pub fn has_timestamps(host: &Host) -> bool {
    host.window.is_none_or(is_scaled)
}

const fn is_scaled(window: Bytes) -> bool {
    window.0 > MAX_UNSCALED_WINDOW + 1
}

/// Returns the maximum number of packets of `mtu` bytes in flight, if routes have to bound it.
#[must_use]
pub fn max_packets(window: Bytes, mtu: u32, family: Family) -> Option<u64> {
    let payload = u64::from(mtu.saturating_sub(family.header_len() + TCP_HEADER_BYTES)).max(1);
    is_scaled(window).then(|| (window.0 / payload).max(1))
}

/// Returns the sysctls that set a window.
#[must_use]
pub fn window_sysctls(window: Bytes) -> Vec<(&'static str, String)> {
    if !is_scaled(window) {
        return ["net.ipv4.tcp_window_scaling", "net.ipv4.tcp_timestamps"].map(|key| (key, "0".to_owned())).into();
    }
    let receive = window.0 * 1000 / 657;
    vec![
        ("net.ipv4.tcp_rmem", format!("4096 {} {receive}", receive.min(131_072))),
        // The send buffer is large enough never to bound the connection.
        ("net.ipv4.tcp_wmem", format!("4096 65536 {}", 4 * window.0)),
        ("net.ipv4.tcp_no_metrics_save", "0".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_window_sets_receive_buffer_and_packet_limit() {
        let window = Bytes(256 << 10);
        let settings = window_sysctls(window);
        assert_eq!(settings[0], ("net.ipv4.tcp_rmem", "4096 131072 399001".to_owned()));
        assert_eq!((max_packets(window, 1500, Family::Ipv4), usable_bytes(window)), (Some(181), 262_144));
    }

    #[test]
    fn small_window_disables_scaling_and_timestamps() {
        let window = Bytes(64 << 10);
        assert!(window_sysctls(window).contains(&("net.ipv4.tcp_window_scaling", "0".to_owned())));
        assert_eq!((max_packets(window, 1500, Family::Ipv4), usable_bytes(window)), (None, 65_535));
        assert!(!has_timestamps(&Host { window: Some(window), ..Host::default() }));
        assert!(has_timestamps(&Host::default()));
    }
}
