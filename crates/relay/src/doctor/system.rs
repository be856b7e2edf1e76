//! The state of a machine, read once; the checks themselves read nothing. Every value may be missing: a container hides
//! much of /proc/sys, and a network namespace has only a part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};

use ekiden_sys::adjtimex::{self, ClockStatus};
use ekiden_sys::link::{self, Links, SuperpacketLimits};
use ekiden_sys::process;

/// Kernel settings that the checks use, by their names in sysctl(8).
const SETTINGS: &[&str] = &[
    "fs.pipe-max-size",
    "fs.pipe-user-pages-soft",
    "kernel.osrelease",
    "net.core.default_qdisc",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv6.conf.all.forwarding",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
];

const NET_ADMIN: u32 = 12;
const SYS_RESOURCE: u32 = 24;

/// The values of kernel settings and limits that the checks need.
#[derive(Debug, Clone, Default)]
pub struct SystemState {
    /// Values of sysctl(8), by name.
    pub settings: BTreeMap<&'static str, String>,
    /// Number of files that a relay may have open after it has raised its limit.
    pub open_files: Option<u64>,
    /// The effective capabilities as a bit mask (capabilities(7)).
    pub capabilities: u64,
    /// Number of TCP connections in TIME_WAIT, which keep their port for a minute.
    pub time_wait: Option<u64>,
    /// The state of the clock, or the reason why it is unknown.
    pub clock: Option<Result<ClockStatus, String>>,
    /// Size of a memory page in bytes.
    pub page_size: u64,
    /// The devices of default routes, with their largest superpackets.
    pub uplinks: Vec<(String, SuperpacketLimits)>,
    /// Persistent TUN devices (`ip tuntap add`) with names such as ekiden uses.
    pub persistent_devices: Vec<String>,
}

impl SystemState {
    /// Reads the state of this machine, as visible to this process.
    #[must_use]
    pub fn collect() -> Self {
        let of = |name: &&'static str| Some((*name, read_trimmed(&format!("/proc/sys/{}", name.replace('.', "/")))?));
        Self {
            settings: SETTINGS.iter().filter_map(of).collect(),
            open_files: open_files(),
            capabilities: capabilities(),
            time_wait: time_wait(),
            clock: Some(adjtimex::read().map_err(|error| error.to_string())),
            page_size: process::page_size(),
            uplinks: uplinks(),
            persistent_devices: persistent_devices(),
        }
    }

    /// Returns the text of a setting.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Returns a number of a setting by its index, counted from 0.
    #[must_use]
    pub fn number(&self, name: &str, index: usize) -> Option<u64> {
        self.text(name)?.split_whitespace().nth(index)?.parse().ok()
    }

    /// Returns the words of a setting.
    pub fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).unwrap_or_default().split_whitespace()
    }

    /// Returns the major and minor version of the kernel.
    #[must_use]
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut parts = self.text("kernel.osrelease")?.split(['.', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Returns whether this process has `CAP_NET_ADMIN`.
    #[must_use]
    pub const fn has_net_admin(&self) -> bool {
        self.capabilities & (1 << NET_ADMIN) != 0
    }

    /// Returns whether this process has `CAP_SYS_RESOURCE` and is exempt from quotas of pipes (pipe(7)).
    #[must_use]
    pub const fn has_no_pipe_quota(&self) -> bool {
        self.capabilities & (1 << SYS_RESOURCE) != 0
    }
}

fn read_trimmed(path: &str) -> Option<String> {
    read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn open_files() -> Option<u64> {
    let limits = read_trimmed("/proc/self/limits")?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

fn capabilities() -> u64 {
    let status = read_trimmed("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.unwrap_or(0)
}

/// Reads the number of TCP sockets in TIME_WAIT, from a line such as `TCP: inuse 26 orphan 0 tw 837 alloc 73 mem 217`.
fn time_wait() -> Option<u64> {
    let sockets = read_trimmed("/proc/self/net/sockstat")?;
    let mut words = sockets.lines().find_map(|line| line.strip_prefix("TCP:"))?.split_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

/// Returns the devices of default routes and their limits. A line of `route` is `eth0 00000000 0100000A ...`, with the
/// destination second. A line of `ipv6_route` begins with the destination and its prefix length, and ends with the
/// device.
fn uplinks() -> Vec<(String, SuperpacketLimits)> {
    let (ipv4, ipv6) = (read_trimmed("/proc/self/net/route"), read_trimmed("/proc/self/net/ipv6_route"));
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let ipv4 = ipv4.iter().flat_map(|routes| routes.lines()).map(columns);
    let ipv4 = ipv4.filter(|route| route.get(1).is_some_and(|to| to == "00000000")).map(|route| route[0].clone());
    let ipv6 = ipv6.iter().flat_map(|routes| routes.lines()).map(columns);
    let ipv6 = ipv6
        .filter(|route| route.get(1).is_some_and(|length| length == "00") && !route[0].contains(|digit| digit != '0'));
    let ipv6 = ipv6.filter_map(|mut route| route.pop());
    let names: BTreeSet<String> = ipv4.chain(ipv6).filter(|name| name != "lo").collect();
    let Ok(links) = Links::open() else { return Vec::new() };
    let limits = |name: &String| links.superpacket_limits(link::index(name)?).ok();
    names.into_iter().filter_map(|name| limits(&name).map(|limits| (name, limits))).collect()
}

/// Returns the TUN devices with the flag `IFF_PERSIST` (linux/if_tun.h). A relay does not create these: its devices are
/// removed when it ends.
fn persistent_devices() -> Vec<String> {
    const PERSIST: u64 = 0x800;
    let names = read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_kept = |name: &String| {
        let flags = read_trimmed(&format!("/sys/class/net/{name}/tun_flags"));
        let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
        name.starts_with("ekiden") && flags.is_some_and(|flags| flags & PERSIST != 0)
    };
    names.filter(is_kept).collect()
}
