//! Section samples from two readings of the kernel's counters of one connection.
//!
//! For the sending direction the counters contain the figures. For the receiving direction the kernel counts segments
//! out of order: all segments that arrive while an earlier one is missing. A lost segment is missing for a round trip,
//! so the share of segments out of order is the share of time with a missing segment, which yields the loss rate.
//! (Losses are a Poisson process of rate λ: no segment is missing at a moment if none was lost in the round trip
//! before, which has the probability exp(-λ·RTT).)

use std::time::Duration;

use super::estimate::SectionSample;

/// Number of round trips within which a connection has not reached the capacity of its section.
const SLOW_START_ROUND_TRIPS: u32 = 20;

/// The initial window in packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// Smallest number of bytes that a rate is computed from.
const MIN_BYTES: u64 = 128 * 1024;

/// A window is the limit if this share of it is in flight in every round trip.
const WINDOW_USED: f64 = 0.7;

/// Counters of one connection (`TCP_INFO`); counters that a kernel lacks are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Smoothed round-trip time (RFC 6298).
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Payload of a full segment, in bytes.
    pub mss: u32,
    /// Data segments sent, retransmissions included.
    pub segments_sent: u32,
    /// Data segments that were retransmitted.
    pub retransmitted: u32,
    /// Retransmissions that were unnecessary, as the original had arrived (RFC 2883).
    pub spurious: u32,
    /// Segments with data received.
    pub segments_received: u32,
    /// Received data segments that were out of order.
    pub out_of_order: u32,
    /// Bytes acknowledged by the peer.
    pub bytes_sent: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Time with data to send.
    pub busy: Duration,
    /// Part of the busy time limited by the peer's receive window.
    pub rwnd_limited: Duration,
    /// Part of the busy time limited by the send buffer of this host.
    pub sndbuf_limited: Duration,
    /// The receive window that the peer advertises, in bytes.
    pub peer_window: u32,
    /// The current upper limit of the receive window that this host advertises, in bytes (`tcpi_rcv_ssthresh`).
    pub own_window: u32,
    /// The mean time from an ACK of this host to the data that it permits the peer to send.
    pub rcv_rtt: Duration,
    /// Payload of a full received segment, in bytes.
    pub rcv_mss: u32,
    /// Pacing limit of the peer's data, in bytes of payload per second (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<u64>,
    /// Whether the congestion control of the connection has reduced the rate after a loss; BBR never does.
    pub has_backed_off: bool,
    /// Time since data was last received.
    pub since_last_receive: Duration,
}

/// The pump's figures for the span between the two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PumpTimes {
    /// Length of the span.
    pub span: Duration,
    /// Part of the span with bytes to send and a full send buffer: time spent waiting for this section.
    pub stalled: Duration,
    /// Part of the span in which received bytes waited for the next section.
    pub held: Duration,
    /// Whether the span is the first of a session, and so contains slow start.
    pub includes_start: bool,
}

/// Returns the sample of the sending direction.
#[must_use]
pub fn sample_sending(before: &TcpCounters, now: &TcpCounters, pumped: PumpTimes) -> SectionSample {
    let busy = now.busy.saturating_sub(before.busy);
    let limited_by_peer = now.rwnd_limited.saturating_sub(before.rwnd_limited) * 2 > busy;
    let limited_by_us = now.sndbuf_limited.saturating_sub(before.sndbuf_limited) * 2 > busy;
    let bytes = now.bytes_sent.saturating_sub(before.bytes_sent);
    let mean = measured_rate(bytes, busy);
    let stalled = pumped.stalled * 2 > pumped.span;
    let retransmitted = counter_delta(now.retransmitted, before.retransmitted);
    let rate_is_limit = stalled && !limited_by_peer && !limited_by_us && is_past_slow_start(now, busy);
    let rate = if rate_is_limit && pumped.includes_start {
        measured_rate(bytes, without_slow_start(now, mean, busy))
    } else {
        mean
    };
    SectionSample {
        rtt: round_trip(now),
        segments: counter_delta(now.segments_sent, before.segments_sent),
        lost: retransmitted.saturating_sub(counter_delta(now.spurious, before.spurious)),
        rate,
        rate_is_limit,
        window: mean.filter(|_| limited_by_peer).and_then(|rate| exhausted_window(now, now.peer_window, rate)),
    }
}

/// Returns the sample of the receiving direction.
#[must_use]
pub fn sample_receiving(before: &TcpCounters, now: &TcpCounters, pumped: PumpTimes) -> SectionSample {
    let span = pumped.span.saturating_sub(now.since_last_receive);
    let segments = counter_delta(now.segments_received, before.segments_received);
    let lost = lost_segments(segments, counter_delta(now.out_of_order, before.out_of_order), now.rtt, span);
    let bytes = now.bytes_received.saturating_sub(before.bytes_received);
    let mean = measured_rate(bytes, span);
    // Without a loss, the sender may only have had no more data.
    let rate_is_limit = lost > 0 && pumped.held * 2 < span && is_past_slow_start(now, span);
    let rate = if rate_is_limit && pumped.includes_start {
        measured_rate(bytes, without_slow_start(now, mean, span))
    } else {
        mean
    };
    let window = mean.and_then(|rate| exhausted_window(now, now.own_window, rate));
    SectionSample { rtt: round_trip(now), segments, lost, rate, rate_is_limit, window }
}

/// The number of lost segments that explains why `out_of_order` of `segments` were out of order in a span; at least one
/// if any was.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn lost_segments(segments: u64, out_of_order: u64, rtt: Duration, span: Duration) -> u64 {
    if out_of_order == 0 || segments == 0 {
        return 0;
    }
    let lost = estimate_losses(out_of_order as f64 / segments as f64, span.as_secs_f64() / rtt.as_secs_f64().max(1e-5));
    (lost.round() as u64).clamp(1, out_of_order)
}

/// The number of losses that explains this share of segments out of order, in this number of round trips.
pub(crate) fn estimate_losses(out_of_order: f64, round_trips: f64) -> f64 {
    -(1.0 - out_of_order.min(0.99)).ln() * round_trips.max(1.0)
}

/// The smallest round trip, which excludes the queue of the connection's own bulk transfer.
fn round_trip(now: &TcpCounters) -> Option<Duration> {
    [now.min_rtt, now.rtt].into_iter().find(|rtt| !rtt.is_zero())
}

fn measured_rate(bytes: u64, span: Duration) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "bytes of one connection are far below 2^52")]
    let rate = bytes as f64 / span.as_secs_f64();
    (bytes >= MIN_BYTES && !span.is_zero()).then_some(rate)
}

/// The span without the round trips that slow start has cost: each round of slow start sends half as much as the next,
/// so all rounds together send as much as the last two.
fn without_slow_start(now: &TcpCounters, mean: Option<f64>, span: Duration) -> Duration {
    let (Some(mean), Some(rtt)) = (mean, round_trip(now)) else { return span };
    let window = mean * rtt.as_secs_f64() / f64::from(now.mss.max(1));
    let rounds = (window / INITIAL_WINDOW).log2() - 1.0;
    span.saturating_sub(rtt.mul_f64(rounds.max(0.0))).max(span / 2)
}

/// Whether the span is much longer than slow start.
fn is_past_slow_start(now: &TcpCounters, span: Duration) -> bool {
    span > now.rtt * SLOW_START_ROUND_TRIPS
}

/// The window, if this rate fills it in every round trip. Less data is in flight if the receiver reads slowly, or if
/// the kernel is still increasing the window.
fn exhausted_window(now: &TcpCounters, window: u32, rate: f64) -> Option<u64> {
    let in_flight = rate * round_trip(now)?.as_secs_f64();
    (window > 0 && in_flight > WINDOW_USED * f64::from(window)).then_some(u64::from(window))
}

fn counter_delta(now: u32, before: u32) -> u64 {
    u64::from(now.wrapping_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn after(seconds: u64, change: impl FnOnce(&mut TcpCounters)) -> (TcpCounters, PumpTimes) {
        let mut now = TcpCounters { rtt: RTT * 2, min_rtt: RTT, mss: 1448, ..TcpCounters::default() };
        change(&mut now);
        (now, PumpTimes { span: Duration::from_secs(seconds), ..PumpTimes::default() })
    }

    fn bulk(now: &mut TcpCounters) {
        (now.segments_sent, now.retransmitted, now.spurious) = (10_000, 30, 10);
        (now.bytes_sent, now.busy) = (14_000_000, Duration::from_secs(7));
    }

    #[test]
    fn sending_sample_follows_the_counters() {
        let (now, pumped) = after(10, bulk);
        let sample = sample_sending(&TcpCounters::default(), &now, pumped);
        assert_eq!((sample.rtt, sample.segments, sample.lost), (Some(RTT), 10_000, 20));
        assert_eq!((sample.rate, sample.rate_is_limit), (Some(2e6), false), "the relay did not wait");
    }

    #[test]
    fn sending_section_is_the_limit_only_if_bytes_wait() {
        let (now, pumped) = after(10, bulk);
        let pumped = PumpTimes { stalled: Duration::from_secs(6), ..pumped };
        assert!(sample_sending(&TcpCounters::default(), &now, pumped).rate_is_limit);
        let short = TcpCounters { bytes_sent: 200_000, busy: RTT * 5, ..now };
        assert!(!sample_sending(&TcpCounters::default(), &short, pumped).rate_is_limit, "slow start");
        let held = TcpCounters { rwnd_limited: Duration::from_secs(4), ..now };
        assert!(!sample_sending(&TcpCounters::default(), &held, pumped).rate_is_limit, "limited by the reader");
        let small = TcpCounters { sndbuf_limited: Duration::from_secs(4), ..now };
        assert!(!sample_sending(&TcpCounters::default(), &small, pumped).rate_is_limit, "limited by the send buffer");
    }

    #[test]
    fn peer_window_is_sampled_only_if_used_up() {
        let (now, pumped) = after(10, bulk);
        let held = TcpCounters { rwnd_limited: Duration::from_secs(4), peer_window: 50_000, ..now };
        assert_eq!(sample_sending(&TcpCounters::default(), &held, pumped).window, Some(50_000), "2 MB/s times 20 ms");
        let slow = TcpCounters { peer_window: 500_000, ..held };
        assert_eq!(sample_sending(&TcpCounters::default(), &slow, pumped).window, None, "a slow reader");
    }

    #[test]
    fn unchanged_counters_give_an_empty_sample() {
        let (now, pumped) = after(10, bulk);
        let sample = sample_sending(&now, &now, pumped);
        assert_eq!((sample.segments, sample.lost, sample.rate), (0, 0, None));
    }

    #[test]
    fn wrapped_counters_give_correct_differences() {
        let before = TcpCounters { segments_sent: u32::MAX - 4, ..TcpCounters::default() };
        let (now, pumped) = after(1, |now| now.segments_sent = 5);
        assert_eq!(sample_sending(&before, &now, pumped).segments, 10);
    }

    /// 1,000 segments a second for 10 s, and one of 500 lost: each leaves a gap of 40 ms, in which 40 segments arrive.
    #[test]
    fn receive_losses_are_estimated_from_out_of_order_segments() {
        let (now, pumped) = after(10, |now| {
            (now.segments_received, now.bytes_received) = (10_000, 14_480_000);
            now.out_of_order = 769;
        });
        let sample = sample_receiving(&TcpCounters::default(), &now, pumped);
        assert_eq!((sample.segments, sample.lost), (10_000, 20));
        assert!(sample.rate_is_limit && sample.rate == Some(1.448e6));
    }

    #[test]
    fn a_single_segment_out_of_order_is_one_loss_at_most() {
        let (now, pumped) = after(10, |now| (now.segments_received, now.out_of_order) = (10_000, 1));
        assert_eq!(sample_receiving(&TcpCounters::default(), &now, pumped).lost, 1);
    }

    #[test]
    fn receive_window_is_sampled_only_if_used_up() {
        let sample = |own_window: u32| {
            let (now, pumped) = after(10, |now| (now.bytes_received, now.own_window) = (20_000_000, own_window));
            sample_receiving(&TcpCounters::default(), &now, pumped).window
        };
        assert_eq!([50_000, 80_000, 0].map(sample), [Some(50_000), None, None], "2 MB/s times 20 ms");
    }

    #[test]
    fn idle_time_does_not_lower_the_receive_rate() {
        let (now, pumped) = after(10, |now| {
            (now.segments_received, now.bytes_received) = (1_000, 1_000_000);
            now.since_last_receive = Duration::from_secs(9);
        });
        assert_eq!(sample_receiving(&TcpCounters::default(), &now, pumped).rate, Some(1e6));
    }

    #[test]
    fn rate_held_back_by_the_next_section_is_no_limit() {
        let (now, pumped) = after(10, |now| {
            (now.segments_received, now.bytes_received, now.out_of_order) = (10_000, 14_480_000, 500);
        });
        let pumped = PumpTimes { held: Duration::from_secs(6), ..pumped };
        assert!(!sample_receiving(&TcpCounters::default(), &now, pumped).rate_is_limit);
    }
}
