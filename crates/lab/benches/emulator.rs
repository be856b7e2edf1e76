//! How much an unshaped emulated link carries: one iperf3 flow over veth and `AF_PACKET`, over TUN, and over a bare veth
//! pair, in blocks of random order. `cargo bench -p ekiden-lab`; `-- --blocks N --seconds S` for more or less.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]
#![allow(missing_docs, reason = "nobody calls it")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ekiden_lab::dice::Dice;
use ekiden_lab::stats;
use ekiden_lab::topology::running::Running;
use ekiden_lab::topology::sandbox::{self, Outcome};
use ekiden_lab::topology::{Backend, Host, Lab, Link, Mode, Offload};

/// Goodput that an unshaped link must carry in `fast` mode, in Gbit/s.
const WANTED: f64 = 15.0;
/// And so many times that of the same emulator behind TUN devices.
const WANTED_RATIO: f64 = 1.5;

#[derive(Clone, Copy, PartialEq)]
enum Treatment {
    Packet,
    Tun,
    TunWithoutOffload,
    Bare,
}

const TREATMENTS: [(Treatment, &str); 4] = [
    (Treatment::Packet, "emulator, AF_PACKET"),
    (Treatment::Tun, "emulator, TUN"),
    (Treatment::TunWithoutOffload, "emulator, TUN, MTU packets"),
    (Treatment::Bare, "no emulator, bare veth"),
];

fn main() -> anyhow::Result<()> {
    let (blocks, seconds) = (argument("--blocks", 7), argument("--seconds", 3));
    if let Outcome::Ended(code) = sandbox::enter()? {
        std::process::exit(code.into());
    }
    let mut measured: [Vec<f64>; 4] = Default::default();
    for block in 0..blocks {
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|index| Dice::new(block).bits(*index as u64));
        for index in order {
            let (rate, again) = measure(TREATMENTS[index].0, seconds)?;
            println!("block {}: {:27} {rate:6.2} Gbit/s, {again} sent again", block + 1, TREATMENTS[index].1);
            measured[index].push(rate);
        }
    }
    println!();
    for ((_, name), rates) in TREATMENTS.iter().zip(&measured) {
        let summary = stats::summary(rates);
        println!("{name:27} median {:6.2} Gbit/s  [{:.2} – {:.2}]", summary.median, summary.low, summary.high);
    }
    let median = stats::median(&measured[0]);
    println!("\nat least {WANTED} Gbit/s: {median:.2}, {}", verdict(median >= WANTED));
    for other in 1..4 {
        let pairs = measured[0].iter().zip(&measured[other]);
        let ratio = stats::median(&pairs.map(|(packet, other)| packet / other).collect::<Vec<_>>());
        let verdict = if other == 3 { "" } else { verdict(ratio >= WANTED_RATIO) };
        println!("AF_PACKET / {}, block by block: {ratio:.2} {verdict}", TREATMENTS[other].1);
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

/// Goodput at the receiver, in Gbit/s, and how many packets were sent more than once.
fn measure(treatment: Treatment, seconds: u64) -> anyhow::Result<(f64, u64)> {
    let running = Running::start(&lab(treatment))?;
    let network = running.network();
    let (client, server) = (network.host("client").unwrap(), network.host("server").unwrap());
    let mut listener = server.command("iperf3").arg("-s").stdout(Stdio::null()).spawn().context("iperf3")?;
    let address = server.address().to_string();
    let seconds = seconds.to_string();
    let deadline = Instant::now() + Duration::from_secs(60);
    // It says that it was refused, while its server is still starting, with exit code 0 and an `error`.
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

fn lab(treatment: Treatment) -> Lab {
    let offload = if treatment == Treatment::TunWithoutOffload { Offload::Off } else { Offload::Gso };
    let host = || Host { congestion: Some("cubic".to_owned()), offload, ..Host::default() };
    let conditions = match treatment {
        Treatment::Bare => "",
        // No delay at all, but asked for: the emulator is in it.
        _ => "delay = '0s'",
    };
    let conditions: ekiden_lab::conditions::Conditions = toml::from_str(conditions).unwrap();
    let ends = ["client".to_owned(), "server".to_owned()];
    let link = Link { ends, mtu: 1500, forward: conditions.clone(), reverse: conditions };
    Lab {
        name: "emulator".to_owned(),
        seed: 1,
        mode: Mode::Fast,
        backend: match treatment {
            Treatment::Tun | Treatment::TunWithoutOffload => Backend::Tun,
            Treatment::Packet | Treatment::Bare => Backend::Packet,
        },
        hosts: [("client".to_owned(), host()), ("server".to_owned(), host())].into(),
        links: [("wan".to_owned(), link)].into(),
        events: Vec::new(),
    }
}
