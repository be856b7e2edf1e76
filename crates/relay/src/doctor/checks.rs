//! The single checks: each reads one thing and judges it.

use std::fs::read_to_string;

use super::{Finding, Verdict};

/// What a long fast path needs in flight: 1 Gbit/s times 100 ms, twice, because half a buffer is bookkeeping.
const TWO_BDP: u64 = 2 * 12_500_000;

/// A pipe as large as the pump likes it.
const PIPE: u64 = 1 << 20;

/// Runs every check.
pub fn all() -> Vec<Finding> {
    let checks: [fn() -> Finding; 11] = [
        kernel,
        open_files,
        send_buffer,
        receive_buffer,
        pipe_size,
        pipe_quota,
        congestion,
        slow_start,
        backlog,
        ports,
        privileges,
    ];
    checks.iter().map(|check| check()).collect()
}

pub(super) fn finding(subject: &str, found: String, wrong: Option<(Verdict, String)>) -> Finding {
    let (verdict, remedy) = wrong.unwrap_or((Verdict::Good, String::new()));
    Finding { verdict, subject: subject.to_owned(), found, remedy }
}

fn read(path: &str) -> Option<String> {
    read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The last of the numbers in a file of /proc/sys; 0 where there is none.
pub(super) fn number(path: &str) -> u64 {
    read(path).and_then(|text| text.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

fn hint(when: bool, remedy: impl Into<String>) -> Option<(Verdict, String)> {
    when.then(|| (Verdict::Could, remedy.into()))
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let old = hint(version < (6, 15), "Linux 6.15 brings rto_min, rto_max and delack_max for single sections");
    finding("kernel", release, old)
}

fn open_files() -> Finding {
    let limits = read("/proc/self/limits").unwrap_or_default();
    let hard = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .and_then(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    let low = hint(hard < 65_536, "raise it: LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn");
    finding("open files, hard limit", format!("{hard}, for about {} sessions", hard / 2), low)
}

fn send_buffer() -> Finding {
    let most = number("/proc/sys/net/ipv4/tcp_wmem");
    let low = hint(
        most < TWO_BDP,
        format!(
            "one section cannot pass {} Mbit/s at 100 ms: sysctl net.ipv4.tcp_wmem=\"4096 16384 33554432\"",
            most * 80 / 2 / 1_000_000
        ),
    );
    finding("send buffer ceiling", format!("tcp_wmem up to {most} bytes"), low)
}

fn receive_buffer() -> Finding {
    let most = number("/proc/sys/net/ipv4/tcp_rmem");
    let low = hint(most < TWO_BDP, "sysctl net.ipv4.tcp_rmem=\"4096 131072 33554432\"");
    finding("receive buffer ceiling", format!("tcp_rmem up to {most} bytes"), low)
}

fn pipe_size() -> Finding {
    let most = number("/proc/sys/fs/pipe-max-size");
    let low = hint(most < PIPE, "splicing costs more with small pipes: sysctl fs.pipe-max-size=1048576");
    finding("pipe size ceiling", format!("{most} bytes"), low)
}

fn pipe_quota() -> Finding {
    let pages = number("/proc/sys/fs/pipe-user-pages-soft");
    let pipes = pages * 4096 / PIPE;
    // The quota does not bind CAP_SYS_RESOURCE (pipe(7)); 0 is no quota.
    let bound = pages != 0 && ekiden_sys::process::effective_user() != 0;
    let low = hint(
        bound && pipes < 256,
        format!(
            "beyond {pipes} transfers at once pipes shrink and then bytes are copied: sysctl fs.pipe-user-pages-soft=262144"
        ),
    );
    finding("pipe quota of a user", format!("{pages} pages, {pipes} pipes of 1 MiB"), low)
}

fn congestion() -> Finding {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let lacks = !available.split_whitespace().any(|name| name == "bbr");
    finding("congestion controls", available, hint(lacks, "longhaul, lossy and satellite want bbr: modprobe tcp_bbr"))
}

fn slow_start() -> Finding {
    let on = number("/proc/sys/net/ipv4/tcp_slow_start_after_idle") == 1;
    let found = if on { "restarts from a small window" } else { "keeps the window" };
    let remedy = "kept connections lose their speed while idle: sysctl net.ipv4.tcp_slow_start_after_idle=0";
    finding("after an idle time TCP", found.to_owned(), hint(on, remedy))
}

fn backlog() -> Finding {
    let most = number("/proc/sys/net/core/somaxconn");
    let low = hint(most < 4096, "bursts of new connections are dropped: sysctl net.core.somaxconn=4096");
    finding("accept queue", format!("{most} connections"), low)
}

fn ports() -> Finding {
    let range = read("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|text| text.parse::<u32>().ok());
    let (first, last) = (ends.next().unwrap_or(0), ends.next().unwrap_or(0));
    let few = hint(
        last.saturating_sub(first) < 28_000,
        "so many sessions to one target at most: sysctl net.ipv4.ip_local_port_range=\"1024 65535\"",
    );
    finding("local ports", format!("{first} to {last}"), few)
}

/// Whether we have `CAP_NET_ADMIN`.
pub(super) fn is_net_admin() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.unwrap_or(0) & NET_ADMIN != 0
}

fn privileges() -> Finding {
    let has = is_net_admin();
    let found = if has { "CAP_NET_ADMIN" } else { "no CAP_NET_ADMIN" };
    let remedy = "tproxy, redirect, keep_client_address, fwmark and restricted congestion controls need it: \
        AmbientCapabilities=CAP_NET_ADMIN in the systemd unit";
    finding("privileges", found.to_owned(), hint(!has, remedy))
}
