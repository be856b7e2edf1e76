//! The congestion control of sections with `congestion = "auto"`.
//!
//! A congestion control with pacing, such as bbr, runs a timer for each burst of packets. On short paths this triples
//! the CPU time per byte without a benefit: the path has no queue to keep short, and almost no loss. Such a section
//! starts with [`SHORT_PATH_CONTROL`], and switches permanently to the system's own control if its path turns out to be
//! long or lossy.

use std::time::Duration;

use super::TuningSample;

/// The congestion control on short paths. Every kernel has it, and unprivileged processes may select it.
pub const SHORT_PATH_CONTROL: &str = "reno";

/// Smallest round-trip time of a long path, on which a halved window takes long to grow again.
const LONG_RTT: Duration = Duration::from_millis(2);

/// Smallest share of retransmitted segments on a lossy path, whatever the cause of the losses.
const LOSSY: f64 = 0.001;

/// Smallest share of retransmitted segments on a lossy path whose queue is empty. Such losses are not a sign of
/// congestion, and [`SHORT_PATH_CONTROL`] does not fill the path: at 1 ms and this loss it carries 1.4 Gbit/s (Mathis
/// et al. 1997, "The macroscopic behavior of the TCP congestion avoidance algorithm").
const LOSSY_WITHOUT_QUEUE: f64 = 0.0001;

/// The queue of a path counts as empty while its round-trip time is below this multiple of the minimum.
const EMPTY_QUEUE: f64 = 1.5;

/// Number of losses up to which the path does not count as lossy: slow start may have overshot.
const CHANCE_LOSSES: u32 = 3;

/// Whether `default`, the congestion control of a system, has no extra cost on short paths, so that there is nothing to
/// choose.
#[must_use]
pub fn is_cheap_control(default: &str) -> bool {
    matches!(default, SHORT_PATH_CONTROL | "cubic")
}

/// Whether a section that began with [`SHORT_PATH_CONTROL`] needs the system's own congestion control, according to its
/// counters.
#[must_use]
pub fn needs_system_control(now: &TuningSample) -> bool {
    if now.rtt.is_zero() {
        return false;
    }
    let lost = now.retransmitted.saturating_sub(now.spurious);
    let has_queue = now.rtt >= now.min_rtt.mul_f64(EMPTY_QUEUE);
    let share = if has_queue { LOSSY } else { LOSSY_WITHOUT_QUEUE };
    let is_lossy = lost > CHANCE_LOSSES && f64::from(lost) > f64::from(now.segments_sent) * share;
    now.min_rtt >= LONG_RTT || is_lossy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(min_rtt_us: u64, sent: u32, retransmitted: u32, spurious: u32) -> TuningSample {
        let min_rtt = Duration::from_micros(min_rtt_us);
        let (rtt, segments_sent) = (min_rtt * 3, sent);
        TuningSample { rtt, min_rtt, segments_sent, retransmitted, spurious, ..TuningSample::default() }
    }

    #[test]
    fn long_or_lossy_path_needs_the_system_congestion_control() {
        for (now, needs) in [
            (sample(1_999, 1_000_000, 0, 0), false),
            (sample(2_000, 10, 0, 0), true),
            (sample(100, 10_000, 10, 0), false),
            (sample(100, 10_000, 11, 0), true),
            (sample(100, 100, 3, 0), false),
            (sample(100, 100, 4, 0), true),
            (sample(100, 10_000, 30, 20), false),
        ] {
            assert_eq!(needs_system_control(&now), needs, "{now:?}");
        }
    }

    /// Losses while the round-trip time is near its minimum are not caused by congestion.
    #[test]
    fn fewer_losses_suffice_without_a_queue() {
        let without_queue = |sample: TuningSample| TuningSample { rtt: sample.min_rtt.mul_f64(1.2), ..sample };
        for (now, needs) in [
            (sample(1000, 100_000, 11, 0), false),
            (without_queue(sample(1000, 100_000, 11, 0)), true),
            (without_queue(sample(1000, 100_000, 10, 0)), false),
            (without_queue(sample(1000, 100, 3, 0)), false),
        ] {
            assert_eq!(needs_system_control(&now), needs, "{now:?}");
        }
    }

    #[test]
    fn path_is_not_lossy_before_the_first_measurement() {
        let unknown = TuningSample { retransmitted: 100, ..TuningSample::default() };
        assert!(!needs_system_control(&unknown));
    }
}
