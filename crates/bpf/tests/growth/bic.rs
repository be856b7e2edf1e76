//! Xu, Harfoush, Rhee, "Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks", 2004.

use crate::steps::{GrowthPrograms, Window};

const MOST: f64 = 16.0;
const LEAST: f64 = 0.01;
const LOW: f64 = 14.0;

/// The pseudocode of section III of the paper, in floating point and with all its states.
struct Reference {
    window: f64,
    lower: f64,
    upper: f64,
    /// The increment and the end of a step of the search past the upper end.
    past: Option<(f64, f64)>,
}

impl Reference {
    /// The state after a loss at a window of `upper`, which reduced the window to `window`.
    fn new(window: f64, upper: f64) -> Self {
        Self { window, lower: window, upper, past: None }
    }

    fn acknowledged(&mut self) {
        let window = self.window;
        if window < LOW {
            self.window += 1.0 / window;
            return;
        }
        let Some((step, end)) = self.past else {
            let target = f64::midpoint(self.lower, self.upper);
            self.window += (target - window).clamp(LEAST, MOST) / window;
            if self.window < self.upper {
                self.lower = self.window;
            } else {
                self.past = Some((1.0, self.window + 1.0));
            }
            return;
        };
        self.window += step / window;
        if self.window >= end && step < MOST {
            self.past = Some((2.0 * step, self.window + 2.0 * step));
        }
    }

    fn round(&mut self) -> f64 {
        for _ in 0..self.window as u64 {
            self.acknowledged();
        }
        self.window
    }
}

/// Growth after a loss: additive increase, binary search, and the search past the old maximum. Near the maximum, where
/// a round trip adds hundredths of a packet, the kernel may reach a whole packet a round trip earlier or later than the
/// reference.
#[test]
fn growth_follows_the_search_of_the_paper() {
    let steps = GrowthPrograms::load();
    for lost in [20, 100, 400, 1000] {
        let mut window = Window::new(&steps, "bic", lost);
        window.reduce();
        assert_eq!((window.packets(), window.extra[0]), (lost * 819 / 1024, lost));
        let mut reference = Reference::new(window.packets() as f64, lost as f64);
        let mut expected = vec![reference.window];
        expected.extend((0..61).map(|_| reference.round()));
        for round in 1..=60 {
            window.round();
            let range = expected[round - 1] - 0.5..=expected[round + 1] + 0.5;
            assert!(
                range.contains(&window.exact_packets()),
                "{lost}, round {round}: {}, not {range:?}",
                window.exact_packets()
            );
        }
        assert!(window.packets() > lost + 100, "the search continues past {lost}");
    }
}

/// The largest increment applies far from the maximum, and as long as no maximum is known.
#[test]
fn growth_per_round_trip_is_capped_at_the_largest_increment() {
    let steps = GrowthPrograms::load();
    for (packets, maximum) in [(100, 0), (100, 10_000), (20_000, 100), (100, 132)] {
        let mut window = Window::new(&steps, "bic", packets);
        window.extra[0] = maximum;
        window.grow(packets);
        assert!(
            (window.exact_packets() - packets as f64 - MOST).abs() < 0.01,
            "{packets} {maximum} {}",
            window.exact_packets()
        );
    }
}

/// Past the maximum, each step is the sum of all earlier steps and one packet, up to the largest increment.
#[test]
fn steps_double_past_the_maximum() {
    let steps = GrowthPrograms::load();
    for (past, step) in [(0, 1.0), (1, 2.0), (2, 2.0), (3, 4.0), (6, 4.0), (7, 8.0), (14, 8.0), (15, 16.0), (900, 16.0)]
    {
        let mut window = Window::new(&steps, "bic", 1000 + past);
        window.extra[0] = 1000;
        window.grow(1000 + past);
        let grown = window.exact_packets() - (1000 + past) as f64;
        assert!((grown - step).abs() < 0.001, "{past} packets past it: {grown}");
    }
}

#[test]
fn growth_close_to_the_maximum_uses_the_smallest_increment() {
    let steps = GrowthPrograms::load();
    let mut window = Window::new(&steps, "bic", 999);
    window.extra[0] = 1000;
    let mut rounds = 0;
    while window.packets() < 1000 {
        window.grow(999);
        rounds += 1;
    }
    assert!((6..=12).contains(&rounds), "{rounds} round trips for one packet");
}

/// After a loss below the former maximum, the new maximum is the middle between the windows before and after the loss.
#[test]
fn fast_convergence_lowers_the_maximum_after_an_early_loss() {
    let steps = GrowthPrograms::load();
    assert_eq!(steps.run("step_bic_reduce", [1000, 0]), [799, 1000]);
    assert_eq!(steps.run("step_bic_reduce", [1000, 1000]), [799, 1000]);
    assert_eq!(steps.run("step_bic_reduce", [1000, 900]), [799, 1000]);
    assert_eq!(steps.run("step_bic_reduce", [1000, 1200]), [799, 899]);
}

#[test]
fn small_bic_windows_behave_like_reno() {
    let steps = GrowthPrograms::load();
    for (before, after) in [(1, 2), (2, 2), (5, 2), (13, 6), (14, 11), (15, 11)] {
        assert_eq!(steps.run("step_bic_reduce", [before, 0]), [after, before]);
    }
    for packets in [2, 13] {
        let mut window = Window::new(&steps, "bic", packets);
        window.grow(packets);
        assert_eq!(window.packets(), packets + 1);
    }
}
