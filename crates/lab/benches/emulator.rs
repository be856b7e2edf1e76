//! Benchmark of the throughput of an unshaped emulated link: one iperf3 flow over veth and `AF_PACKET`, over TUN, and
//! over a bare veth pair, in blocks of random order. `cargo bench -p ekiden-lab`; the options are `-- --blocks N
//! --seconds S`.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]
#![allow(missing_docs, reason = "a benchmark has no callers")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ekiden_emulator::links::{EmulationMode, Link};
use ekiden_emulator::rng::SeededRng;
use ekiden_lab::stats;
use ekiden_lab::topology::RunningLab;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_lab::topology::{Backend, Family, Host, Lab, Offload};

/// Goodput that an unshaped link must carry in `fast` mode, in Gbit/s.
const MIN_GOODPUT: f64 = 15.0;
/// Minimum ratio of this goodput to that of the same emulator with TUN devices.
const MIN_RATIO: f64 = 1.5;

#[derive(Clone, Copy, PartialEq)]
enum BenchVariant {
    Packet,
    Tun,
    TunWithoutOffload,
    Bare,
}

const VARIANTS: [(BenchVariant, &str); 4] = [
    (BenchVariant::Packet, "emulator, AF_PACKET"),
    (BenchVariant::Tun, "emulator, TUN"),
    (BenchVariant::TunWithoutOffload, "emulator, TUN, MTU packets"),
    (BenchVariant::Bare, "no emulator, bare veth"),
];

fn main() -> anyhow::Result<()> {
    let (blocks, seconds) = (argument("--blocks", 7), argument("--seconds", 3));
    if let SandboxEntry::Exited(code) = sandbox::enter()? {
        std::process::exit(code.into());
    }
    let mut measured: [Vec<f64>; 4] = Default::default();
    for block in 0..blocks {
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|index| SeededRng::new(block).bits(*index as u64));
        for index in order {
            let (rate, again) = measure(VARIANTS[index].0, seconds)?;
            println!("block {}: {:27} {rate:6.2} Gbit/s, {again} sent again", block + 1, VARIANTS[index].1);
            measured[index].push(rate);
        }
    }
    println!();
    for ((_, name), rates) in VARIANTS.iter().zip(&measured) {
        let summary = stats::summarise(rates);
        println!("{name:27} median {:6.2} Gbit/s  [{:.2} – {:.2}]", summary.median, summary.low, summary.high);
    }
    let median = stats::median(&measured[0]);
    println!("\nat least {MIN_GOODPUT} Gbit/s: {median:.2}, {}", verdict(median >= MIN_GOODPUT));
    for other in 1..4 {
        let pairs = measured[0].iter().zip(&measured[other]);
        let ratio = stats::median(&pairs.map(|(packet, other)| packet / other).collect::<Vec<_>>());
        let verdict = if other == 3 { "" } else { verdict(ratio >= MIN_RATIO) };
        println!("AF_PACKET / {}, block by block: {ratio:.2} {verdict}", VARIANTS[other].1);
    }
    Ok(())
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(default, |value| value.parse().expect("a number"))
}

/// Returns the goodput at the receiver, in Gbit/s, and the number of retransmissions.
fn measure(treatment: BenchVariant, seconds: u64) -> anyhow::Result<(f64, u64)> {
    let running = RunningLab::start(&lab(treatment))?;
    let network = running.network();
    let (client, server) = (network.host("client").unwrap(), network.host("server").unwrap());
    let mut listener = server.command("iperf3").arg("-s").stdout(Stdio::null()).spawn().context("iperf3")?;
    let address = server.address().to_string();
    let seconds = seconds.to_string();
    let deadline = Instant::now() + Duration::from_secs(60);
    // While its server is starting, the client of iperf3 is refused: it exits with 0 and reports an `error`.
    let measured = loop {
        let output = client.command("iperf3").args(["-c", &address, "-t", &seconds, "-J"]).output()?;
        let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let again = result["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
        match result["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) => break (rate / 1e9, again),
            None if Instant::now() > deadline => bail!("iperf3: {}", result["error"]),
            None => {}
        }
    };
    listener.kill()?;
    listener.wait()?;
    Ok(measured)
}

fn lab(treatment: BenchVariant) -> Lab {
    let offload = if treatment == BenchVariant::TunWithoutOffload { Offload::Off } else { Offload::Gso };
    let host = || Host { congestion: Some("cubic".to_owned()), offload, ..Host::default() };
    let conditions = match treatment {
        BenchVariant::Bare => "",
        // A delay of 0 changes no packet, but the link is not bare, so it has the emulator.
        _ => "delay = '0s'",
    };
    let conditions: ekiden_emulator::conditions::Conditions = toml::from_str(conditions).unwrap();
    let ends = ["client".to_owned(), "server".to_owned()];
    let link = Link { ends, mtu: 1500, forward: conditions.clone(), reverse: conditions };
    Lab {
        name: "emulator".to_owned(),
        seed: 1,
        mode: EmulationMode::Fast,
        family: Family::Ipv4,
        modules: [].into(),
        backend: match treatment {
            BenchVariant::Tun | BenchVariant::TunWithoutOffload => Backend::Tun,
            BenchVariant::Packet | BenchVariant::Bare => Backend::Packet,
        },
        hosts: [("client".to_owned(), host()), ("server".to_owned(), host())].into(),
        links: [("wan".to_owned(), link)].into(),
        events: Vec::new(),
    }
}
