//! RFC 3649, "HighSpeed TCP for Large Congestion Windows".

use crate::steps::{GrowthPrograms, Window};

const LOW: f64 = 38.0;
const HIGH: f64 = 83_000.0;

/// Section 5: the fraction of the window by which a loss reduces it.
fn b(window: f64) -> f64 {
    0.5 + (0.1 - 0.5) * (window.ln() - LOW.ln()) / (HIGH.ln() - LOW.ln())
}

/// Section 5: the number of packets that a round trip adds, with the loss rate p(w) = 1 / (12.8 w^1.2) of appendix B.
fn a(window: f64) -> f64 {
    window.powi(2) / (12.8 * window.powf(1.2)) * 2.0 * b(window) / (2.0 - b(window))
}

/// Appendix B: the first window of each row of the table. Each row adds one packet more in a round trip.
fn rows() -> Vec<u64> {
    let mut rows = vec![38];
    let mut last = 1.0;
    for window in 39..100_000u32 {
        let now = a(f64::from(window));
        if now > last + 1.0 {
            rows.push(u64::from(window));
            last = now;
        }
    }
    rows
}

/// The growth of a window in one round trip, from the increment of one acknowledged packet.
fn increase(steps: &GrowthPrograms, packets: u64) -> f64 {
    let mut window = Window::new(steps, "highspeed", packets);
    window.grow(1);
    (window.exact_packets() - packets as f64) * packets as f64
}

fn decrease(steps: &GrowthPrograms, packets: u64) -> f64 {
    let mut window = Window::new(steps, "highspeed", packets);
    window.reduce();
    1.0 - window.packets() as f64 / packets as f64
}

/// At the first window of a row, increase and decrease of the kernel equal those of the table.
#[test]
fn table_rows_match_the_formulas() {
    let steps = GrowthPrograms::load();
    let rows = rows();
    assert_eq!(rows.len(), 73);
    assert_eq!((rows[1], rows[10], rows[72]), (118, 1793, 94_717), "appendix B");
    for (row, &window) in rows.iter().enumerate() {
        let (grown, shrunk) = (increase(&steps, window), decrease(&steps, window));
        assert!((grown - (row + 1) as f64).abs() < 0.001, "a({window}) = {grown}, in row {row}");
        assert!((shrunk - b(window as f64)).abs() <= rounding(window), "b({window}) = {shrunk}, in row {row}");
    }
}

/// Rounding error of b: a window is a whole number of packets, and the kernel computes b in units of 1/1024.
fn rounding(window: u64) -> f64 {
    1.0 / window as f64 + 1.5 / 1024.0
}

/// Between the rows the deviation from the formulas is small. After the last row the values stay constant.
#[test]
fn windows_between_the_table_rows_match_the_formulas() {
    let steps = GrowthPrograms::load();
    for window in (45..94_717).step_by(97) {
        let exactly = window as f64;
        let (grown, shrunk) = (increase(&steps, window), decrease(&steps, window));
        assert!((grown / a(exactly) - 1.0).abs() < 0.03, "a({window}) = {grown}, not {}", a(exactly));
        assert!((shrunk - b(exactly)).abs() <= 0.01 + rounding(window), "b({window}) = {shrunk}");
    }
    for window in [94_717, 100_000, 1 << 20] {
        assert!((increase(&steps, window) - 73.0).abs() < 0.001);
        assert!((decrease(&steps, window) - b(94_717.0)).abs() < 0.001);
    }
}

/// Section 5, table 3: a(w) and b(w) at a few windows, rounded to whole packets and two decimal places.
#[test]
fn published_values_of_the_rfc_are_reproduced() {
    let steps = GrowthPrograms::load();
    for (window, packets, part) in [(38, 1.0, 0.5), (118, 2.0, 0.44), (221, 3.0, 0.41), (347, 4.0, 0.38)] {
        assert!((increase(&steps, window) - packets).abs() < 0.001);
        assert!((decrease(&steps, window) - part).abs() < 0.011, "b({window})");
    }
}

#[test]
fn small_highspeed_windows_behave_like_reno() {
    let steps = GrowthPrograms::load();
    for packets in [2, 3, 20, 38] {
        assert!((increase(&steps, packets) - 1.0).abs() < 0.001);
    }
    for (before, after) in [(1, 2), (2, 2), (3, 2), (20, 10), (38, 19)] {
        assert_eq!(steps.run("step_highspeed_reduce", [before, 0]), [after, 0]);
    }
}

/// Section 5: the average window is 0.12 / p^0.835.
#[test]
fn average_highspeed_window_follows_the_loss_rate() {
    let steps = GrowthPrograms::load();
    for every in [2000, 10_000, 100_000, 1_000_000] {
        let average = Window::new(&steps, "highspeed", 100).average(every, 40);
        let expected = 0.12 * (every as f64).powf(0.835);
        assert!((average / expected - 1.0).abs() < 0.04, "1/{every}: {average} instead of {expected}");
    }
}
