//! The checks on synthetic system states.

use std::time::Duration;

use ekiden_proto::units::Rate;
use ekiden_sys::adjtimex::ClockStatus;
use ekiden_sys::link::SuperpacketLimits;

use super::*;
use crate::config::read::from_text;

/// A system without deficiencies for the workload below.
fn healthy() -> SystemState {
    let settings = [
        ("fs.pipe-max-size", "1048576"),
        ("fs.pipe-user-pages-soft", "262144"),
        ("kernel.osrelease", "6.18.2-amd64"),
        ("net.core.default_qdisc", "fq"),
        ("net.core.rmem_max", "4194304"),
        ("net.core.somaxconn", "4096"),
        ("net.core.wmem_max", "4194304"),
        ("net.ipv4.ip_local_port_range", "1024\t65535"),
        ("net.ipv4.tcp_allowed_congestion_control", "reno cubic bbr"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic bbr"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_fastopen", "3"),
        ("net.ipv4.tcp_max_syn_backlog", "4096"),
        ("net.ipv4.tcp_mem", "150000\t200000\t300000"),
        ("net.ipv4.tcp_mtu_probing", "1"),
        ("net.ipv4.tcp_rmem", "4096\t131072\t67108864"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        ("net.ipv4.tcp_syncookies", "1"),
        ("net.ipv4.tcp_tw_reuse", "2"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096\t16384\t33554432"),
        ("net.netfilter.nf_conntrack_count", "100"),
        ("net.netfilter.nf_conntrack_max", "262144"),
        ("net.netfilter.nf_conntrack_tcp_timeout_established", "432000"),
    ];
    SystemState {
        settings: settings.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
        open_files: Some(1 << 20),
        capabilities: 0,
        time_wait: Some(10),
        clock: Some(Ok(ClockStatus { synchronised: true, max_error: Duration::from_millis(3) })),
        page_size: 4096,
        uplinks: vec![("eth0".to_owned(), SuperpacketLimits { ipv4: 65_536, ipv6: 65_536, supported: 65_536 })],
        persistent_devices: Vec::new(),
    }
}

/// 1 Gbit/s over 100 ms: 12.5 MB in flight.
fn workload(config: &str) -> Workload {
    let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{config}");
    let config = from_text(&text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let rate: Rate = "1Gbit/s".parse().unwrap();
    Workload { rate, rtt: Duration::from_millis(100), sessions: 10_000, config: Some(config), can_load: |_| false }
}

#[test]
fn a_device_that_can_send_larger_superpackets_is_named() {
    let mut reading = healthy();
    let mut judged = |ipv4, ipv6, supported| {
        reading.uplinks = vec![("eth7".to_owned(), SuperpacketLimits { ipv4, ipv6, supported })];
        findings_of(&reading, &workload(""), "big_tcp").pop().map(|finding| (finding.verdict, finding.fix))
    };
    let (verdict, fix) = judged(65_536, 180_000, 524_280).expect("a hint for IPv4");
    assert!(verdict == Verdict::Could && fix.contains("eth7") && fix.contains("gso_ipv4_max_size 180000"), "{fix}");
    assert_eq!(judged(180_000, 180_000, 524_280), None);
    assert_eq!(judged(65_536, 65_536, 65_536), None, "the device supports no larger packets");
    assert_eq!(judged(0, 0, 0), None, "an older kernel");
}

const LONGHAUL: &str = "target_profile = \"longhaul\"\n";

fn system_with(setting: &'static str, value: &str) -> SystemState {
    let mut reading = healthy();
    reading.settings.insert(setting, value.to_owned());
    reading
}

/// The findings of a check whose verdict is not good.
fn findings_of(reading: &SystemState, workload: &Workload, check: &str) -> Vec<Finding> {
    let judged = judge(reading, workload).into_iter();
    judged.filter(|finding| finding.check == check && finding.verdict != Verdict::Good).collect()
}

/// The workload of a relay with a profile for long paths.
fn longhaul_workload() -> Workload {
    let mut workload = workload("");
    workload.config =
        Some(from_text(&format!("version = 1\n{LONGHAUL}[[listener]]\nbind = \"127.0.0.1:0\"\n")).unwrap());
    workload
}

#[test]
fn healthy_system_has_only_good_findings() {
    let findings = judge(&healthy(), &longhaul_workload());
    let wrong: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Good).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(findings.len() > 15 && findings.iter().all(|finding| finding.effect.is_empty()), "{findings:#?}");
}

#[test]
fn each_deficiency_is_reported_with_effect_and_fix() {
    let cases: &[(&'static str, &str, &str, &str, &str)] = &[
        (
            "net.ipv4.tcp_wmem",
            "4096\t16384\t4194304",
            "send_buffer",
            "a single connection with an RTT of 100 ms cannot exceed about 335 Mbit/s, and the target is 1000 Mbit/s",
            "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 33554432\"",
        ),
        (
            "net.ipv4.tcp_rmem",
            "4096\t131072\t6291456",
            "receive_buffer",
            "a single connection with an RTT of 100 ms cannot exceed about 335 Mbit/s, and the target is 1000 Mbit/s",
            "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\"",
        ),
        ("net.ipv4.tcp_window_scaling", "0", "window_scaling", "cannot exceed about 5 Mbit/s", "window_scaling=1"),
        ("net.ipv4.tcp_mem", "1500\t2000\t3000", "tcp_memory", "more than 1 connections", "\"36621 48829 73242\""),
        ("net.ipv4.tcp_slow_start_after_idle", "1", "slow_start_after_idle", "with 10 packets", "after_idle=0"),
        ("net.ipv4.tcp_mtu_probing", "0", "mtu_probing", "transfer nothing", "sysctl -w net.ipv4.tcp_mtu_probing=1"),
        ("fs.pipe-max-size", "65536", "pipe_size", "65536 bytes at most", "sysctl -w fs.pipe-max-size=1048576"),
        ("fs.pipe-user-pages-soft", "16384", "pipe_quota", "beyond 64 transfers", "pages-soft=262144"),
        ("net.core.somaxconn", "128", "accept_queue", "more than 128 new", "sysctl -w net.core.somaxconn=4096"),
        ("net.ipv4.tcp_max_syn_backlog", "128", "syn_queue", "64 KiB windows", "tcp_max_syn_backlog=4096"),
        (
            "net.ipv4.ip_local_port_range",
            "60000\t60999",
            "local_ports",
            "at most 1000 sessions at once to one target",
            "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"",
        ),
        (
            "net.ipv4.ip_local_port_range",
            "60000\t60999",
            "time_wait",
            "at most 16 new sessions per second to one target",
            "sysctl -w net.ipv4.tcp_tw_reuse=1",
        ),
        ("net.netfilter.nf_conntrack_max", "10100", "conntrack", "5000 of 10000 sessions", "nf_conntrack_max=32768"),
        ("net.netfilter.nf_conntrack_max", "105", "conntrack", "nearly full: after 2 more sessions", "max=32768"),
        ("net.core.default_qdisc", "pfifo_fast", "pacing", "a timer for each socket", "net.core.default_qdisc=fq"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic", "congestion", "request bbr", "modprobe tcp_bbr"),
        (
            "net.ipv4.tcp_allowed_congestion_control",
            "reno cubic",
            "congestion",
            "bbr requires CAP_NET_ADMIN",
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
        ),
        ("kernel.osrelease", "6.1.0-18-amd64", "kernel", "rto_min, rto_max and delack_max", ""),
    ];
    for (setting, value, check, effect, fix) in cases {
        let found = findings_of(&system_with(setting, value), &longhaul_workload(), check);
        let [finding] = &found[..] else { panic!("{setting} = {value}: {found:#?}") };
        assert!(finding.effect.contains(effect), "{setting} = {value}: {}", finding.effect);
        assert!(finding.fix.contains(fix) && fix.is_empty() == finding.fix.is_empty(), "{}", finding.fix);
        let bad = finding.effect.starts_with("nearly full");
        assert_eq!(finding.verdict == Verdict::Bad, bad, "{finding}");
    }
}

#[test]
fn missing_kernel_features_are_named() {
    for (release, effect) in [
        (
            "5.15.0-30-amd64",
            "lacks the congestion control cubicresume, and kernel TLS (6.0); `ekiden aqm attach --backlog` (6.2); ",
        ),
        ("6.1.0-18-amd64", "lacks `ekiden aqm attach --backlog` (6.2); "),
        ("6.12.117+deb12-cloud-amd64", "lacks rto_min, rto_max and delack_max for single sections (6.15)"),
    ] {
        let found = findings_of(&system_with("kernel.osrelease", release), &longhaul_workload(), "kernel");
        let [finding] = &found[..] else { panic!("{release}: {found:#?}") };
        assert!(finding.effect.starts_with(effect), "{release}: {}", finding.effect);
    }
}

#[test]
fn unreadable_settings_are_reported_as_unknown() {
    for (setting, check) in [
        ("net.ipv4.tcp_wmem", "send_buffer"),
        ("net.ipv4.tcp_rmem", "receive_buffer"),
        ("net.ipv4.tcp_mem", "tcp_memory"),
        ("net.core.somaxconn", "accept_queue"),
        ("net.core.default_qdisc", "pacing"),
        ("kernel.osrelease", "kernel"),
        ("net.ipv4.ip_local_port_range", "local_ports"),
        ("net.ipv4.tcp_tw_reuse", "time_wait"),
        ("fs.pipe-user-pages-soft", "pipe_quota"),
    ] {
        let mut reading = healthy();
        reading.settings.remove(setting);
        let found = findings_of(&reading, &longhaul_workload(), check);
        let [finding] = &found[..] else { panic!("{setting}: {found:#?}") };
        assert_eq!(finding.verdict, Verdict::Unknown);
        assert!(
            finding.found.starts_with(setting) && finding.effect.contains("run `ekiden doctor` on the host"),
            "{finding}"
        );
    }
    let nothing = judge(&SystemState::default(), &longhaul_workload());
    assert!(nothing.iter().all(|finding| finding.verdict != Verdict::Bad), "{nothing:#?}");
}

#[test]
fn pacing_default_control_is_reported_as_costly_on_short_paths() {
    let pacing_default = system_with("net.ipv4.tcp_congestion_control", "bbr");
    assert!(
        findings_of(&pacing_default, &longhaul_workload(), "short_paths").is_empty(),
        "the listener's profile is lan"
    );
    let mut workload = longhaul_workload();
    let text = format!("version = 1\n{LONGHAUL}[[listener]]\nbind = \"127.0.0.1:0\"\nprofile = \"longhaul\"\n");
    workload.config = Some(from_text(&text).unwrap());
    let found = findings_of(&pacing_default, &workload, "short_paths");
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert!(finding.effect.contains("three times the CPU time of reno") && finding.fix.contains("lan"), "{finding}");
    assert!(findings_of(&healthy(), &workload, "short_paths").is_empty(), "cubic does not pace");
}

#[test]
fn before_linux_6_6_half_of_a_receive_buffer_is_window() {
    let mut reading = system_with("net.ipv4.tcp_rmem", "4096\t131072\t6291456");
    reading.settings.insert("kernel.osrelease", "6.1.0".to_owned());
    assert!(
        findings_of(&reading, &longhaul_workload(), "receive_buffer")[0]
            .effect
            .contains("cannot exceed about 251 Mbit/s")
    );
}

#[test]
fn profile_window_settings_are_checked_against_the_path() {
    let mut workload =
        workload("profile = \"p\"\n[profile.p]\nsndbuf = \"8MiB\"\nrcvbuf = \"16MiB\"\nwindow_clamp = \"1MiB\"\n");
    let found = findings_of(&healthy(), &workload, "profile_window");
    let texts: Vec<_> = found.iter().map(|finding| (finding.effect.as_str(), finding.fix.as_str())).collect();
    assert_eq!(texts.len(), 3, "{texts:#?}");
    assert!(
        texts
            .iter()
            .any(|(effect, fix)| effect.starts_with("cut to 4194304 bytes: ") && fix.ends_with("wmem_max=8388608"))
    );
    assert!(texts.iter().any(|(effect, fix)| effect.contains("83 Mbit/s") && fix.is_empty()), "{texts:#?}");
    workload.rtt = Duration::from_millis(1);
    assert!(
        findings_of(&healthy(), &workload, "profile_window").iter().all(|finding| finding.effect.contains("cut to"))
    );
    let mut reading = healthy();
    reading.capabilities = 1 << 12;
    assert_eq!(findings_of(&reading, &workload, "profile_window"), [], "CAP_NET_ADMIN may exceed the limit");
}

#[test]
fn unrequested_features_are_not_reported() {
    let mut reading = system_with("net.core.default_qdisc", "pfifo_fast");
    reading.settings.insert("net.ipv4.tcp_available_congestion_control", "reno cubic".to_owned());
    reading.settings.insert("net.ipv4.tcp_fastopen", "1".to_owned());
    for check in ["pacing", "congestion", "fast_open", "privileges"] {
        assert_eq!(findings_of(&reading, &workload(""), check), [], "{check}");
    }
    let demanding = workload("profile = \"p\"\n[profile.p]\nfast_open = true\ncongestion = \"hybla\"\nfwmark = 1\n");
    assert_eq!(findings_of(&reading, &demanding, "congestion")[0].fix, "ekiden cc load hybla");
    assert_eq!(findings_of(&reading, &demanding, "fast_open")[0].fix, "sysctl -w net.ipv4.tcp_fastopen=3");
    assert_eq!(findings_of(&reading, &demanding, "privileges")[0].verdict, Verdict::Bad);
}

/// The relay sets these itself, but doctor reported them as settings without effect.
#[test]
fn settings_that_the_relay_provides_are_supported() {
    let check = |workload: &Workload, name: &str| {
        let profile = profiles(workload).into_iter().find(|profile| profile.name == name).expect("a profile");
        let finding = check_profile(&profile, workload);
        (finding.verdict, finding.found)
    };
    let mut workload = workload("profile = \"p\"\n[profile.p]\ncongestion = \"ctcp\"\nctcp_gamma = 12\n");
    assert_eq!(check(&workload, "lan"), (Verdict::Good, "all 3 settings supported".to_owned()));
    assert_eq!(check(&workload, "p").0, Verdict::Could);
    assert_eq!(findings_of(&healthy(), &workload, "congestion")[0].fix, "ekiden cc load ctcp");
    workload.can_load = |name| name == "ctcp";
    assert_eq!(check(&workload, "p"), (Verdict::Good, "all 2 settings supported".to_owned()));
    assert_eq!(findings_of(&healthy(), &workload, "congestion"), []);
}

#[test]
fn unsynchronised_clock_is_reported() {
    let clock = |clock| SystemState { clock, ..healthy() };
    let adrift = Some(Ok(ClockStatus { synchronised: false, max_error: Duration::from_secs(16) }));
    assert_eq!(findings_of(&clock(adrift), &longhaul_workload(), "clock")[0].fix, "timedatectl set-ntp true");
    let forbidden = findings_of(&clock(Some(Err("EPERM".to_owned()))), &longhaul_workload(), "clock");
    assert_eq!((forbidden[0].verdict, forbidden[0].found.as_str()), (Verdict::Unknown, "EPERM"));
}

#[test]
fn low_descriptor_limit_and_time_wait_ports_are_reported() {
    let few = SystemState { open_files: Some(1024), ..healthy() };
    let found = findings_of(&few, &longhaul_workload(), "open_files");
    assert!(found[0].effect.contains("LimitNOFILE") && found[0].fix == "ulimit -n 1048576", "{found:#?}");
    let busy = SystemState { time_wait: Some(40_000), ..healthy() };
    assert_eq!(findings_of(&busy, &longhaul_workload(), "time_wait").len(), 1);
    let mut reused = busy;
    reused.settings.insert("net.ipv4.tcp_tw_reuse", "1".to_owned());
    assert_eq!(findings_of(&reused, &longhaul_workload(), "time_wait"), []);
}

#[test]
fn finding_is_formatted_as_text_and_json() {
    let finding = Finding::new("x", "subject", "found").with_hint("effect", "fix it");
    assert_eq!(finding.to_string(), "hint  subject                      found\n      effect\n      -> fix it");
    let json = serde_json::to_value(&finding).unwrap();
    let expected = serde_json::json!({
        "check": "x", "verdict": "could", "subject": "subject", "found": "found", "effect": "effect", "fix": "fix it"
    });
    assert_eq!(json, expected);
}

/// Regression: the remedy was the limit in force. A limit of 0 means none.
#[test]
fn remedy_of_a_nearly_full_connection_table_is_a_larger_one() {
    let mut system = system_with("net.netfilter.nf_conntrack_count", "240000");
    let found = findings_of(&system, &longhaul_workload(), "conntrack");
    assert_eq!(found[0].fix, "sysctl -w net.netfilter.nf_conntrack_max=524288");
    system.settings.insert("net.netfilter.nf_conntrack_max", "0".to_owned());
    assert!(findings_of(&system, &longhaul_workload(), "conntrack").is_empty());
}
