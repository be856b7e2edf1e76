use super::*;
use crate::experiment::read::Experiment;

/// Sections of 20, 50 and 30 ms, there and back; the way back of the last is the longer one.
const LINE: &str = r#"
lab = 1
name = "line"
title = "A line"
[host.client]
[host.r1]
forward = true
[host.r2]
forward = true
[host.server]
[link.s1]
ends = ["client", "r1"]
delay = "10ms"
[link.s2]
ends = ["r2", "r1"]
delay = "25ms"
[link.s3]
ends = ["r2", "server"]
delay = "5ms"
reverse = { delay = "25ms" }
[workload]
protocol = "http"
file = "1MB"
chain = ["r1", "r2"]
[treatment.it]
TREATMENT
[experiment]
treatments = ["it"]
blocks = { quick = 1, full = 1 }
"#;

fn floor(treatment: &str) -> Option<(&'static str, f64)> {
    let experiment = Experiment::parse("line", &LINE.replace("TREATMENT", treatment)).unwrap();
    first_byte_floor(&experiment.cells[0].spec).map(|floor| (floor.formula, (floor.milliseconds * 1e3).round() / 1e3))
}

fn ekiden(mode: &str) -> Option<(&'static str, f64)> {
    floor(&format!("program = \"ekiden\"\nsections = true\n{mode}"))
}

#[test]
fn every_way_of_asking_has_its_floor() {
    assert_eq!(floor("program = \"direct\""), Some(("2T", 200.0)));
    assert_eq!(floor("program = \"haproxy\""), Some(("2T", 200.0)));
    assert_eq!(floor("program = \"squid\""), Some(("c + T", 120.0)));
    assert_eq!(floor("program = \"dante\""), Some(("2(c + S) + 2T", 340.0)));
    assert_eq!(ekiden("mode = \"http\""), Some(("c + T", 120.0)));
    assert_eq!(ekiden("mode = \"http\"\ntunnel = true"), Some(("c + 2T", 220.0)));
    assert_eq!(ekiden("mode = \"http\"\ntunnel = true\nencrypt = true"), Some(("c + 2T", 220.0)));
    assert_eq!(ekiden("mode = \"http\"\ntunnel = true\nearly = true"), Some(("c + T + max(c, s)", 150.0)));
    assert_eq!(ekiden(""), Some(("2c + 2T", 240.0)));
    assert_eq!(ekiden("early = true"), Some(("2c + T + max(c, s)", 170.0)));
}

#[test]
fn what_arithmetic_does_not_know_has_none() {
    assert_eq!(floor("program = \"ekiden\""), None, "relays that ask each other by SOCKS");
    assert_eq!(floor("program = \"squid\"\ntunnel = true"), None);
    assert_eq!(floor("program = \"command\"\ncommand = [\"x\"]\nready = \"tcp:1\""), None);
    assert_eq!(floor("program = \"direct\"\nset = { \"workload.protocol\" = \"ftp\" }"), None);
    let event = "program = \"direct\"\n[[event]]\nat = \"1s\"\nlink = \"s1\"\nset = { delay = \"1ms\" }";
    assert_eq!(floor(event), None);
}

#[test]
fn one_relay_is_a_chain_without_sections_between_relays() {
    let single = floor("program = \"ekiden\"\nmode = \"http\"\ntunnel = true\nchain = [\"r1\"]");
    assert_eq!(single, Some(("c + 2T", 220.0)));
    assert_eq!(ekiden("early = true\nchain = [\"r2\"]"), Some(("2c + T + max(c, s)", 310.0)));
}
