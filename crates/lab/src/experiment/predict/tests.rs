use super::*;
use crate::experiment::read::Experiment;

const GRID: &str = r#"
lab = 1
name = "grid"
title = "A path in three ways"
[default.host]
congestion = "bbr"
[host.client]
[host.r1]
forward = true
sysctl = { "net.ipv4.tcp_rmem" = "4096 131072 1000000" }
[host.r2]
forward = true
[host.server]
window = "256KiB"
[link.access]
ends = ["client", "r1"]
delay = "10ms"
rate = "100Mbit/s"
reverse = { loss = { model = "bernoulli", p = 0.01 } }
[link.middle]
ends = ["r1", "r2"]
delay = "20ms"
[link.far]
ends = ["r2", "server"]
delay = "5ms"
[workload]
protocol = "http"
file = "10kB"
chain = ["r1", "r2"]
[treatment.direct]
program = "direct"
[treatment.relayed]
program = "ekiden"
sections = true
mode = "MODE"
[experiment]
treatments = ["direct", "relayed"]
blocks = { quick = 1, full = 1 }
"#;

fn specs(mode: &str) -> [RunSpec; 2] {
    let experiment = Experiment::parse("grid", &GRID.replace("MODE", mode)).unwrap();
    [0, 1].map(|place| experiment.cells[place].spec.clone())
}

fn fetched(seconds: f64) -> Transfer {
    Transfer { seconds, bytes: 10_000, ..Transfer::default() }
}

#[test]
fn sections_are_what_the_file_says() {
    let [direct, relayed] = specs("tcp");
    let [whole] = path_sections(&direct, false).unwrap().try_into().unwrap();
    let [near, between, far]: [SectionModel; 3] = path_sections(&relayed, false).unwrap().try_into().unwrap();
    assert_eq!(whole.rtt, Duration::from_millis(70));
    assert_eq!([near.rtt, between.rtt, far.rtt].map(|rtt| rtt.as_millis()), [20, 40, 10]);
    assert_eq!([near.is_warm, between.is_warm, far.is_warm], [false, true, false]);
    assert_eq!([near.mss, near.congestion as u16], [1448, CongestionControl::Bbr as u16]);
    assert!((near.loss - 0.01).abs() < 1e-9 && between.loss == 0.0 && (whole.loss - 0.01).abs() < 1e-9);
    assert!((near.line_rate.unwrap() - 12.5e6 * 1448.0 / 1500.0).abs() < 1.0 && between.line_rate.is_none());
    // Down r2 sends to r1, whose receive buffer is small; the server sends to r2.
    assert_eq!([near.window, between.window, far.window], [None, Some(657_000), Some(262_144)]);
    assert_eq!(path_sections(&direct, true).unwrap()[0].loss, 0.0, "up nothing is lost");
}

#[test]
fn a_way_of_asking_costs_what_its_floor_says() {
    let first_byte = |mode: &str| {
        let [_, spec] = specs(mode);
        let sections = path_sections(&spec, false).unwrap();
        let (costs, greeting) = request_costs(&spec.treatment, &sections)?;
        Some(model::time_to_first_byte(&sections, &RelayCosts { hop_delay: Duration::ZERO, ..costs }) + greeting)
    };
    let floor = |mode: &str| crate::experiment::floor::first_byte_floor(&specs(mode)[1]).unwrap().milliseconds;
    assert_eq!(first_byte("socks"), Some(Duration::from_secs_f64(floor("socks") / 1e3)));
    // The handshakes at both ends, and the request over all: 20 + 10 + 70.
    assert_eq!(first_byte("tcp"), Some(Duration::from_millis(100)));
    assert_eq!(first_byte("http"), None, "a resource over connections that were kept is not in the model");
}

#[test]
fn an_error_is_a_share_of_what_was_measured() {
    let [direct, _] = specs("tcp");
    let predicted = prediction_metrics(&direct, &[fetched(1.0)])[PREDICTED];
    assert!(predicted > 140.0 && predicted < 160.0, "two round trips of 70 ms: {predicted}");
    let error = |seconds: f64| prediction_metrics(&direct, &[fetched(seconds)])[PREDICTION_ERROR];
    assert!(error(predicted / 1e3) < 1e-9);
    assert!((error(predicted / 2e3) - 1.0).abs() < 1e-9 && (error(predicted / 500.0) - 0.5).abs() < 1e-9);
}

#[test]
fn what_the_model_does_not_cover_has_no_figures() {
    assert!(prediction_metrics(&specs("http")[1], &[fetched(1.0)]).is_empty());
    assert!(prediction_metrics(&specs("tcp")[0], &[]).is_empty());
}
