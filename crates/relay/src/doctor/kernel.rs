//! Checks of the kernel: version, congestion controls, pacing, permissions, and the clock.

use std::collections::BTreeSet;

use ekiden_proto::profile::{Algorithm, Profile, Setting};
use ekiden_proto::tuning::{SHORT_PATH_CONTROL, is_cheap_control};
use ekiden_proto::units::Bytes;
use ekiden_sys::link::SuperpacketLimits;

use super::system::SystemState;
use super::workload::Workload;
use super::{Finding, Verdict};

/// Kernel versions that introduced optional features of ekiden.
const KERNEL_FEATURES: [((u32, u32), &str); 6] = [
    ((5, 6), "Multipath TCP, and congestion controls in BPF (5.6)"),
    ((5, 12), "`ekiden aqm` (5.12)"),
    ((6, 0), "the congestion control cubicresume, and kernel TLS (6.0)"),
    ((6, 2), "`ekiden aqm attach --backlog` (6.2)"),
    ((6, 4), "congestion controls that the kernel unloads when the relay is killed (6.4)"),
    ((6, 15), "rto_min, rto_max and delack_max for single sections (6.15)"),
];

/// Runs all checks of the kernel.
pub fn checks(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    let mut findings = vec![
        version(reading),
        congestion(reading, purpose),
        short_paths(reading, purpose),
        pacing(reading, purpose),
        fast_open(reading, purpose),
        privileges(reading, purpose),
        clock(reading),
    ];
    findings.extend(reading.uplinks.iter().map(|(device, limits)| big_tcp(device, *limits)));
    findings
}

fn version(reading: &SystemState) -> Finding {
    let Some(version) = reading.kernel_version() else {
        return Finding::unknown("kernel", "kernel", "kernel.osrelease");
    };
    let missing: Vec<&str> =
        KERNEL_FEATURES.iter().filter(|(since, _)| version < *since).map(|(_, what)| *what).collect();
    let finding = Finding::new("kernel", "kernel", reading.text("kernel.osrelease").unwrap_or_default());
    finding.with_hint_if(!missing.is_empty(), format!("lacks {}", missing.join("; ")), "")
}

/// Checks for congestion controls that profiles request and that this process may neither use nor load.
fn congestion(reading: &SystemState, purpose: &Workload) -> Finding {
    const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
    const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
    let subject = "congestion controls";
    let Some(available) = reading.text(AVAILABLE) else {
        return Finding::unknown("congestion", subject, AVAILABLE);
    };
    let default = reading.text("net.ipv4.tcp_congestion_control").unwrap_or("?");
    let finding = Finding::new("congestion", subject, format!("{available}; the default is {default}"));
    let contains = |setting: &str, name: &str| reading.words(setting).any(|word| word == name);
    let profiles = purpose.profiles();
    let requested = profiles.iter().filter_map(|profile| Some(profile.congestion()?.0.as_str()));
    let requested: BTreeSet<&str> = requested.filter(|name| !(purpose.can_load)(name)).collect();
    let (mut effects, mut fixes) = (Vec::new(), Vec::new());
    for name in requested {
        let ours = !Algorithm(name.to_owned()).fallbacks().is_empty();
        if !contains(AVAILABLE, name) {
            effects.push(format!("profiles that request {name} use another congestion control"));
            fixes.push(if ours { format!("ekiden cc load {name}") } else { format!("modprobe tcp_{name}") });
        } else if reading.text(ALLOWED).is_some() && !contains(ALLOWED, name) && !reading.has_net_admin() {
            let allowed = reading.text(ALLOWED).unwrap_or_default();
            effects.push(format!("{name} requires CAP_NET_ADMIN, which this process lacks"));
            fixes.push(format!("sysctl -w {ALLOWED}=\"{allowed} {name}\""));
        }
    }
    finding.with_hint_if(!effects.is_empty(), effects.join("; "), fixes.join("; "))
}

/// Reports the congestion control that `congestion = "auto"` chooses on this host, and its benefit.
fn short_paths(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_congestion_control";
    let subject = "short paths";
    let Some(default) = reading.text(SETTING) else {
        return Finding::unknown("short_paths", subject, SETTING);
    };
    if is_cheap_control(default) {
        return Finding::new("short_paths", subject, format!("use the default, {default}"));
    }
    let found = format!("use {SHORT_PATH_CONTROL} with congestion = \"auto\"; the default, {default}, paces");
    let chooses = purpose.profiles().iter().any(Profile::has_auto_congestion);
    let effect =
        format!("{default} without fq takes about three times the CPU time of {SHORT_PATH_CONTROL} for each byte");
    let fix = "profile = \"lan\" for listeners and targets";
    Finding::new("short_paths", subject, found).with_hint_if(!chooses, effect, fix)
}

/// Checks the queueing discipline for pacing, which BBR and `pacing_rate` use. Without fq each socket paces with a
/// timer (Linux 4.13).
fn pacing(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.core.default_qdisc";
    let subject = "pacing";
    let Some(qdisc) = reading.text(SETTING) else {
        return Finding::unknown("pacing", subject, SETTING);
    };
    let is_bbr = |setting: &Setting| matches!(setting, Setting::Congestion(name) if name.0 == "bbr");
    let paced = purpose.has_setting(|setting| is_bbr(setting) || matches!(setting, Setting::PacingRate(_)));
    let delays = purpose.has_setting(|setting| matches!(setting, Setting::TxDelay(_)));
    let is_fq = matches!(qdisc, "fq" | "cake");
    let finding = Finding::new("pacing", subject, format!("new interfaces use {qdisc}"));
    let effect = match delays {
        true => "tx_delay requires fq: without fq the delay has no effect",
        false => "bbr and pacing_rate are paced by a timer for each socket: the same rate, more CPU for each Gbit/s",
    };
    let fix = format!("modprobe sch_fq && sysctl -w {SETTING}=fq");
    finding.with_hint_if((paced || delays) && !is_fq, effect, fix)
}

/// Checks BIG TCP: superpackets above 64 KiB (Linux 5.19 for IPv6, 6.3 for IPv4).
fn big_tcp(device: &str, limits: SuperpacketLimits) -> Finding {
    /// The largest superpacket without BIG TCP, and a size that all devices with BIG TCP can send, in bytes.
    const WITHOUT: u32 = 65_536;
    const WITH: u32 = 180_000;
    let size = |bytes: u32| Bytes(u64::from(bytes));
    let found = format!("{device}: superpackets of {} (IPv4) and {} (IPv6)", size(limits.ipv4), size(limits.ipv6));
    let could = limits.ipv4.min(limits.ipv6) <= WITHOUT && limits.supported >= WITH;
    let effect = "one download takes about 12 % more CPU time for each byte than with superpackets of 180000 bytes";
    let fix = format!(
        "ip link set dev {device} gso_max_size {WITH} gro_max_size {WITH} gso_ipv4_max_size {WITH} gro_ipv4_max_size {WITH}"
    );
    Finding::new("big_tcp", "BIG TCP", found).with_hint_if(could, effect, fix)
}

/// Checks TCP Fast Open (RFC 7413): bit 0 for outgoing connections, bit 1 for incoming ones (ip-sysctl).
fn fast_open(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_fastopen";
    let subject = "TCP Fast Open";
    let Some(bits) = reading.number(SETTING, 0) else {
        return Finding::unknown("fast_open", subject, SETTING);
    };
    let found = ["off", "dialled only", "accepted only", "dialled and accepted"][bits as usize & 3];
    let is_requested = purpose.has_setting(|setting| matches!(setting, Setting::FastOpen(true)));
    let effect = "a profile has fast_open, but the kernel enables it in one direction at most: its sections \
        connect one round trip later";
    let finding = Finding::new("fast_open", subject, found);
    finding.with_hint_if(is_requested && bits & 3 != 3, effect, format!("sysctl -w {SETTING}={}", bits | 3))
}

fn privileges(reading: &SystemState, purpose: &Workload) -> Finding {
    let has = reading.has_net_admin();
    let finding = Finding::new("privileges", "privileges", if has { "CAP_NET_ADMIN" } else { "no CAP_NET_ADMIN" });
    let is_required = purpose.is_transparent() || purpose.has_setting(|setting| matches!(setting, Setting::Fwmark(_)));
    let effect = "tproxy, redirect, keep_client_address, fwmark and restricted congestion controls need it; in a systemd \
        unit: AmbientCapabilities=CAP_NET_ADMIN";
    let fix = "setcap cap_net_admin,cap_net_bind_service+ep \"$(command -v ekiden)\"";
    match (has, is_required) {
        (false, true) => finding.with_error(format!("this configuration cannot run: {effect}"), fix),
        _ => finding.with_hint_if(!has && purpose.config.is_none(), effect, fix),
    }
}

/// Checks the clock. Fleet certificates have a validity period, with a tolerance of five minutes (docs/fleet.md), and
/// logs of two relays are compared by time.
fn clock(reading: &SystemState) -> Finding {
    match &reading.clock {
        Some(Ok(clock)) => {
            let error = clock.max_error.as_secs_f64() * 1e3;
            let found = if clock.synchronised {
                format!("synchronized, error at most {error:.0} ms")
            } else {
                "not synchronized".into()
            };
            let effect = "with an error above 5 minutes, the fleet rejects this relay; times in the log are wrong";
            Finding::new("clock", "clock", found).with_hint_if(!clock.synchronised, effect, "timedatectl set-ntp true")
        }
        unavailable => {
            let why = unavailable.as_ref().and_then(|clock| clock.as_ref().err()).map_or("not read", String::as_str);
            let effect = "not checked: a container hides the clock state; run `ekiden doctor` on the host".to_owned();
            Finding { verdict: Verdict::Unknown, effect, ..Finding::new("clock", "clock", why) }
        }
    }
}
