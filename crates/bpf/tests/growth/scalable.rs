//! Kelly, "Scalable TCP", 2003.

use crate::steps::{GrowthPrograms, Window};

/// A hundred acknowledged packets add one packet, no matter how many packets one acknowledgement covers.
#[test]
fn window_grows_by_a_hundredth_of_the_acknowledged_packets() {
    let steps = GrowthPrograms::load();
    for (window, at_a_time) in [(17, 1), (1000, 2), (20_000, 44)] {
        let mut grown = Window::new(&steps, "scalable", window);
        for _ in 0..5000 / at_a_time {
            grown.grow(at_a_time);
        }
        let expected = (window + 5000 / at_a_time * at_a_time / 100) as f64;
        assert!(
            (grown.exact_packets() - expected).abs() < 1.0,
            "{window}: {} instead of {expected}",
            grown.exact_packets()
        );
    }
}

#[test]
fn loss_reduces_the_window_by_an_eighth() {
    let steps = GrowthPrograms::load();
    for (before, after) in [(17, 15), (100, 88), (8000, 7000), (1 << 20, 917_504)] {
        assert_eq!(steps.run("step_scalable_reduce", [before, 0]), [after, 0]);
    }
}

/// Up to the legacy window of 16 packets, a round trip adds a packet and a loss halves the window, to no less than two
/// packets.
#[test]
fn small_scalable_windows_behave_like_reno() {
    let steps = GrowthPrograms::load();
    for (before, after) in [(1, 2), (2, 2), (3, 2), (10, 5), (16, 8)] {
        assert_eq!(steps.run("step_scalable_reduce", [before, 0]), [after, 0]);
        let mut grown = Window::new(&steps, "scalable", before);
        grown.grow(before);
        assert_eq!(grown.packets(), before + 1);
    }
}

/// The paper's claim: the recovery time after a loss does not depend on the window. It is log(8/7) / log(1.01) = 13.4
/// round trips.
#[test]
fn recovery_time_is_the_same_for_all_windows() {
    let steps = GrowthPrograms::load();
    for before in [200, 2000, 200_000] {
        let mut window = Window::new(&steps, "scalable", before);
        window.reduce();
        let mut rounds = 0;
        while window.packets() < before {
            window.grow(window.packets().min(0xffff));
            rounds += window.packets().min(0xffff);
        }
        let rounds = rounds as f64 / before as f64;
        assert!((12.0..15.0).contains(&rounds), "{before}: {rounds} round trips");
    }
}

/// Between two losses at a window of W packets, 100 (W / 8) packets are acknowledged, so that W is 0.08 / p, as in the
/// paper. The average of a window that grows by a hundredth is 1 / (8 log(8/7)) of W.
#[test]
fn average_scalable_window_follows_the_loss_rate() {
    let steps = GrowthPrograms::load();
    for every in [10_000, 100_000, 500_000] {
        let average = Window::new(&steps, "scalable", 100).average(every, 60);
        let expected = 0.08 * every as f64 / (8.0 * (8f64 / 7.0).ln());
        assert!((average / expected - 1.0).abs() < 0.03, "1/{every}: {average} instead of {expected}");
    }
}
