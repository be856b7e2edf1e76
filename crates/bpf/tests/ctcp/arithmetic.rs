//! Each rule alone: its result against the model.

use crate::dice::SeededRng;
use crate::model::{self, Windows};
use crate::steps::{CtcpProgram, FRACTION, NONE, Op, Round, State};

const BASE_US: u32 = 100_000;

fn close(is: f64, should: f64, tolerance: f64) -> bool {
    (is - should).abs() <= tolerance
}

fn parts(value: u32) -> f64 {
    f64::from(value) / f64::from(FRACTION)
}

/// Both windows, with the parts of packets counted as of a window of `unit` packets.
fn windows(state: &State, unit: u32) -> Windows {
    let unit = f64::from(unit);
    Windows {
        cwnd: f64::from(state.cwnd) + f64::from(state.cwnd_part) / unit,
        dwnd: f64::from(state.dwnd) + parts(state.dwnd_part) / unit,
    }
}

fn some_state(dice: &mut SeededRng) -> State {
    let cwnd = 2 + dice.below(5_000);
    let dwnd = if dice.below(4) == 0 { 0 } else { dice.below(20_000) };
    State {
        cwnd,
        dwnd,
        cwnd_part: dice.below(cwnd + dwnd),
        dwnd_part: dice.below(cwnd + dwnd) * FRACTION,
        step: dice.below(200 * FRACTION),
        gamma: (5 + dice.below(26)) * FRACTION,
        base_us: 1_000 + dice.below(500_000),
        base_before_us: NONE,
        reno_queued: NONE,
        ..State::default()
    }
}

/// The published table: the gain of a window in one round trip without a queue.
#[test]
fn a_round_trip_adds_what_the_paper_says() {
    let steps = CtcpProgram::load();
    for (window, gain) in [(38, 1.9), (100, 4.0), (1_000, 22.2), (10_000, 125.0)] {
        let mut state = steps.start(window, BASE_US);
        steps.round(&mut state, BASE_US, 0);
        for _ in 0..window {
            steps.run(&mut state, Op::Grow { acked: 1 });
        }
        let grown = windows(&state, window).sum() - f64::from(window);
        // The window grows while the round lasts, so its last packets count for a little less.
        assert!(close(grown, gain, 0.05 * gain), "{window}: {grown} instead of {gain}");
        let step = parts(state.step);
        assert!(close(step, model::step(f64::from(window)), 0.02), "{window}: {step}");
    }
}

#[test]
fn the_step_is_right_for_every_size_of_window() {
    let steps = CtcpProgram::load();
    for shift in 6..22 {
        for window in [1 << shift, (1 << shift) + 1, (3 << shift) / 2, (1 << (shift + 1)) - 1] {
            let mut state = steps.start(window, BASE_US);
            steps.round(&mut state, BASE_US, 0);
            let should = model::step(f64::from(window));
            assert!(
                close(parts(state.step), should, 0.005 + should * 1e-4),
                "{window}: {} {should}",
                parts(state.step)
            );
        }
    }
}

/// The increment comes packet by packet. A whole one at the end of a round would be a burst of up to `alpha window^k`.
#[test]
fn growth_is_spread_over_the_round() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(10_000, BASE_US);
    steps.round(&mut state, BASE_US, 0);
    assert_eq!(state.window(), 10_000);
    for _ in 0..10_000 {
        let before = state.window();
        steps.run(&mut state, Op::Grow { acked: 1 });
        assert!(state.window() - before <= 2);
    }
    assert!(state.window() > 10_120);
}

#[test]
fn any_state_grows_as_in_the_model() {
    let steps = CtcpProgram::load();
    let mut dice = SeededRng::new(1);
    for _ in 0..5_000 {
        let before = some_state(&mut dice);
        let acked = 1 + dice.below(before.window());
        let mut state = before;
        steps.run(&mut state, Op::Grow { acked });
        let window = before.window();
        let is = windows(&state, window);
        let should = windows(&before, window).grown(f64::from(acked), f64::from(window), parts(before.step));
        assert!(close(is.cwnd, should.cwnd, 1e-6) && close(is.dwnd, should.dwnd, 1e-6), "{before:?} {is:?} {should:?}");
    }
}

#[test]
fn any_round_ends_as_in_the_model() {
    let steps = CtcpProgram::load();
    let mut dice = SeededRng::new(2);
    let (mut grew, mut yielded) = (0, 0);
    for _ in 0..5_000 {
        let before = some_state(&mut dice);
        let rtt_us = before.base_us + if dice.below(2) == 0 { dice.below(before.base_us) } else { dice.below(50) };
        let used = before.window() - dice.below(before.window() / 2);
        let queued = model::queued(f64::from(used), f64::from(before.base_us), f64::from(rtt_us));
        if close(queued, parts(before.gamma), 0.01) {
            continue;
        }
        let round = Round { rtt_us, samples: 3, used, now_ms: 0 };
        let mut state = before;
        steps.run(&mut state, Op::EndRound { round, slow_start: false });
        assert!(close(parts(state.queued), queued, 0.005), "{before:?} {queued}");
        if f64::from(before.window()) < model::LOW_WINDOW {
            assert_eq!((state.window(), state.dwnd, state.step), (before.window(), 0, 0), "{before:?}");
        } else if queued < parts(before.gamma) {
            grew += 1;
            let step = model::step(f64::from(before.window()));
            assert!(close(parts(state.step), step, 0.01) && state.dwnd == before.dwnd, "{before:?}");
        } else {
            yielded += 1;
            let dwnd = (f64::from(before.dwnd) - queued).max(0.0);
            assert!(close(f64::from(state.dwnd), dwnd, 1.0) && state.step == 0, "{before:?} {dwnd}");
        }
        assert!(state.cwnd == before.cwnd || state.dwnd == 0, "a round does not touch the loss window");
    }
    assert!(grew > 500 && yielded > 500, "{grew} {yielded}");
}

#[test]
fn both_windows_halve_at_a_loss_and_come_back_when_there_was_none() {
    let steps = CtcpProgram::load();
    let mut dice = SeededRng::new(3);
    for _ in 0..2_000 {
        let before = some_state(&mut dice);
        let should = Windows { cwnd: f64::from(before.cwnd), dwnd: f64::from(before.dwnd) }.halved();
        let mut state = before;
        steps.run(&mut state, Op::Reduce);
        let is = Windows { cwnd: f64::from(state.cwnd), dwnd: f64::from(state.dwnd) };
        assert!(close(is.cwnd, should.cwnd, 0.5) && close(is.dwnd, should.dwnd, 0.5), "{before:?} {state:?}");
        assert_eq!(state.step, 0, "no growth before a round without a loss");
        steps.run(&mut state, Op::Undo { window: 1 });
        assert_eq!((state.cwnd, state.dwnd), (before.cwnd, before.dwnd));
    }
}

#[test]
fn a_window_below_38_packets_is_renos() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(10, BASE_US);
    // Reno's: a packet for each window of acknowledged packets, and half at a loss.
    let (mut window, mut counted) = (10, 0);
    for packet in 0..6_000 {
        if packet % window == 0 {
            steps.round(&mut state, BASE_US, packet);
        }
        steps.run(&mut state, Op::Grow { acked: 1 });
        counted += 1;
        if counted == window {
            (window, counted) = (window + 1, 0);
        }
        if window == 37 {
            steps.run(&mut state, Op::Reduce);
            (window, counted) = (18, 0);
        }
        assert_eq!((state.window(), state.dwnd), (window, 0));
    }
}

/// The queue of others does not go away, so the delay window does; the loss window goes on as Reno's.
#[test]
fn a_standing_queue_empties_the_delay_window() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(400, BASE_US);
    while state.dwnd < 500 {
        steps.round(&mut state, BASE_US, 0);
        let acked = state.window();
        steps.run(&mut state, Op::Grow { acked });
    }
    let cwnd = state.cwnd;
    for _ in 0..3 {
        steps.round(&mut state, 2 * BASE_US, 0);
        let acked = state.window();
        steps.run(&mut state, Op::Grow { acked });
    }
    assert_eq!((state.dwnd, state.cwnd), (0, cwnd + 3));
}

#[test]
fn growth_goes_on_after_a_recovery_without_a_queue() {
    let steps = CtcpProgram::load();
    for (rtt_us, grows) in [(BASE_US, true), (2 * BASE_US, false)] {
        let mut state = State { cwnd: 500, dwnd: 500, ..steps.start(500, BASE_US) };
        steps.run(&mut state, Op::Reduce);
        let round = Round { rtt_us, samples: 3, used: 500, now_ms: 0 };
        steps.run(&mut state, Op::EndRecovery { round });
        assert_eq!((state.cwnd, state.dwnd), (250, 250), "a queue is what the reduction was for");
        let step = if grows { model::step(500.0) } else { 0.0 };
        assert!(close(parts(state.step), step, 0.01), "{}", parts(state.step));
    }
}

/// The samples of the round after the delay window gave way are of packets that were sent before.
#[test]
fn one_queue_is_yielded_to_once() {
    let steps = CtcpProgram::load();
    let mut state = State { cwnd: 500, dwnd: 500, ..steps.start(500, BASE_US) };
    let mut windows = Vec::new();
    for _ in 0..4 {
        steps.round(&mut state, BASE_US * 5 / 4, 0);
        windows.push((state.dwnd, state.step));
    }
    // 1000/5, a round that does not count, 800/5, another.
    assert_eq!(windows, [(300, 0), (300, 0), (140, 0), (140, 0)]);
}

/// Reductions of the sum by the kernel are taken from the delay window first, and in slow start it is 0.
#[test]
fn the_windows_follow_their_sum() {
    let steps = CtcpProgram::load();
    let windows = |window, slow_start| {
        let mut state = State { cwnd: 100, dwnd: 50, step: 5, ..State::default() };
        steps.run(&mut state, Op::Follow { window, slow_start });
        (state.cwnd, state.dwnd, state.step)
    };
    assert_eq!(windows(150, false), (100, 50, 5));
    assert_eq!(windows(120, false), (100, 20, 5));
    assert_eq!(windows(80, false), (80, 0, 5));
    assert_eq!(windows(170, false), (100, 70, 5));
    assert_eq!(windows(120, true), (120, 0, 0));
}

#[test]
fn gamma_follows_losses_where_that_is_asked_for() {
    let steps = CtcpProgram::load();
    let mut dice = SeededRng::new(4);
    for _ in 0..2_000 {
        let reno_queued = dice.below(100 * FRACTION);
        let before = State { reno_queued, ..some_state(&mut dice) };
        let mut state = before;
        steps.run(&mut state, Op::TuneGamma);
        let should = model::tuned(parts(before.gamma), parts(reno_queued));
        assert!(close(parts(state.gamma), should, 0.02), "{before:?} {should}");
        let once = state;
        steps.run(&mut state, Op::TuneGamma);
        assert_eq!(state, once, "a round counts for one loss");
    }
    let mut state = State::default();
    for (packets, gamma) in [(0, 30), (7, 7), (100, 100)] {
        steps.run(&mut state, Op::FixGamma { packets });
        assert_eq!(state.gamma, gamma * FRACTION);
    }
}
