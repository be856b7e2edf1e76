//! TCP connections of iperf3 with several congestion controls through the router, and their shares of the rate.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{KillOnDrop, eventually};
use crate::network::Network;
use crate::programs::is_any_missing;
use crate::traffic::{attach, show};

/// Number of seconds at the start of each connection that its mean rate excludes.
const START: usize = 4;

/// Parameters of one iperf3 connection.
#[derive(Clone, Copy)]
pub struct Flow {
    pub congestion: &'static str,
    pub seconds: usize,
}

/// Creates the network for [`run`]. Returns `None`, with a message about the skipped test, if iperf3 is missing or
/// namespaces are not permitted.
pub fn network() -> Option<Network> {
    if is_any_missing(&["iperf3"]) { None } else { Network::new() }
}

/// Runs connections from the client to the server at the same time. Returns the mean rate of each in bits per second,
/// without its first [`START`] seconds.
pub fn run(network: &Network, flows: &[Flow]) -> Vec<f64> {
    let ports = (5201_u16..).take(flows.len());
    let servers: Vec<KillOnDrop> = ports.clone().map(|port| serve(network, port)).collect();
    let clients: Vec<Child> = ports.zip(flows).map(|(port, flow)| start(network, port, *flow)).collect();
    let rates = clients.into_iter().map(rate).collect();
    drop(servers);
    rates
}

fn serve(network: &Network, port: u16) -> KillOnDrop {
    let mut server = network.server.command("iperf3");
    server.args(["-s", "-1", "-p", &port.to_string()]).stdout(Stdio::null());
    let running = KillOnDrop(server.spawn().expect("iperf3"));
    let listening = || network.server.shell(&format!("ss -Hltn sport = :{port}")).out.contains("LISTEN");
    eventually("the port of iperf3", || listening().then_some(()));
    running
}

fn start(network: &Network, port: u16, flow: Flow) -> Child {
    let mut client = network.client.command("iperf3");
    client.args(["-c", "10.3.0.2", "-J", "-C", flow.congestion, "-p", &port.to_string()]);
    client.args(["-t", &flow.seconds.to_string()]).stdout(Stdio::piped()).spawn().expect("iperf3")
}

fn rate(client: Child) -> f64 {
    let output = client.wait_with_output().expect("iperf3");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let intervals = report["intervals"].as_array().unwrap_or_else(|| panic!("{report}"));
    let rates: Vec<f64> =
        intervals.iter().skip(START).map(|one| one["sum"]["bits_per_second"].as_f64().unwrap()).collect();
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn jain(rates: &[f64]) -> f64 {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    rates.iter().sum::<f64>().powi(2) / (squares * rates.len() as f64)
}

/// Without queue management, BBR starves beside CUBIC at this long queue (1 MB at 50 Mbit/s).
#[test]
fn auto_shares_more_fairly_than_a_plain_queue() {
    let Some(network) = network() else { return };
    network.middle.run("tc", "qdisc add dev wan0 root tbf rate 50mbit burst 20kb limit 1mb");
    let flows = ["bbr", "cubic", "cubic", "reno"].map(|congestion| Flow { congestion, seconds: 14 });
    let plain = run(&network, &flows);
    attach(&network, "auto", &[]);
    let shared = run(&network, &flows);
    let shown = show(&network, "10ms");
    println!("plain {plain:?} {}, auto {shared:?} {}", jain(&plain), jain(&shared));
    assert!(jain(&shared) > 0.85 && jain(&shared) > jain(&plain), "auto {shared:?}, plain {plain:?}: {shown}");
    assert!(shared.iter().sum::<f64>() > 0.75 * 49e6, "{shared:?}");
    network.middle.run_ekiden(&["aqm", "detach", "--dev", "wan0"]);
    assert!(!network.middle.run("tc", "qdisc show dev wan0").contains("clsact"));
}
