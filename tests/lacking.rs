//! A binary built with `--no-default-features`: messages about a missing feature name the remedy.
#![cfg(not(feature = "bpf"))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use ekiden_sys::congestion;
use harness::{Folder, Relay, ekiden, skipped};

const REMEDY: [&str; 2] = ["--no-default-features", "cargo build --release"];

#[test]
fn missing_features_are_reported_with_their_remedy() {
    for arguments in ["cc list", "cc load ctcp --older", "aqm attach --dev eth0", "aqm", "cc"] {
        let output = ekiden().args(arguments.split(' ')).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {printed}");
        assert!(REMEDY.iter().all(|part| printed.contains(part)), "{arguments}: {printed}");
    }
    let doctor = String::from_utf8(ekiden().arg("doctor").output().unwrap().stdout).unwrap();
    assert!(REMEDY.iter().all(|part| doctor.contains(part)), "{doctor}");
}

#[test]
fn missing_congestion_control_is_reported_with_its_remedy() {
    let folder = Folder::new();
    let file = folder.write("relay.toml", "version = 1\n[profile.p]\ncongestion = \"hybla\"\n");
    let mut command = ekiden();
    command.args(["run", "-L", "tcp://127.0.0.1:0/127.0.0.1:9?profile=p", "-c"]).arg(file);
    let relay = Relay::start(&mut command, 1);
    let answer: serde_json::Value = serde_json::from_str(&relay.ask("/api/sessions")).unwrap();
    let hybla = &answer["congestion"][0];
    if hybla["in_use"] == "hybla" {
        skipped("the kernel has hybla");
        return;
    }
    // The replacements of hybla, in order of preference.
    let nearest = ["bbr", "cubic"].into_iter().find(|name| congestion::check_available(name).is_ok());
    let expected = nearest.map_or_else(|| congestion::system_default().unwrap(), str::to_owned);
    assert_eq!(hybla["in_use"], expected, "{hybla}");
    assert!(REMEDY.iter().all(|part| hybla["why"].as_str().unwrap().contains(part)), "{hybla}");
}
