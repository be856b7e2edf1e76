//! The estimate of the path's base round-trip time.

use crate::steps::{CtcpProgram, FRACTION, NONE, Op, Round, State};

const MS: u32 = 1_000;
const PERIOD_MS: u32 = 300_000;

#[test]
fn base_rtt_is_the_smallest_sample_of_a_period() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(100, 50 * MS);
    for (rtt_ms, base_ms) in [(60, 50), (48, 48), (90, 48)] {
        steps.round(&mut state, rtt_ms * MS, 0);
        assert_eq!(state.base_us(), base_ms * MS);
    }
}

#[test]
fn base_rtt_sample_expires_in_the_second_period_after_it() {
    let steps = CtcpProgram::load();
    let mut state = State { base_since_ms: 1, ..steps.start(100, 50 * MS) };
    steps.round(&mut state, 60 * MS, PERIOD_MS);
    assert_eq!(state.base_us(), 50 * MS);
    steps.round(&mut state, 60 * MS, PERIOD_MS + 2);
    assert_eq!(state.base_us(), 50 * MS, "the sample counts for one more period");
    steps.round(&mut state, 60 * MS, 2 * PERIOD_MS + 2);
    assert_eq!(state.base_us(), 50 * MS);
    steps.round(&mut state, 61 * MS, 2 * PERIOD_MS + 3);
    assert_eq!(state.base_us(), 60 * MS);
}

#[test]
fn timeout_resets_base_rtt_gamma_and_delay_window() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(100, 50 * MS);
    state = State { cwnd: 100, dwnd: 60, gamma: 7 * FRACTION, step: 9, ..state };
    steps.run(&mut state, Op::Timeout { window: 1 });
    assert_eq!((state.cwnd, state.dwnd, state.step), (1, 0, 0));
    assert_eq!((state.base_us(), state.gamma), (NONE, 30 * FRACTION));
}

#[test]
fn delay_window_decision_needs_three_samples() {
    let steps = CtcpProgram::load();
    for (samples, decided) in [(2, false), (3, true)] {
        let mut state = State { dwnd: 500, ..steps.start(500, 50 * MS) };
        let round = Round { rtt_us: 100 * MS, samples, used: 1_000, now_ms: 0 };
        steps.run(&mut state, Op::EndRound { round, slow_start: false });
        assert_eq!(state.dwnd == 0, decided);
    }
}

#[test]
fn slow_start_measures_the_queue_and_changes_no_window() {
    let steps = CtcpProgram::load();
    let mut state = steps.start(1_000, 50 * MS);
    let round = Round { rtt_us: 100 * MS, samples: 3, used: 1_000, now_ms: 0 };
    steps.run(&mut state, Op::EndRound { round, slow_start: true });
    assert_eq!((state.queued, state.cwnd, state.step), (500 * FRACTION, 1_000, 0));
}

#[test]
fn base_rtt_does_not_expire_while_there_is_a_queue() {
    let steps = CtcpProgram::load();
    let mut state = State { base_since_ms: 1, ..steps.start(500, 50 * MS) };
    for period in 1..5 {
        steps.round(&mut state, 100 * MS, period * PERIOD_MS + 2);
    }
    assert_eq!(state.base_us(), 50 * MS);
}

/// Runs a connection whose delay window is empty for `rounds` round trips. `rtt_us` returns the RTT in microseconds for
/// the number of the round and the window. Every `loss_every`th round ends with a loss, after which the window is 500
/// packets.
fn run_stuck_connection(steps: &CtcpProgram, rounds: u32, rtt_us: impl Fn(u32, u32) -> u32, loss_every: u32) -> State {
    let mut state = steps.start(500, 20 * MS);
    let mut now_ms = 1;
    for round in 1..=rounds {
        let rtt_us = rtt_us(round, state.window());
        now_ms += rtt_us / MS;
        steps.round(&mut state, rtt_us, now_ms);
        let acked = state.window();
        steps.run(&mut state, Op::Grow { acked });
        if round % loss_every == 0 {
            steps.run(&mut state, Op::Reduce);
            steps.run(&mut state, Op::Follow { window: 500, slow_start: false });
        }
    }
    state
}

#[test]
fn longer_path_raises_the_base_rtt() {
    let steps = CtcpProgram::load();
    // The RTT rises from 20 to 120 ms, with a jitter of 1 ms. The new base RTT is accepted after 10 seconds and 64
    // rounds.
    let longer = |round: u32, _| (120 + round % 2) * MS;
    let before = run_stuck_connection(&steps, 80, longer, 1_000);
    assert_eq!((before.base_us(), before.dwnd), (20 * MS, 0));
    let after = run_stuck_connection(&steps, 100, longer, 1_000);
    assert_eq!(after.base_us(), 120 * MS);
    assert!(after.dwnd > 0);
}

#[test]
fn queue_does_not_raise_the_base_rtt() {
    let steps = CtcpProgram::load();
    // The connection's own queue: the RTT grows with the window.
    let own = run_stuck_connection(&steps, 2_000, |_, window| window * 250, 10_000);
    assert_eq!(own.base_us(), 20 * MS);
    // A queue of other connections: its length is constant, and there are losses.
    let others = run_stuck_connection(&steps, 2_000, |_, _| 120 * MS, 60);
    assert_eq!(others.base_us(), 20 * MS);
    // A queue of other connections: its length oscillates, as with CUBIC.
    let cubic = run_stuck_connection(&steps, 2_000, |round, _| (900 + (round % 100) * 3) * MS / 6, 10_000);
    assert_eq!(cubic.base_us(), 20 * MS);
}
