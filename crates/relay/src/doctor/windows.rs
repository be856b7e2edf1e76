//! Compares the upper bounds of one connection's data in flight with the bandwidth-delay product of the workload: a
//! connection transfers at most one window in each round trip.

use ekiden_proto::profile::{Profile, Setting};
use ekiden_proto::units::Bytes;

use super::Finding;
use super::system::SystemState;
use super::workload::Workload;

/// Runs all checks of buffers and windows.
pub fn checks(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    let mut findings = vec![send_buffer(reading, purpose), receive_buffer(reading, purpose)];
    findings.extend(scaling(reading, purpose));
    findings.extend([memory(reading, purpose), slow_start(reading), mtu_probing(reading)]);
    findings.extend(purpose.profiles().iter().flat_map(|profile| check_fixed_buffers(reading, purpose, profile)));
    findings
}

/// Rounds up to a power of two, at least 1 MiB.
fn round_up(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(1 << 20)
}

/// Returns the command that sets the last number of `setting`.
fn raise_command(reading: &SystemState, setting: &str, limit: u64) -> String {
    let first: Vec<&str> = reading.words(setting).take(2).collect();
    format!("sysctl -w {setting}=\"{} {limit}\"", first.join(" "))
}

/// Checks the send buffer. Sent data stays in this buffer until it is acknowledged, so the buffer bounds the data in
/// flight. Linux accepts up to 1 MiB more (seen on 6.18), so the bound of a small buffer is looser than its size.
fn send_buffer(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_wmem";
    let subject = "send buffer ceiling";
    let Some(limit) = reading.number(SETTING, 2) else {
        return Finding::unknown("send_buffer", subject, SETTING);
    };
    let finding = Finding::new("send_buffer", subject, format!("tcp_wmem up to {limit} bytes"));
    // The factor of two leaves room for unsent bytes and the kernel's bookkeeping.
    let fix = raise_command(reading, SETTING, round_up(2 * purpose.bandwidth_delay_product()));
    finding.with_hint_if(limit < purpose.bandwidth_delay_product(), purpose.limit_message(limit), fix)
}

/// Returns the part of a receive buffer that is advertised as window; the rest is overhead of the kernel. The window is
/// about two thirds, as measured on Linux 6.18 (docs/lab.md, `window`), and half before 6.6 (`tcp_adv_win_scale` of
/// ip-sysctl).
const fn offered_window(reading: Option<(u32, u32)>, buffer: u64) -> u64 {
    match reading {
        Some((major, minor)) if major > 6 || (major == 6 && minor >= 6) => buffer / 3 * 2,
        _ => buffer / 2,
    }
}

fn receive_buffer(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_rmem";
    let subject = "receive buffer ceiling";
    let Some(limit) = reading.number(SETTING, 2) else {
        return Finding::unknown("receive_buffer", subject, SETTING);
    };
    let window = offered_window(reading.kernel_version(), limit);
    let finding = Finding::new("receive_buffer", subject, format!("tcp_rmem up to {limit} bytes"));
    let fix = raise_command(reading, SETTING, round_up(2 * purpose.bandwidth_delay_product()));
    finding.with_hint_if(window < purpose.bandwidth_delay_product(), purpose.limit_message(window), fix)
}

/// Checks window scaling, without which a window has 16 bits (RFC 7323).
fn scaling(reading: &SystemState, purpose: &Workload) -> Option<Finding> {
    const SETTING: &str = "net.ipv4.tcp_window_scaling";
    let off = reading.number(SETTING, 0)? == 0;
    let finding = Finding::new("window_scaling", "window scaling", if off { "off" } else { "on" });
    Some(finding.with_hint_if(off, purpose.limit_message(65_535), format!("sysctl -w {SETTING}=1")))
}

/// Checks the memory of all sockets together (tcp(7)). Above the second of the three numbers, under memory pressure, no
/// window grows.
fn memory(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_mem";
    const MIB: u64 = 1 << 20;
    let subject = "memory of all sockets";
    let Some(pages) = reading.number(SETTING, 1) else {
        return Finding::unknown("tcp_memory", subject, SETTING);
    };
    let page = reading.page_size.max(1);
    let full = (pages * page / purpose.bandwidth_delay_product().max(1)).max(1);
    let found = format!(
        "tcp_mem: {} MiB, {full} full windows of {} KiB",
        pages * page / MIB,
        purpose.bandwidth_delay_product() / 1024
    );
    let wanted = (16 * purpose.bandwidth_delay_product()).div_ceil(page);
    let fix = format!("sysctl -w {SETTING}=\"{} {wanted} {}\"", wanted / 4 * 3, wanted / 2 * 3);
    let effect = format!("when more than {full} connections have full windows, the kernel shrinks all of them");
    Finding::new("tcp_memory", subject, found).with_hint_if(full < 8, effect, fix)
}

/// Checks slow start after idle (RFC 2861): persistent connections, such as those between relays, restart with ten
/// packets after an idle period.
fn slow_start(reading: &SystemState) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_slow_start_after_idle";
    let subject = "after an idle time TCP";
    let Some(on) = reading.number(SETTING, 0).map(|number| number == 1) else {
        return Finding::unknown("slow_start_after_idle", subject, SETTING);
    };
    let found = if on { "restarts from a small window" } else { "keeps the window" };
    let effect =
        "a connection that was idle for one retransmission timeout (200 ms or more) begins again with 10 packets";
    let fix = format!("sysctl -w {SETTING}=0");
    Finding::new("slow_start_after_idle", subject, found).with_hint_if(on, effect, fix)
}

/// Checks packetisation-layer path-MTU discovery (RFC 4821), which a connection needs when its packets are too long for
/// the path and no ICMP message arrives.
fn mtu_probing(reading: &SystemState) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_mtu_probing";
    let subject = "path MTU without ICMP";
    let Some(mode) = reading.number(SETTING, 0) else {
        return Finding::unknown("mtu_probing", subject, SETTING);
    };
    let found = ["not probed", "probed after timeouts", "always probed"];
    let found = found.get(mode as usize).copied().unwrap_or("an unknown value");
    let effect =
        "behind a router that drops long packets without an ICMP error, connections establish but transfer nothing";
    Finding::new("mtu_probing", subject, found).with_hint_if(mode == 0, effect, format!("sysctl -w {SETTING}=1"))
}

/// Checks the buffers that a profile fixes; they take precedence over the settings above.
fn check_fixed_buffers(reading: &SystemState, purpose: &Workload, profile: &Profile) -> Vec<Finding> {
    let judge = |setting: &Setting| match setting {
        Setting::Sndbuf(size) => Some(check_buffer(reading, purpose, profile, setting, *size)),
        Setting::InitialRwnd(size) => Some(check_initial_rwnd(reading, profile, size.0)),
        Setting::Rcvbuf(size) => Some(check_buffer(reading, purpose, profile, setting, *size)),
        Setting::WindowClamp(size) => Some(check_window(purpose, profile, setting, size.0)),
        _ => None,
    };
    profile.settings().iter().filter_map(judge).collect()
}

/// Checks a buffer that a profile fixes. Without `CAP_NET_ADMIN` the kernel limits the buffer to its own bound
/// (socket(7)).
fn check_buffer(
    reading: &SystemState,
    purpose: &Workload,
    profile: &Profile,
    setting: &Setting,
    Bytes(size): Bytes,
) -> Finding {
    let ceiling = if matches!(setting, Setting::Sndbuf(_)) { "net.core.wmem_max" } else { "net.core.rmem_max" };
    match reading.number(ceiling, 0) {
        Some(limit) if limit < size && !reading.has_net_admin() => {
            let finding = check_window(purpose, profile, setting, limit);
            let effect = format!("cut to {limit} bytes: {}", purpose.limit_message(limit));
            finding.with_hint(effect, format!("sysctl -w {ceiling}={size}"))
        }
        _ => check_window(purpose, profile, setting, size),
    }
}

/// Checks the initial receive window of dialled sections. It is bounded by `rmem_max` without `CAP_NET_ADMIN`, and by
/// 64 KiB before commit 378979e94e95 of Linux, which is in 6.10, and in 6.1 and 6.9 since June 2024.
fn check_initial_rwnd(reading: &SystemState, profile: &Profile, size: u64) -> Finding {
    const CEILING: &str = "net.core.rmem_max";
    let limit = reading.number(CEILING, 0).filter(|limit| *limit < size && !reading.has_net_admin());
    let has_bound = |version| version < (6, 10) && !matches!(version, (6, 1 | 9));
    let is_capped = reading.kernel_version().is_some_and(has_bound);
    let (window, fix) = match (is_capped, limit) {
        (true, _) => (65_535, String::new()),
        (false, Some(limit)) => (limit, format!("sysctl -w {CEILING}={size}")),
        (false, None) => (size, String::new()),
    };
    let finding =
        Finding::new("initial_rwnd", format!("profile {}", profile.name), format!("first window {window} bytes"));
    let reason = if is_capped {
        "this kernel limits it to 65535 bytes; Linux 6.10 does not"
    } else {
        "limited by net.core.rmem_max"
    };
    let effect = format!("a transfer of {size} bytes needs extra round trips until the window has grown: {reason}");
    finding.with_hint_if(window < size, effect, fix)
}

fn check_window(purpose: &Workload, profile: &Profile, setting: &Setting, window: u64) -> Finding {
    let finding = Finding::new("profile_window", format!("profile {}", profile.name), setting.to_string());
    finding.with_hint_if(
        window < purpose.bandwidth_delay_product(),
        format!("{} limits the window: {}", setting.key(), purpose.limit_message(window)),
        "",
    )
}
