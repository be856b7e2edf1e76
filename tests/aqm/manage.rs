//! Effects of `ekiden aqm` attach, detach and show on an interface, and error messages.

use crate::network::{CommandOutput, Host};

/// A host with a pair of veth interfaces, `one` and `other`.
fn host() -> Option<Host> {
    let host = Host::new()?;
    host.ip("link add one type veth peer name other");
    host.ip("link set one up");
    host.ip("link set other up");
    Some(host)
}

fn attach(host: &Host, mode: &str, more: &[&str]) -> CommandOutput {
    let start = ["aqm", "attach", "--dev", "one", "--rate", "100Mbit/s", "--mode", mode];
    host.ekiden(&[&start[..], more].concat())
}

fn qdiscs(host: &Host) -> String {
    host.run("tc", "qdisc show dev one")
}

/// Number of BPF programs of ekiden at the egress of the interface.
fn filters(host: &Host) -> usize {
    host.run("tc", "filter show dev one egress").matches("direct-action").count()
}

#[test]
fn attach_persists_is_shown_and_detach_leaves_no_trace() {
    let Some(host) = host() else { return };
    let before = qdiscs(&host);
    for mode in ["red", "static", "dynamic", "auto"] {
        let heavy: &[&str] = if mode == "static" { &["--heavy", "10.0.0.1", "--heavy", "fd00::1"] } else { &[] };
        let output = attach(&host, mode, heavy);
        assert_eq!(output.code, Some(0), "{}", output.err);
        assert_eq!(filters(&host), 1);
        let shown = host.run_ekiden(&["aqm", "show", "--watch", "10ms"]);
        assert!(shown.starts_with(&format!("one: {mode}")), "{shown}");
        let json = host.run_ekiden(&["aqm", "show", "--dev", "one", "--json", "--watch", "10ms"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json[0]["settings"]["mode"], &json[0]["settings"]["rate"]), (&mode.into(), &"100Mbit/s".into()));
        host.run_ekiden(&["aqm", "detach", "--dev", "one"]);
        assert_eq!(qdiscs(&host), before, "{mode}");
    }
    assert!(host.run_ekiden(&["aqm", "show"]).contains("no managed interface"));
}

#[test]
fn second_attach_requires_replace() {
    let Some(host) = host() else { return };
    assert_eq!(attach(&host, "red", &[]).code, Some(0));
    let output = attach(&host, "auto", &[]);
    assert!(output.code == Some(1) && output.err.contains("--replace"), "{}", output.err);
    let replaced = attach(&host, "red", &["--replace", "--limit", "1MiB", "--min", "1KiB", "--max", "2KiB"]);
    assert_eq!(replaced.code, Some(0), "{}", replaced.err);
    assert_eq!(filters(&host), 1);
    assert!(host.run_ekiden(&["aqm", "show", "--watch", "10ms"]).contains("limit 1MiB, min 1KiB, max 2KiB"));
    host.run_ekiden(&["aqm", "detach", "--dev", "one"]);
    assert!(!qdiscs(&host).contains("clsact"), "the first attach created the qdisc");
    let output = host.ekiden(&["aqm", "detach", "--dev", "one"]);
    assert!(output.code == Some(1) && output.err.contains("not managed"), "{}", output.err);
}

#[test]
fn detach_keeps_foreign_qdiscs_and_filters() {
    let Some(host) = host() else { return };
    host.run("tc", "qdisc add dev one clsact");
    let others = "protocol ip pref 7 u32 match u32 0 0";
    host.run("tc", &format!("filter add dev one egress {others}"));
    let state = || host.shell("tc filter show dev one egress; tc qdisc show dev one").out;
    let before = state();
    assert_eq!(attach(&host, "red", &[]).code, Some(0));
    host.run_ekiden(&["aqm", "detach", "--dev", "one"]);
    assert_eq!(state(), before);
    // Another program may later add a filter to the clsact qdisc that `attach` created, which must then remain.
    host.run("tc", "qdisc del dev one clsact");
    assert_eq!(attach(&host, "red", &[]).code, Some(0));
    host.run("tc", &format!("filter add dev one ingress {others}"));
    host.run_ekiden(&["aqm", "detach", "--dev", "one"]);
    assert!(host.run("tc", "filter show dev one ingress").contains("u32"));
}

#[test]
fn queue_management_ends_with_its_interface() {
    let Some(host) = host() else { return };
    assert_eq!(attach(&host, "red", &[]).code, Some(0));
    host.ip("link del one");
    assert!(host.run_ekiden(&["aqm", "show"]).contains("no managed interface"));
    let output = host.ekiden(&["aqm", "detach", "--dev", "one"]);
    assert!(output.code == Some(1) && output.err.contains("no interface one"), "{}", output.err);
    host.ip("link add one type veth peer name other");
    assert_eq!(attach(&host, "red", &[]).code, Some(0), "a new interface of that name is not managed");
}

#[test]
fn errors_name_the_invalid_option_or_the_remedy() {
    let Some(host) = host() else { return };
    for (mode, more, expected) in [
        ("red", &["--min", "2MiB", "--max", "1MiB"][..], "--min"),
        ("red", &["--min", "10pkt"], "all in packets"),
        ("red", &["--p", "2"], "--p"),
        ("red", &["--wq", "0"], "--wq"),
        ("red", &["--n", "0"], "--n"),
        ("red", &["--table", "1000"], "--table"),
        ("red", &["--limit", "0B"], "--limit"),
        ("red", &["--backlog"], "tc qdisc add dev one root"),
        ("dynamic", &["--hist-len", "0"], "--hist-len"),
        ("dynamic", &["--rec-int", "0"], "--rec-int"),
        ("static", &[], "--heavy"),
        ("auto", &["--target", "0s"], "--target"),
    ] {
        let output = attach(&host, mode, more);
        assert!(output.code == Some(1) && output.err.contains(expected), "{mode} {more:?}: {}", output.err);
    }
    for (dev, rate, expected) in
        [("nothing0", "1Mbit/s", "ip link"), ("one", "0bit/s", "--rate"), ("one", "5", "--rate")]
    {
        let output = host.ekiden(&["aqm", "attach", "--dev", dev, "--rate", rate, "--mode", "red"]);
        assert!(output.code != Some(0) && output.err.contains(expected), "{dev} {rate}: {}", output.err);
    }
    assert!(!qdiscs(&host).contains("clsact"), "failed commands leave no qdisc");
}

#[test]
fn errors_without_privilege_name_the_remedy() {
    let Some(host) = host() else { return };
    // The command runs as root without capabilities, because only root can access the folder of the binary.
    let run = |arguments: &str| {
        host.shell(&format!("setpriv --inh-caps=-all --bounding-set=-all {} {arguments}", env!("CARGO_BIN_EXE_ekiden")))
    };
    let output = run("aqm attach --dev one --rate 1Mbit/s --mode red");
    assert!(output.code == Some(1) && output.err.contains("CAP_NET_ADMIN and CAP_BPF"), "{}", output.err);
    assert_eq!(attach(&host, "red", &[]).code, Some(0));
    let output = run("aqm show --dev one");
    assert!(output.code == Some(1) && output.err.contains("as root"), "{}", output.err);
    let output = run("aqm detach --dev one");
    assert!(output.code == Some(1) && output.err.contains("CAP_NET_ADMIN"), "{}", output.err);
    assert_eq!(filters(&host), 1);
}
