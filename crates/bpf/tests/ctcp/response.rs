//! The response function: the average window of whole connections, step by step, for a loss rate.

use crate::model;
use crate::rng::SeededRng;
use crate::steps::{CtcpProgram, Op, Round};

const RTT_US: u32 = 100_000;

/// The average window of a connection that loses each packet with probability `p` on a path without a queue.
fn average_window(steps: &CtcpProgram, p: f64, losses: u32) -> f64 {
    let mut rng = SeededRng::new(5);
    let mut state = steps.start(100, RTT_US);
    let (mut packets, mut rounds) = (0.0, 0.0);
    for _ in 0..losses {
        let mut left = rng.until_loss(p);
        while left > 0 {
            steps.round(&mut state, RTT_US, 0);
            let window = state.window();
            let acked = u32::try_from(left.min(u64::from(window))).unwrap();
            steps.run(&mut state, Op::Grow { acked });
            left -= u64::from(acked);
            packets += f64::from(acked);
            rounds += f64::from(acked) / f64::from(window);
        }
        // In the round that detects the loss, packets that were sent before arrive, and the windows do not grow.
        packets += f64::from(state.window());
        rounds += 1.0;
        steps.run(&mut state, Op::Reduce);
        let round = Round { rtt_us: RTT_US, samples: 3, used: state.window(), now_ms: 0 };
        steps.run(&mut state, Op::EndRecovery { round });
    }
    packets / rounds
}

#[test]
fn average_window_follows_the_loss_rate() {
    let steps = CtcpProgram::load();
    for (p, losses) in [(1e-3, 4_000), (1e-4, 2_000), (1e-5, 1_000)] {
        let found = average_window(&steps, p, losses);
        let expected = model::average_window(p);
        println!("p {p}: average window {found:.1}, in theory {expected:.1}");
        assert!((found / expected - 1.0).abs() < 0.15, "p {p}: {found} instead of {expected}");
    }
}
