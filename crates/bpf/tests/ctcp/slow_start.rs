//! The end of slow start without a loss, and the window afterwards.

use crate::steps::{CtcpProgram, Op, State};

const BASE_US: u32 = 100_000;

/// Records `samples` samples of one RTT in slow start, and then runs the decision whether slow start ends.
fn sample_and_judge(steps: &CtcpProgram, state: &mut State, rtt_us: u32, samples: u32) {
    for _ in 0..samples {
        steps.run(state, Op::Sample { rtt_us });
    }
    steps.run(state, Op::EndSlowStart);
}

#[test]
fn slow_start_ends_when_half_the_window_queues_gamma_packets() {
    let steps = CtcpProgram::load();
    // Of 400 packets 30 wait if the RTT is 400/370 of the base.
    for (rtt_us, ends) in [(108_000, false), (108_200, true)] {
        let mut state = steps.start(800, BASE_US);
        sample_and_judge(&steps, &mut state, BASE_US, 8);
        sample_and_judge(&steps, &mut state, rtt_us, 8);
        let windows = if ends { (400, 400) } else { (800, 0) };
        assert_eq!((state.cwnd, state.dwnd), windows);
    }
}

#[test]
fn slow_start_uses_the_smallest_of_eight_samples() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(800, BASE_US);
    sample_and_judge(&steps, &mut state, 2 * BASE_US, 6);
    assert_eq!(state.dwnd, 0, "seven samples, with that of the start");
    sample_and_judge(&steps, &mut state, 2 * BASE_US, 1);
    assert_eq!(state.dwnd, 0, "the first sample was without a queue");
    sample_and_judge(&steps, &mut state, 2 * BASE_US, 8);
    assert_eq!(state.dwnd, 400);
}

#[test]
fn small_windows_stay_in_slow_start() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(75, BASE_US);
    sample_and_judge(&steps, &mut state, BASE_US, 8);
    sample_and_judge(&steps, &mut state, 20 * BASE_US, 8);
    assert_eq!((state.cwnd, state.dwnd), (75, 0));
}

/// The path carries 833 packets. Slow start ends with a window of about twice that at most, and the excess drains.
#[test]
fn window_settles_at_the_capacity_of_the_path() {
    let steps = CtcpProgram::load();
    let capacity = 833;
    let rtt_us = |window: u32| BASE_US.max(BASE_US / capacity * window);
    let mut state = steps.start(10, BASE_US);
    let mut sent_with = 10;
    while state.dwnd == 0 {
        sent_with = (state.cwnd + 8) / 2;
        sample_and_judge(&steps, &mut state, rtt_us(sent_with), 8);
        if state.dwnd == 0 {
            let window = state.cwnd + 8;
            steps.run(&mut state, Op::Follow { window, slow_start: true });
        }
    }
    assert!((860..890).contains(&sent_with), "{sent_with}");
    assert!(state.window() < 2 * 890);
    // The samples of the first round still belong to slow start.
    steps.round(&mut state, rtt_us(sent_with), 0);
    let window = state.window();
    steps.round(&mut state, rtt_us(window), 0);
    assert!(state.window().abs_diff(capacity) <= capacity / 20, "{state:?}");
}
