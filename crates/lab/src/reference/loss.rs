//! Losses that are not caused by a queue, for each packet from the first on.

use ekiden_emulator::conditions::Loss;
use ekiden_emulator::rng::SeededRng;

/// For each of the first `packets` packets, whether it is lost. `loss` has the random numbers of the losses, `state`
/// those of the transitions between the states of the Gilbert-Elliott model. The chain starts in the good state; each
/// packet is first lost or not according to the current state, and may then change the state.
#[must_use]
pub fn lost_packets(model: &Loss, packets: u64, loss: SeededRng, state: SeededRng) -> Vec<bool> {
    match model {
        Loss::Bernoulli { p, .. } => (0..packets).map(|number| loss.bernoulli(number, *p)).collect(),
        Loss::Pattern { every, lost, .. } => (0..packets).map(|number| lost.contains(&(number % every))).collect(),
        Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
            let mut good = true;
            (0..packets)
                .map(|number| {
                    let lost = loss.bernoulli(number, if good { *p_good } else { *p_bad });
                    if state.bernoulli(number, if good { *to_bad } else { *to_good }) {
                        good = !good;
                    }
                    lost
                })
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Z_99_9, wilson};
    use ekiden_emulator::conditions::LossPosition;

    const AT: LossPosition = LossPosition::Wire;

    fn run(model: &Loss, packets: u64) -> Vec<bool> {
        lost_packets(model, packets, SeededRng::new(3).derive("loss"), SeededRng::new(3).derive("state"))
    }

    fn count(lost: &[bool]) -> u64 {
        lost.iter().filter(|lost| **lost).count() as u64
    }

    #[test]
    fn a_pattern_repeats() {
        let pattern = Loss::Pattern { every: 5, lost: vec![0, 3], at: AT };
        assert_eq!(run(&pattern, 7), [true, false, false, true, false, true, false]);
    }

    #[test]
    fn bernoulli_loss_rate_matches_p() {
        let lost = run(&Loss::Bernoulli { p: 0.02, at: AT }, 50_000);
        let (low, high) = wilson(count(&lost), 50_000, Z_99_9);
        assert!(low <= 0.02 && 0.02 <= high, "{low} to {high}");
        assert_eq!(count(&run(&Loss::Bernoulli { p: 0.0, at: AT }, 100)), 0);
        assert_eq!(count(&run(&Loss::Bernoulli { p: 1.0, at: AT }, 100)), 100);
    }

    /// Gilbert 1960: the chain is in the bad state for a share `to_bad / (to_bad + to_good)` of the time, and stays
    /// there for `1 / to_good` packets on average.
    #[test]
    fn gilbert_elliott_has_the_expected_loss_share_and_bursts() {
        let model = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, p_good: 0.0, p_bad: 1.0, at: AT };
        let lost = run(&model, 100_000);
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let (share, burst) = (count(&lost) as f64 / 1e5, count(&lost) as f64 / bursts as f64);
        assert!((share - 0.01 / 0.26).abs() < 0.004, "{share}");
        assert!((burst - 4.0).abs() < 0.35, "{burst}");
        assert!(!lost[0], "the chain starts in the good state");
    }

    #[test]
    fn gilbert_elliott_state_changes_after_the_decision() {
        let flip = Loss::GilbertElliott { to_bad: 1.0, to_good: 1.0, p_good: 0.0, p_bad: 1.0, at: AT };
        assert_eq!(run(&flip, 5), [false, true, false, true, false]);
    }
}
