//! Compound TCP in use: connections through a line of 40 Mbit/s with a queue in front of it.

use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore as _, MapFlags, Program};

use crate::loaded::{LoadedControl, SHORT, transfer_with_telemetry};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ctcp.bpf.o"));

const BYTES: usize = 16 << 20;

/// `struct section`.
#[derive(Debug)]
struct TelemetryWords {
    window: u32,
    loss_window: u32,
    delay_window: u32,
    base_us: u32,
    rtt_us: u32,
    gamma: u32,
    rounds: u32,
    losses: u32,
    timeouts: u32,
}

/// The telemetry of a connection through this queue, from its first byte to its last. `gamma` and `auto_gamma` are set before the
/// first byte.
fn run_connection(queue: &str, gamma: u32, auto_gamma: u32) -> Vec<TelemetryWords> {
    let loaded = LoadedControl::new("ctcp", OBJECT);
    let ask = |stream: &TcpStream| {
        let map = loaded.object.maps().find(|map| map.name() == "sections").unwrap();
        let mut asked = [gamma, auto_gamma].map(u32::to_ne_bytes).concat();
        asked.resize(map.value_size() as usize, 0);
        map.update(&stream.as_raw_fd().to_ne_bytes(), &asked, MapFlags::ANY).unwrap();
    };
    let words = transfer_with_telemetry(&loaded, queue, BYTES, ask);
    let told = words.into_iter().map(|words| {
        let [_, _, window, loss_window, delay_window, base_us, rtt_us, _, gamma, rounds, losses, timeouts] = words;
        TelemetryWords { window, loss_window, delay_window, base_us, rtt_us, gamma, rounds, losses, timeouts }
    });
    told.collect()
}

/// The last telemetry of a connection.
fn last_telemetry(mut told: Vec<TelemetryWords>) -> TelemetryWords {
    told.pop().unwrap()
}

#[test]
fn it_carries_bytes_and_tells_how() {
    let told = last_telemetry(run_connection(SHORT, 0, 0));
    assert_eq!(told.window, told.loss_window + told.delay_window, "{told:?}");
    assert_eq!(told.gamma, 30, "{told:?}");
    assert!((1..50_000).contains(&told.base_us) && told.base_us <= told.rtt_us && told.rtt_us < 200_000, "{told:?}");
    assert!(told.rounds > 20 && told.losses > 0 && told.losses < told.rounds && told.timeouts < 3, "{told:?}");
}

/// Whether most of the telemetry since the first loss fulfils the condition. At a single moment, as the last one, a timeout
/// may just have emptied both windows.
fn is_mostly(told: &[TelemetryWords], is_so: impl Fn(&TelemetryWords) -> bool) -> bool {
    let steady = || told.iter().filter(|told| told.losses > 0);
    let so = steady().filter(|told| is_so(told)).count();
    eprintln!("{so} of {}", steady().count());
    so * 2 > steady().count()
}

#[test]
fn a_gamma_that_was_asked_for_holds() {
    let told = run_connection(SHORT, 5, 0);
    assert!(told.iter().all(|told| told.gamma == 5), "{told:?}");
    assert!(is_mostly(&told, |told| told.delay_window == 0), "the queue of 70 packets is the loss window's: {told:?}");
}

/// A gamma that no queue reaches leaves the delay window to grow until packets are lost.
#[test]
fn without_a_bound_of_the_queue_the_delay_window_stays() {
    // 270 packets: half of its capacity is still far more than the 38 below which there is no delay window.
    let told = run_connection("rate 40mbit burst 5kb limit 400kb", 100_000, 0);
    assert!(told.iter().all(|told| told.gamma == 100_000), "{told:?}");
    assert!(is_mostly(&told, |told| told.delay_window > 0), "{told:?}");
    assert!(told.iter().all(|told| told.window == told.loss_window + told.delay_window), "{told:?}");
}

#[test]
fn gamma_tunes_itself_within_its_bounds() {
    let told = last_telemetry(run_connection(SHORT, 0, 1));
    assert!(told.losses > 0 && (5..=30).contains(&told.gamma), "{told:?}");
}

#[test]
fn the_programs_are_small() {
    let loaded = LoadedControl::new("ctcp", OBJECT);
    let ids: Vec<_> = loaded.object.progs().filter_map(|program| Program::id_from_fd(program.as_fd()).ok()).collect();
    let infos: Vec<_> = ProgInfoIter::default().filter(|info| ids.contains(&info.id)).collect();
    assert_eq!(infos.len(), ids.len());
    for info in infos {
        println!("{}: {} instructions verified", info.name.to_string_lossy(), info.verified_insns);
        assert!(info.verified_insns < 20_000, "{:?}", info.name);
    }
}
