//! A small experiment for tests: two factors, three treatments.

/// The file of the experiment.
pub const TEXT: &str = r#"
lab = 1
name = "small"
seed = 7
title = "A small one"
[host.client]
[host.relay]
forward = true
[host.server]
[link.near]
ends = ["client", "relay"]
[link.far]
ends = ["relay", "server"]
[workload]
protocol = "http"
file = "1MB"
chain = ["relay"]
[treatment.direct]
program = "direct"
[treatment.dante]
program = "dante"
[treatment.haproxy]
program = "haproxy"
[experiment]
treatments = ["direct", "dante", "haproxy"]
blocks = { quick = 2, full = 6 }
[[factor]]
name = "delay"
levels = [
    { name = "short", set = { "link.near.delay" = "1ms" }, quick = true },
    { name = "long", set = { "link.near.delay" = "9ms" } },
]
[[factor]]
name = "protocol"
levels = [
    { name = "http" },
    { name = "ftp", set = { "workload.protocol" = "ftp" } },
]
"#;

/// Parses the experiment with `more` at the end of the file.
pub fn small_experiment(more: &str) -> Result<super::spec::read::Experiment, Vec<String>> {
    super::spec::read::Experiment::parse("small", &format!("{TEXT}\n{more}"))
}
