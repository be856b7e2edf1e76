//! `ekiden doctor` on transparent listeners.

use std::process::Command;

use crate::harness::accept;
use crate::network::{Host, Network, apply};
use crate::sockets::{CLIENT, SERVER, address, connect, exchange, listen};

/// Returns the line about `subject` with the indented lines below it, or `None` if the report has no such line.
fn report_entry(report: &str, subject: &str) -> Option<String> {
    let mut lines = report.lines().skip_while(|line| !line.get(6..).unwrap_or_default().starts_with(subject));
    let first = lines.next()?;
    let below: Vec<&str> = lines.take_while(|line| line.starts_with("      ")).collect();
    Some(format!("{first}\n{}", below.join("\n")))
}

#[test]
fn doctor_tries_transparent_rules_without_changes() {
    let Some(host) = Host::new() else { return };
    let before = host.shell("nft list ruleset; ip rule; ip -6 rule").out;
    let report = host.ekiden(&["doctor"]).out;
    let line = report_entry(&report, "transparent listeners").expect(&report);
    assert!(line.starts_with("ok    transparent listeners") && line.contains("all rules work"), "{line}");
    assert!(
        report_entry(&report, "rules of instance").is_none() && report_entry(&report, "forwarding").is_none(),
        "{report}"
    );
    assert_eq!(host.shell("nft list ruleset; ip rule; ip -6 rule").out, before);
}

#[test]
fn doctor_shows_live_rules_with_their_counters() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://0.0.0.0:7001?interfaces=lan0&name=door"]);
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], 80), None).unwrap();
    exchange(&mut client, &mut accept(&origin));
    let report = network.middle.ekiden(&["doctor"]).out;
    let line = report_entry(&report, "rules of instance 1").expect(&report);
    let expected = "applied by ekiden rules: 1 caught by door, 1 unanswered by door, 0 passed, 0 refused, 0 \
        unreachable, 0 asymmetric";
    assert!(line.starts_with("ok    ") && line.contains(expected), "{line}");
    assert!(report_entry(&report, "forwarding").expect(&report).starts_with("ok    "), "{report}");

    network.middle.set("ipv4/ip_forward", "0");
    let report = network.middle.ekiden(&["doctor"]).out;
    let line = report_entry(&report, "forwarding").expect(&report);
    assert!(line.starts_with("hint") && line.ends_with("sysctl -w net.ipv4.ip_forward=1"), "{line}");
}

#[test]
fn stale_rules_are_found_and_removed() {
    let Some(host) = Host::new() else { return };
    apply(&host, &["tproxy://0.0.0.0:7001?interfaces=lan0"]);
    let mut gone = Command::new("true").spawn().unwrap();
    let pid = gone.id();
    gone.wait().unwrap();
    host.nft(&format!(
        "delete table inet ekiden\ntable inet ekiden {{ comment \"ekiden instance 1, pid {pid}, started 5\"; }}"
    ));
    let output = host.ekiden(&["doctor"]);
    let line = report_entry(&output.out, "rules of instance 1").expect(&output.out);
    assert!(line.starts_with("BAD ") && output.code == Some(1), "{line}");
    assert!(line.contains(&format!("rules of instance 1 were left by pid {pid}, which has ended")), "{line}");
    let (_, remedy) = line.split_once("-> ekiden ").expect("a remedy");
    assert_eq!(remedy, "rules remove --instance 1");
    host.run_ekiden(&remedy.split(' ').collect::<Vec<_>>());
    assert!(report_entry(&host.ekiden(&["doctor"]).out, "rules of instance").is_none());

    host.ip("rule add pref 187 fwmark 0xe2010000/0xffff0000 lookup 57346");
    let report = host.ekiden(&["doctor"]).out;
    let line = report_entry(&report, "rules of instance 2").expect(&report);
    assert!(line.contains("a part of the rules") && line.ends_with("ekiden rules remove --instance 2"), "{line}");
    host.run_ekiden(&["rules", "remove", "--instance", "2"]);
    assert!(report_entry(&host.ekiden(&["doctor"]).out, "rules of instance").is_none());
}
