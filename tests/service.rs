//! The relay as a service: notifications to the service manager (sd_notify(3)), and the systemd unit.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use harness::*;

/// Starts a relay below a stub of a service manager, with the watchdog timeout `watchdog` in microseconds.
fn watched(folder: &Folder, watchdog: &str) -> (Manager, Relay) {
    let manager = Manager::new(folder);
    let file = folder.write("ekiden.toml", "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n");
    let mut command = ekiden();
    command.args(["run", "-c"]).arg(&file).env("NOTIFY_SOCKET", folder.0.join("notify"));
    (manager, Relay::start(command.env("WATCHDOG_USEC", watchdog), 1))
}

#[test]
fn manager_is_notified_of_start_watchdog_reload_and_stop() {
    let folder = Folder::new();
    let (manager, mut relay) = watched(&folder, "200000");
    assert_eq!(manager.next_message(), "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.next_message(), "WATCHDOG=1");
    }
    relay.signal("HUP");
    assert!(manager.next_notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.next_notification(), "READY=1");
    relay.signal("TERM");
    assert_eq!(manager.next_notification(), "STOPPING=1");
    assert_eq!(relay.exit_code(), Some(0));
}

#[test]
fn frequent_reloads_do_not_suppress_the_watchdog() {
    let folder = Folder::new();
    // The relay sends a keep-alive each second, and a reload takes a few milliseconds.
    let (manager, relay) = watched(&folder, "4000000");
    assert_eq!(manager.next_message(), "READY=1");
    eventually("a watchdog message", || {
        relay.signal("HUP");
        let received =
            std::iter::repeat_with(|| manager.next_message()).find(|message| !message.starts_with("RELOADING=1"));
        (received.unwrap() == "WATCHDOG=1").then_some(())
    });
}

#[test]
fn unit_sets_the_watchdog_and_removes_rules_on_stop() {
    let unit = include_str!("../systemd/ekiden.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    // systemd before version 253 ignores the unknown second type and keeps the first.
    let types: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("Type=")).collect();
    assert_eq!((types, value("WatchdogSec")), (vec!["notify", "notify-reload"], "10s".to_owned()));
    for (key, subcommand, option) in [
        ("ExecStart", "run", "-c, --config"),
        ("ExecReload", "check", "<PATH>..."),
        ("ExecStopPost", "rules remove", "-c, --config"),
    ] {
        let command = value(key);
        let words = command.trim_start_matches(['-', '+']).strip_prefix("/usr/bin/ekiden ").unwrap();
        assert!(words.starts_with(subcommand), "{command}");
        let arguments: Vec<&str> = words.split(' ').take_while(|word| !word.starts_with(['-', '/'])).collect();
        let help = ekiden().args(&arguments).arg("--help").output().unwrap();
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains(option), "{command}");
    }
}

#[test]
fn systemd_analyze_accepts_the_unit_as_hardened() {
    let folder = Folder::new();
    let unit = include_str!("../systemd/ekiden.service").replace("/usr/bin/ekiden", env!("CARGO_BIN_EXE_ekiden"));
    let file = folder.write("ekiden.service", unit);
    let analyze = |arguments: &[&str]| {
        let output = std::process::Command::new("systemd-analyze").args(arguments).arg(&file).output();
        output.map(|output| {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        })
    };
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        return skipped("no systemd-analyze (Debian: systemd)");
    };
    let complaints: Vec<_> = verified.lines().filter(|line| line.contains("ekiden.service")).collect();
    // systemd-analyze before version 253 reports the type `notify-reload` as unknown, which the unit accepts.
    let known = |line: &&&str| line.contains("notify-reload");
    assert_eq!(complaints.iter().filter(|line| !known(line)).collect::<Vec<_>>(), Vec::<&&str>::new());
    let security = analyze(&["security", "--offline=true", "--threshold=20"]).unwrap();
    let verdict = security.lines().find(|line| line.contains("Overall exposure level")).unwrap_or(&security);
    let level: f64 = verdict.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(10.0);
    assert!(level < 2.0, "{verdict}");
}

#[test]
fn check_prints_the_capabilities_that_a_configuration_needs() {
    let folder = Folder::new();
    let print = |text: &str| {
        let file = folder.write("ekiden.toml", format!("version = 1\n{text}"));
        let output = ekiden().args(["check", "--unit"]).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let has_capabilities = |text: &str| text.lines().any(|line| line.starts_with("CapabilityBoundingSet=CAP"));
    let door = "[[listener]]\nbind = \"127.0.0.1:1080\"\n";
    assert!(!has_capabilities(&print(door)));
    let caught = "[[listener]]\nkind = \"tproxy\"\nbind = \"[::]:7001\"\ninterfaces = [\"lan0\"]\n";
    let text = print(&format!("{door}{caught}"));
    assert!(text.contains("\nCapabilityBoundingSet=CAP_NET_ADMIN\n"), "{text}");
}
