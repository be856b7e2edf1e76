//! Findings and fixes of `ekiden doctor` in network namespaces with unsuitable kernel settings.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::{Command, Output};
use std::sync::Arc;

use ekiden_sys::netns;
use serde_json::Value;

use harness::{Folder, ekiden, skipped};

/// A network namespace, which is removed at the end of the test.
struct Host(Arc<OwnedFd>);

impl Host {
    /// Returns `None`, with a message about the skipped test, if namespaces are not permitted.
    fn new() -> Option<Self> {
        netns::new_network_namespace()
            .map_err(|error| skipped(format_args!("no network namespaces: {error}")))
            .ok()
            .map(Into::into)
    }

    fn run(&self, mut command: Command) -> Output {
        netns::start_in_network_namespace(&mut command, Arc::clone(&self.0));
        command.output().expect("the command runs")
    }

    /// Runs a shell script, which must succeed. Returns its standard output.
    fn shell(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).env("EKIDEN", ekiden().get_program());
        let output = self.run(command);
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn doctor(&self, arguments: &[&str]) -> Output {
        let mut command = ekiden();
        command.arg("doctor").args(arguments);
        self.run(command)
    }

    /// Like [`Self::doctor`], without capabilities.
    fn unprivileged_doctor(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--inh-caps", "-all"]).arg(ekiden().get_program());
        command.arg("doctor").args(arguments);
        self.run(command)
    }

    /// The first finding of each check that has findings other than `good`.
    fn findings(&self, arguments: &[&str]) -> BTreeMap<String, Value> {
        let output = self.doctor(&[&["--json"], arguments].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("a list").iter().rev();
        let findings = findings.filter(|finding| finding["verdict"] != "good");
        findings.map(|finding| (text(&finding["check"]).to_owned(), finding.clone())).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

impl From<OwnedFd> for Host {
    fn from(namespace: OwnedFd) -> Self {
        Self(Arc::new(namespace))
    }
}

#[test]
fn suggested_fixes_remove_their_findings() {
    let Some(host) = Host::new() else { return };
    let path = ["--rate", "500Mbit/s", "--rtt", "200ms", "--sessions", "20000"];
    let wrong = [
        (
            "net.ipv4.tcp_wmem",
            "4096 16384 4194304",
            "send_buffer",
            "a single connection with an RTT of 200 ms cannot exceed about 167 Mbit/s",
        ),
        (
            "net.ipv4.tcp_rmem",
            "4096 131072 1048576",
            "receive_buffer",
            "a single connection with an RTT of 200 ms cannot exceed about ",
        ),
        (
            "net.ipv4.tcp_window_scaling",
            "0",
            "window_scaling",
            "cannot exceed about 2 Mbit/s, and the target is 500 Mbit/s",
        ),
        ("net.ipv4.tcp_slow_start_after_idle", "1", "slow_start_after_idle", "begins again with 10 packets"),
        ("net.ipv4.tcp_mtu_probing", "0", "mtu_probing", "transfer nothing"),
        ("net.ipv4.tcp_max_syn_backlog", "64", "syn_queue", "above 64 handshakes at once"),
        ("net.ipv4.ip_local_port_range", "40000 40999", "local_ports", "at most 1000 sessions at once to one target"),
        ("net.ipv4.tcp_tw_reuse", "0", "time_wait", "at most 16 new sessions per second to one target"),
        ("net.core.somaxconn", "128", "accept_queue", "in a burst of more than 128 new connections"),
    ];
    for (setting, value, ..) in wrong {
        host.shell(&format!("sysctl -qw {setting}='{value}'"));
    }
    let before = host.findings(&path);
    for (setting, value, check, effect) in wrong {
        let finding = before.get(check).unwrap_or_else(|| panic!("no finding for {setting} = {value}"));
        assert!(text(&finding["effect"]).contains(effect) && finding["verdict"] == "could", "{finding}");
        host.shell(text(&finding["fix"]));
    }
    let after = host.findings(&path);
    let still: Vec<_> = wrong.iter().filter_map(|(_, _, check, _)| after.get(*check)).collect();
    assert!(still.is_empty(), "after their fixes: {still:#?}");
}

#[test]
fn time_wait_finding_depends_on_the_session_count() {
    let Some(host) = Host::new() else { return };
    host.shell("sysctl -qw net.ipv4.ip_local_port_range='32768 60999' net.ipv4.tcp_tw_reuse=2");
    assert_eq!(host.findings(&["--sessions", "1000"]).get("time_wait"), None);
    let finding = host.findings(&["--sessions", "20000"]).remove("time_wait").expect("a finding");
    assert!(text(&finding["effect"]).contains("at most 470 new sessions per second"), "{finding}");
}

#[test]
fn configuration_adds_its_own_findings() {
    let Some(host) = Host::new() else { return };
    let folder = Folder::new();
    let file = folder.write(
        "ekiden.toml",
        "version = 1\n[limits]\nsessions = 77\n[[listener]]\nkind = \"tproxy\"\nbind = \"0.0.0.0:7001\"\n\
         interfaces = [\"lan0\"]\nprofile = \"narrow\"\n[profile.narrow]\nwindow_clamp = \"256KiB\"\nfast_open = true\n",
    );
    let file = ["-c", file.to_str().unwrap()];
    host.shell("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=1 net.ipv4.tcp_fastopen=1");
    let before = host.findings(&file);
    for check in ["forwarding", "fast_open"] {
        host.shell(text(&before[check]["fix"]));
    }
    let narrow = &before["profile_window"];
    assert_eq!(narrow["subject"], "profile narrow");
    assert!(text(&narrow["effect"]).contains("cannot exceed about 20 Mbit/s"), "{narrow}");
    let after = host.findings(&file);
    assert!(!after.contains_key("forwarding") && !after.contains_key("fast_open"), "{after:#?}");
    let printed = String::from_utf8(host.doctor(&file).stdout).unwrap();
    assert!(
        printed.starts_with("for 1Gbit/s over an RTT of 100ms, 12500 kB in flight, and 77 sessions\n"),
        "{printed}"
    );
}

#[test]
fn stale_tun_device_is_bad_and_is_removed_by_its_fix() {
    let Some(host) = Host::new() else { return };
    let report = |script: &str| {
        // sysfs shows the network namespace in which it was mounted, so it is mounted again.
        let script = format!("{script}; mount -t sysfs none /sys && \"$EKIDEN\" doctor || echo exit $?");
        host.shell(&format!("unshare -m sh -euc '{script}'"))
    };
    assert!(!report("true").contains("device ekiden7"));
    let printed = report("ip tuntap add ekiden7 mode tun");
    let (_, below) = printed.split_once("BAD   device ekiden7").unwrap_or_else(|| panic!("{printed}"));
    let fix = below.lines().find_map(|line| line.trim().strip_prefix("-> ")).expect("a fix");
    assert!(printed.ends_with("exit 1\n"), "{printed}");
    let printed = report(fix);
    assert!(!printed.contains("device ekiden7") && !printed.contains("exit 1"), "{printed}");
}

/// The output of sysctl(8), ip(8) and nft(8) in the namespace. Settings outside `net.` are omitted, because they apply
/// to the whole machine.
fn state(host: &Host) -> Vec<String> {
    // Counters among the settings change without a change of settings.
    let text = host.shell("sysctl -a 2>/dev/null | grep -v -e count -e '\\.drop' ; ip rule; ip link; nft list ruleset");
    let lines = text.lines().filter(|line| line.starts_with("net.") || !line.contains(" = "));
    lines.map(without_loaded_congestion_controls).collect()
}

/// Removes the congestion controls of ekiden from the lists of the kernel. All namespaces share these lists, and other
/// tests load these congestion controls at the same time, some under names with an underscore and a number.
fn without_loaded_congestion_controls(line: &str) -> String {
    const PROVIDED: [&str; 8] = ["bic", "ctcp", "cubicresume", "highspeed", "hybla", "scalable", "vegas", "westwood"];
    let Some((list, names)) = line.split_once("_congestion_control = ") else { return line.to_owned() };
    let is_provided = |name: &str| name.contains('_') || PROVIDED.contains(&name);
    let names: Vec<&str> = names.split(' ').filter(|name| !is_provided(name)).collect();
    format!("{list}_congestion_control = {}", names.join(" "))
}

#[test]
fn doctor_changes_no_setting() {
    let Some(host) = Host::new() else { return };
    let before = state(&host);
    for known in ["net.ipv4.tcp_rmem = ", "net.ipv4.tcp_available_congestion_control = ", "0:\tfrom all lookup local"] {
        assert!(before.iter().any(|line| line.starts_with(known)), "no {known} in {before:#?}");
    }
    let output = host.doctor(&[]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(printed.contains("\nBAD "))), "{printed}");
    assert!(printed.contains("send buffer ceiling"), "{printed}");
    assert_eq!(before, state(&host));
}

#[test]
fn exit_status_reflects_bad_findings_and_usage_errors() {
    let Some(host) = Host::new() else { return };
    let healthy = host.doctor(&[]);
    // Other tests temporarily change kernel state that all namespaces share, so a bad finding is possible.
    let bad = String::from_utf8(healthy.stdout).unwrap().contains("\nBAD ");
    assert_eq!(healthy.status.code(), Some(i32::from(bad)));
    // This configuration needs CAP_NET_ADMIN.
    let folder = Folder::new();
    let file = folder.write(
        "ekiden.toml",
        "version = 1\n[[listener]]\nkind = \"tproxy\"\nbind = \"0.0.0.0:7001\"\ninterfaces = [\"lan0\"]\n",
    );
    let file = ["-c", file.to_str().unwrap()];
    let output = host.unprivileged_doctor(&file);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("\nBAD   privileges "), "{printed}");
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(!host.findings(&file).contains_key("privileges"));
    for wrong in [["--rtt", "0s"], ["--rate", "fast"], ["-c", "/nowhere.toml"]] {
        let output = host.doctor(&wrong);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {printed}");
        assert!(printed.contains("expected") || printed.contains("a rate like"), "{printed}");
    }
}

#[test]
fn missing_privileges_and_hidden_settings_are_reported() {
    let Some(host) = Host::new() else { return };
    let output = host.unprivileged_doctor(&[]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(printed.contains("\nBAD "))), "{printed}");
    assert!(printed.contains("hint  privileges                   no CAP_NET_ADMIN"), "{printed}");
    // Only the initial network namespace has this setting.
    assert!(printed.contains("net.core.default_qdisc is not readable"), "{printed}");
}
