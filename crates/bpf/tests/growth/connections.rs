//! The six in use: the kernel takes them, connections choose them by name, and tell how they are.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use libbpf_rs::Program;
use libbpf_rs::query::ProgInfoIter;

use crate::loaded::{LoadedControl, SHORT, transfer_with_telemetry};

macro_rules! object {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
    };
}

static OBJECTS: &[(&str, &[u8])] = &[
    object!("bic"),
    object!("cubicresume"),
    object!("highspeed"),
    object!("hybla"),
    object!("scalable"),
    object!("vegas"),
    object!("westwood"),
];

#[test]
fn all_carry_bytes_over_a_lossy_path_and_tell_how() {
    for (name, bytes) in OBJECTS {
        let loaded = LoadedControl::new(name, bytes);
        let told = transfer_with_telemetry(&loaded, SHORT, 8 << 20, |_| ());
        let [_, _, window, _, _, base, rtt, queued, _, rounds, losses, timeouts] =
            *told.last().expect("it has told something");
        let told = format!("{name}: window {window}, base {base} us, RTT {rtt} us, {queued} queued, {rounds} rounds");
        eprintln!("{told}, {losses} losses, {timeouts} timeouts");
        assert!((2..2000).contains(&window), "{told}");
        assert!((1..100_000).contains(&base) && rtt >= base && rtt < 1_000_000, "{told}");
        // Vegas wants to have 2 to 4 packets waiting. It has some more where acknowledgements come late and together, as
        // on a busy machine: fewer than three samples in a round trip let it grow. The others fill the queue of 66, and
        // how often it is full tells whether the window grows back.
        let (expected, reductions) = match *name {
            "vegas" => (1..=45, 0..10),
            "bic" | "scalable" => (0..=100, 6..60),
            _ => (0..=100, 2..30),
        };
        assert!(expected.contains(&queued) && queued <= window, "{told}");
        assert!(reductions.contains(&losses), "{told}, {losses} losses");
        assert!((10..100_000).contains(&rounds), "{told}");
    }
}

/// `tcp_allowed_congestion_control` lists the controls that need no privilege.
#[test]
fn they_need_no_privilege_once_loaded_and_are_gone_with_the_link() {
    let allowed = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").expect("a sysctl");
    let names = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (name, bytes) in OBJECTS {
        let loaded = LoadedControl::new(name, bytes);
        assert!(names(allowed()).contains(&loaded.name), "{name}");
        let own = loaded.name.clone();
        drop(loaded);
        // A program that is being started beside this has a copy of the link for a moment.
        let deadline = Instant::now() + Duration::from_secs(60);
        while names(allowed()).contains(&own) {
            assert!(Instant::now() < deadline, "{name}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Programs that run for every ACK have to be small; loading takes the verifier's time.
#[test]
fn the_verifier_is_content_soon() {
    for (name, bytes) in OBJECTS {
        let began = Instant::now();
        let loaded = LoadedControl::new(name, bytes);
        eprintln!("{name}: loaded in {:?}", began.elapsed());
        let ids: Vec<_> =
            loaded.object.progs().filter_map(|program| Program::id_from_fd(program.as_fd()).ok()).collect();
        let infos: Vec<_> = ProgInfoIter::default().filter(|info| ids.contains(&info.id)).collect();
        assert_eq!(infos.len(), ids.len(), "{name}");
        for info in infos {
            eprintln!("{name}: {}: {} instructions verified", info.name.to_string_lossy(), info.verified_insns);
            assert!(info.verified_insns < 10_000, "{name}: {:?}", info.name);
        }
    }
}
