//! The congestion controls in the kernel: connections select them by name, transfer bytes and report telemetry.

use std::time::Instant;

use crate::loaded::{LoadedControl, SHORT, transfer_with_telemetry};
use crate::name_lock::wait_for;

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
fn all_controls_transfer_over_a_lossy_path_and_report_telemetry() {
    for (name, bytes) in OBJECTS {
        let Some(loaded) = LoadedControl::new(name, bytes) else { return };
        let report = transfer_with_telemetry(&loaded, SHORT, 8 << 20, |_| ());
        let [_, _, window, _, _, base, rtt, queued, _, rounds, losses, timeouts] =
            *report.last().expect("telemetry was recorded");
        let report = format!("{name}: window {window}, base {base} us, RTT {rtt} us, {queued} queued, {rounds} rounds");
        eprintln!("{report}, {losses} losses, {timeouts} timeouts");
        assert!((2..2000).contains(&window), "{report}");
        assert!((1..100_000).contains(&base) && rtt >= base && rtt < 1_000_000, "{report}");
        // Vegas keeps 2 to 4 packets in the queue, and some more where acknowledgements arrive late and together, as on
        // a busy machine: with fewer than three samples in a round trip the window grows. The others fill the queue of
        // 66 packets, and the number of losses shows whether the window grows again.
        let (expected, reductions) = match *name {
            "vegas" => (1..=45, 0..10),
            "bic" | "scalable" => (0..=100, 6..60),
            _ => (0..=100, 2..30),
        };
        assert!(expected.contains(&queued) && queued <= window, "{report}");
        assert!(reductions.contains(&losses), "{report}, {losses} losses");
        assert!((10..100_000).contains(&rounds), "{report}");
    }
}

/// `tcp_allowed_congestion_control` lists the controls that need no privilege.
#[test]
fn loaded_controls_need_no_privilege_and_end_with_their_link() {
    let allowed = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").expect("a sysctl");
    let names = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (name, bytes) in OBJECTS {
        let Some(loaded) = LoadedControl::new(name, bytes) else { return };
        assert!(names(allowed()).contains(&loaded.name), "{name}");
        let own = loaded.name.clone();
        drop(loaded);
        // A child process of another test, between fork and exec, holds a copy of the link for a moment.
        wait_for(&format!("the end of {own}"), || (!names(allowed()).contains(&own)).then_some(()));
    }
}

/// Programs that run for every ACK must be small. The duration of the load shows the cost of the verifier.
#[test]
fn verified_instructions_stay_below_10000() {
    for (name, bytes) in OBJECTS {
        let began = Instant::now();
        let Some(loaded) = LoadedControl::new(name, bytes) else { return };
        eprintln!("{name}: loaded in {:?}", began.elapsed());
        loaded.assert_verified_below(10_000);
    }
}
