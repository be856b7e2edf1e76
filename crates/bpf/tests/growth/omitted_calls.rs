//! Detection of calls of a congestion control that the kernel omits, and the replacement of their results:
//! `last_values.h`, `omitted_calls.h`.

use libbpf_rs::{MapCore as _, MapFlags};

use crate::loaded::{LoadedControl, SHORT, transfer_with_telemetry};
use crate::steps::{GrowthPrograms, INFINITE_SSTHRESH};

macro_rules! objects {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/omitted_", $name, ".bpf.o")) as &[u8])),*]
    };
}

/// Regression: under load a window was sometimes 1105453791 packets or more. In a softirq that interrupted a thread of
/// process 1, the kernel had omitted the call of `ssthresh`, and used an address from its stack as the result. Here
/// every call of `init`, `ssthresh` and `set_state` is omitted, except `set_state` of Compound TCP, and the result is
/// the observed address.
#[test]
fn connections_survive_omitted_kernel_calls() {
    for (name, bytes) in objects!("bic", "ctcp", "cubicresume", "highspeed", "hybla", "scalable", "vegas", "westwood") {
        let Some(loaded) = LoadedControl::new(name, bytes) else { return };
        let report = transfer_with_telemetry(&loaded, SHORT, 4 << 20, |_| ());
        let [_, _, window, .., rounds, losses, timeouts] = *report.last().expect("telemetry was recorded");
        let [asked, wrong] = read_counts(&loaded);
        let report = format!("{name}: window {window}, {rounds} rounds, {losses} losses, {timeouts} timeouts");
        let report = format!("{report}, ssthresh called {asked} times, {wrong} times with the last result kept");
        eprintln!("{report}");
        // Vegas hardly ever fills the queue. With the others a burst as long as the send buffer leaves little behind.
        assert!((2..2000).contains(&window) && wrong == 0, "{report}");
        assert!(losses < 60 && (losses > 0 || name == "vegas"), "{report}");
    }
}

/// The two counters of `omitted.h`.
fn read_counts(loaded: &LoadedControl) -> [u32; 2] {
    let map = loaded.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).expect("two counters");
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).expect("a lookup").expect("a value");
    [0, 4].map(|at| u32::from_ne_bytes(value[at..at + 4].try_into().expect("four bytes")))
}

/// Whether a change of ssthresh from `threshold` to `found`, where `most` was the largest window, is attributed to the
/// kernel.
fn is_explained(steps: &GrowthPrograms, threshold: u64, most: u64, found: u64) -> bool {
    let [_, _, _, explained, _] = steps.run("step_last_values", [threshold, most, most, found, most]);
    explained == 1
}

/// The kernel raises ssthresh by itself, to 3/4 of a window or to its former value, and never lowers it.
#[test]
fn kernel_changes_of_ssthresh_are_not_mistaken_for_omitted_calls() {
    let steps = GrowthPrograms::load();
    for (threshold, most, found) in [
        (40, 80, 40),                               // no change
        (40, 80, 60),                               // after an idle time: tcp_cwnd_restart
        (40, 80, 80),                               // an undo to an earlier ssthresh
        (40, 80, INFINITE_SSTHRESH),                // an undo of the first loss
        (INFINITE_SSTHRESH, 10, INFINITE_SSTHRESH), // no loss yet
        (5000, 5000, 5000),                         // from the route's metrics
        (INFINITE_SSTHRESH - 1, 10, INFINITE_SSTHRESH - 1),
    ] {
        assert!(is_explained(&steps, threshold, most, found), "{threshold} {most} {found}");
    }
    for (threshold, most, found) in [
        (INFINITE_SSTHRESH, 79, 0x8110_4110), // as observed
        (40, 79, 0x8110_1910),                // as observed
        (INFINITE_SSTHRESH, 79, 40),
        (40, 79, 39),
        (40, 79, 80),
        (40, 79, 0),
        (40, 79, u64::from(u32::MAX)),
    ] {
        assert!(!is_explained(&steps, threshold, most, found), "{threshold} {most} {found}");
    }
}

#[test]
fn implausible_windows_are_replaced() {
    let steps = GrowthPrograms::load();
    let window = |most, window, otherwise| steps.run("step_last_values", [40, most, window, 40, otherwise])[2];
    assert_eq!([1, 2, 78, 79].map(|found| window(79, found, 50)), [1, 2, 78, 79]);
    assert_eq!([0, 80, 0x8110_4110, u64::from(u32::MAX)].map(|found| window(79, found, 50)), [50; 4]);
    assert_eq!(window(79, 0, 1000), 79, "the replacement is bounded, too");
    assert_eq!(window(79, 1000, 0), 2, "RFC 5681");
}

#[test]
fn largest_window_or_finite_ssthresh_is_recorded() {
    let steps = GrowthPrograms::load();
    let most = |most, window, threshold| steps.run("step_last_values", [threshold, most, window, threshold, window])[1];
    assert_eq!(most(79, 40, 40), 79);
    assert_eq!(most(79, 79, 5000), 5000, "an undo may restore this ssthresh");
    assert_eq!(most(79, 79, INFINITE_SSTHRESH), 79);
}
