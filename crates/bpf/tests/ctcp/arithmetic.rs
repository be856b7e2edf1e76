//! Each rule of the arithmetic separately, compared with the model.

use crate::model::{self, Windows};
use crate::rng::SeededRng;
use crate::steps::{CtcpProgram, FRACTION, NONE, Op, Round, State};

const BASE_US: u32 = 100_000;

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found - expected).abs() <= tolerance
}

fn parts(value: u32) -> f64 {
    f64::from(value) / f64::from(FRACTION)
}

/// Both windows in packets, with their fractions in units of 1/`unit` of a packet.
fn windows(state: &State, unit: u32) -> Windows {
    let unit = f64::from(unit);
    Windows {
        cwnd: f64::from(state.cwnd) + f64::from(state.cwnd_part) / unit,
        dwnd: f64::from(state.dwnd) + parts(state.dwnd_part) / unit,
    }
}

fn random_state(rng: &mut SeededRng) -> State {
    let cwnd = 2 + rng.below(5_000);
    let dwnd = if rng.below(4) == 0 { 0 } else { rng.below(20_000) };
    State {
        cwnd,
        dwnd,
        cwnd_part: rng.below(cwnd + dwnd),
        dwnd_part: rng.below(cwnd + dwnd) * FRACTION,
        step: rng.below(200 * FRACTION),
        gamma: (5 + rng.below(26)) * FRACTION,
        base_us: 1_000 + rng.below(500_000),
        base_before_us: NONE,
        reno_queued: NONE,
        ..State::default()
    }
}

/// The published table: the gain of a window in one round trip without a queue.
#[test]
fn growth_per_round_trip_matches_the_paper() {
    let steps = CtcpProgram::load();
    for (window, gain) in [(38, 1.9), (100, 4.0), (1_000, 22.2), (10_000, 125.0)] {
        let mut state = steps.start(window, BASE_US);
        steps.round(&mut state, BASE_US, 0);
        for _ in 0..window {
            steps.run(&mut state, Op::Grow { acked: 1 });
        }
        let grown = windows(&state, window).sum() - f64::from(window);
        // The window grows during the round, so the last packets of the round add a little less.
        assert!(close(grown, gain, 0.05 * gain), "{window}: {grown} instead of {gain}");
        let step = parts(state.step);
        assert!(close(step, model::step(f64::from(window)), 0.02), "{window}: {step}");
    }
}

#[test]
fn step_matches_the_model_for_every_window_size() {
    let steps = CtcpProgram::load();
    for shift in 6..22 {
        for window in [1 << shift, (1 << shift) + 1, (3 << shift) / 2, (1 << (shift + 1)) - 1] {
            let mut state = steps.start(window, BASE_US);
            steps.round(&mut state, BASE_US, 0);
            let expected = model::step(f64::from(window));
            assert!(
                close(parts(state.step), expected, 0.005 + expected * 1e-4),
                "{window}: {} {expected}",
                parts(state.step)
            );
        }
    }
}

/// The window grows packet by packet. The whole increment at the end of a round would be a burst of up to
/// `alpha window^k`.
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
fn random_states_grow_as_in_the_model() {
    let steps = CtcpProgram::load();
    let mut rng = SeededRng::new(1);
    for _ in 0..5_000 {
        let before = random_state(&mut rng);
        let acked = 1 + rng.below(before.window());
        let mut state = before;
        steps.run(&mut state, Op::Grow { acked });
        let window = before.window();
        let found = windows(&state, window);
        let expected = windows(&before, window).grown(f64::from(acked), f64::from(window), parts(before.step));
        assert!(
            close(found.cwnd, expected.cwnd, 1e-6) && close(found.dwnd, expected.dwnd, 1e-6),
            "{before:?} {found:?} {expected:?}"
        );
    }
}

#[test]
fn random_rounds_end_as_in_the_model() {
    let steps = CtcpProgram::load();
    let mut rng = SeededRng::new(2);
    let (mut grew, mut yielded) = (0, 0);
    for _ in 0..5_000 {
        let before = random_state(&mut rng);
        let rtt_us = before.base_us + if rng.below(2) == 0 { rng.below(before.base_us) } else { rng.below(50) };
        let used = before.window() - rng.below(before.window() / 2);
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
fn loss_halves_both_windows_and_undo_restores_them() {
    let steps = CtcpProgram::load();
    let mut rng = SeededRng::new(3);
    for _ in 0..2_000 {
        let before = random_state(&mut rng);
        let expected = Windows { cwnd: f64::from(before.cwnd), dwnd: f64::from(before.dwnd) }.halved();
        let mut state = before;
        steps.run(&mut state, Op::Reduce);
        let found = Windows { cwnd: f64::from(state.cwnd), dwnd: f64::from(state.dwnd) };
        assert!(close(found.cwnd, expected.cwnd, 0.5) && close(found.dwnd, expected.dwnd, 0.5), "{before:?} {state:?}");
        assert_eq!(state.step, 0, "no growth before a round without a loss");
        steps.run(&mut state, Op::Undo { window: 1 });
        assert_eq!((state.cwnd, state.dwnd), (before.cwnd, before.dwnd));
    }
}

#[test]
fn windows_below_38_packets_behave_like_reno() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(10, BASE_US);
    // The window of Reno: one packet more for each window of acknowledged packets, and half at a loss.
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

/// The queue of other connections persists, so the delay window shrinks to 0. The loss window grows as in Reno.
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
fn growth_resumes_after_a_recovery_without_a_queue() {
    let steps = CtcpProgram::load();
    for (rtt_us, grows) in [(BASE_US, true), (2 * BASE_US, false)] {
        let mut state = State { cwnd: 500, dwnd: 500, ..steps.start(500, BASE_US) };
        steps.run(&mut state, Op::Reduce);
        let round = Round { rtt_us, samples: 3, used: 500, now_ms: 0 };
        steps.run(&mut state, Op::EndRecovery { round });
        assert_eq!((state.cwnd, state.dwnd), (250, 250), "the reduction already answers the queue");
        let step = if grows { model::step(500.0) } else { 0.0 };
        assert!(close(parts(state.step), step, 0.01), "{}", parts(state.step));
    }
}

/// In the round after a reduction of the delay window, the samples belong to packets that were sent before it.
#[test]
fn delay_window_yields_once_to_the_same_queue() {
    let steps = CtcpProgram::load();
    let mut state = State { cwnd: 500, dwnd: 500, ..steps.start(500, BASE_US) };
    let mut windows = Vec::new();
    for _ in 0..4 {
        steps.round(&mut state, BASE_US * 5 / 4, 0);
        windows.push((state.dwnd, state.step));
    }
    // A reduction by 1000/5, a round that does not count, a reduction by 800/5, and a round that does not count.
    assert_eq!(windows, [(300, 0), (300, 0), (140, 0), (140, 0)]);
}

/// The kernel's reductions of the sum reduce the delay window first. In slow start the delay window is 0.
#[test]
fn reductions_of_the_sum_reduce_the_delay_window_first() {
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
fn gamma_follows_losses_or_stays_fixed_on_request() {
    let steps = CtcpProgram::load();
    let mut rng = SeededRng::new(4);
    for _ in 0..2_000 {
        let reno_queued = rng.below(100 * FRACTION);
        let before = State { reno_queued, ..random_state(&mut rng) };
        let mut state = before;
        steps.run(&mut state, Op::TuneGamma);
        let expected = model::tuned(parts(before.gamma), parts(reno_queued));
        assert!(close(parts(state.gamma), expected, 0.02), "{before:?} {expected}");
        let once = state;
        steps.run(&mut state, Op::TuneGamma);
        assert_eq!(state, once, "each round tunes gamma once");
    }
    let mut state = State::default();
    for (packets, gamma) in [(0, 30), (7, 7), (100, 100)] {
        steps.run(&mut state, Op::FixGamma { packets });
        assert_eq!(state.gamma, gamma * FRACTION);
    }
}
