//! The transfer time of a section for a size: slow start until the line, the window or a loss ends it, the convergence
//! to the steady rate, and the rest at that rate.
//!
//! After Cardwell, Savage and Anderson (INFOCOM 2000), with the initial window of RFC 6928, or the window that earlier
//! sessions have left on a used connection. Windows double per round trip: Linux counts acknowledged packets (RFC 3465), so
//! delayed acknowledgements do not slow the growth.

use super::response::{decrease, delivered_rate, loss_limited_window, smooth_min};
use super::{CongestionControl, Connection, SectionModel};

/// Initial window in packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// Half of all connections have their first loss within ln 2 / p packets.
const MEDIAN_FACTOR: f64 = std::f64::consts::LN_2;

/// Window at the end of slow start, as a multiple of the bandwidth-delay product. HyStart (CUBIC) ends slow start when
/// the delay grows, the others when a queue of one bandwidth-delay product overflows.
const OVERSHOOT: (f64, f64) = (1.5, 2.0);

/// Packets that a queue holds even where the bandwidth-delay product is near zero.
const MIN_QUEUE: f64 = 64.0;

/// Delay by BBR's pacing, in round trips: BBR paces a round of its startup over a third of a round trip or more, so the
/// last packet is sent half a round trip later.
const BBR_PACING_DELAY: f64 = 0.5;

/// A window within this factor of the steady window has converged; after `MAX_EPOCHS` losses every window counts as
/// converged.
const CONVERGED: f64 = 1.05;
const MAX_EPOCHS: u32 = 40;

/// Constant C of RFC 9438, section 5, in packets per second cubed.
const CUBIC_C: f64 = 0.4;

/// Number of packets sent so far, and the time until then, in seconds.
#[derive(Clone, Copy)]
struct Progress {
    sent: f64,
    time: f64,
}

/// Time from the departure of the first packet to that of the last, in seconds, for `size` bytes.
pub(super) fn transfer_time(section: &SectionModel, size: u64) -> f64 {
    let packets = packet_count(section, size);
    let settled = match section.connection {
        Connection::Settled => Progress { sent: 0.0, time: 0.0 },
        _ => converge(section, slow_start(section, packets), packets),
    };
    let rest = (packets - settled.sent).max(0.0) * section.payload_bytes() / section.rate();
    settled.time + rest + tail_loss_delay(section, packets)
}

/// Returns the connection after a transfer of `size` bytes. After more than [`first_loss`] packets, half of all
/// connections have left slow start.
pub(super) fn connection_after(section: &SectionModel, size: u64) -> Connection {
    let packets = packet_count(section, size);
    if section.connection == Connection::Settled || packets > first_loss(section) {
        return Connection::Settled;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window in bytes, and a cast saturates"
    )]
    Connection::Used((window_after(section, packets) * section.payload_bytes()) as u64)
}

/// The number of packets for `size` bytes.
fn packet_count(section: &SectionModel, size: u64) -> f64 {
    (size as f64 / section.payload_bytes()).ceil()
}

/// The window before the first packet, in packets.
fn start_window(section: &SectionModel) -> f64 {
    match section.connection {
        Connection::New | Connection::Ready => INITIAL_WINDOW,
        Connection::Used(window) => (window as f64 / section.payload_bytes()).max(INITIAL_WINDOW),
        Connection::Settled => packets_in_flight(section).max(INITIAL_WINDOW),
    }
}

/// Packets in flight in the steady state.
fn packets_in_flight(section: &SectionModel) -> f64 {
    section.rate() / section.payload_bytes() * section.round_trip()
}

/// The rounds of slow start: the window doubles until the path is full, all packets are sent, or the first loss is
/// detected, one round trip after the loss.
fn slow_start(section: &SectionModel, packets: f64) -> Progress {
    let (rtt, full_window) = (section.round_trip(), section.max_packet_rate() * section.round_trip());
    let end_packets = packets.min(first_loss(section) + window_at_loss(section));
    let (mut progress, mut window) =
        (Progress { sent: 0.0, time: 0.0 }, start_window(section).min(section.max_window()));
    while window < full_window && progress.sent + window < end_packets {
        progress = Progress {
            sent: progress.sent + window,
            time: progress.time + rtt + bbr_stall(section, window, full_window),
        };
        window *= 2.0;
    }
    if section.congestion == CongestionControl::Bbr && progress.sent > 0.0 {
        progress.time += BBR_PACING_DELAY * rtt;
    }
    if section.congestion == CongestionControl::Bbr && window >= full_window {
        return progress;
    }
    // The remaining packets of slow start: the last round of a small transfer, or a full path until the first loss.
    let rest = (end_packets - progress.sent).max(0.0);
    if window >= full_window {
        return Progress { sent: end_packets, time: progress.time + rest / section.max_packet_rate() };
    }
    let rounds = if end_packets < packets { rest / window * rtt } else { rest / section.line_packet_rate() };
    Progress { sent: end_packets, time: progress.time + rounds }
}

/// Delay by losses in a round of BBR's startup, in seconds. For a round trip after a loss, BBR sends no more than the
/// delivery rate, so a round with a loss does not grow the rate. In the last round before the window is `full`, the
/// delay is only the share of the doubling that was missing.
fn bbr_stall(section: &SectionModel, round: f64, full: f64) -> f64 {
    match section.congestion {
        CongestionControl::Bbr => {
            section.round_trip() * loss_probability(section, round) * (full / round).log2().min(1.0)
        }
        _ => 0.0,
    }
}

/// The probability that at least one of `packets` packets is lost.
fn loss_probability(section: &SectionModel, packets: f64) -> f64 {
    1.0 - (1.0 - section.loss_share()).powf(packets)
}

/// Median number of packets before the first loss that reduces the window.
fn first_loss(section: &SectionModel) -> f64 {
    match section.congestion {
        CongestionControl::Bbr => f64::INFINITY,
        _ => MEDIAN_FACTOR / section.loss_share(),
    }
}

/// The window when the first loss is detected, in packets.
fn window_at_loss(section: &SectionModel) -> f64 {
    window_after(section, first_loss(section))
}

/// The window of slow start after `packets` packets, in packets: it grows by one packet for each packet that arrives.
fn window_after(section: &SectionModel, packets: f64) -> f64 {
    let overshoot = if section.congestion == CongestionControl::Cubic { OVERSHOOT.0 } else { OVERSHOOT.1 };
    let line = section.line_packet_rate() * section.round_trip() * overshoot;
    (start_window(section) + packets).min(section.max_window()).min(line.max(MIN_QUEUE))
}

/// The transfer from the first loss to the steady state, in epochs from one loss to the next.
fn converge(section: &SectionModel, mut progress: Progress, packets: f64) -> Progress {
    let (rtt, lost) = (section.round_trip(), section.loss_share());
    let (steady_window, decrease_factor) =
        (loss_limited_window(section.congestion, lost, rtt), decrease(section.congestion));
    if steady_window.is_infinite() {
        return progress;
    }
    let mut start = window_at_loss(section) * decrease_factor;
    for _ in 0..MAX_EPOCHS {
        let epoch = (1.0 / lost).min(packets - progress.sent);
        let end = window_after_epoch(section, start, steady_window);
        let mean = start.midpoint(end);
        if epoch <= 0.0 || mean < steady_window * CONVERGED {
            break;
        }
        let rate = delivered_rate(section, smooth_min(mean / rtt, section.max_packet_rate()), mean);
        progress = Progress { sent: progress.sent + epoch, time: progress.time + epoch / rate };
        start = end * decrease_factor;
    }
    progress
}

/// The window at the end of an epoch, when the next loss follows 1/p packets after the last one. The square of the
/// window grows by a constant, which in the steady state equals the decrease by a loss. With CUBIC the window may grow
/// faster, toward its former maximum (RFC 9438, 4.2), which is reduced after a further decrease (fast convergence,
/// 4.7).
fn window_after_epoch(section: &SectionModel, start: f64, steady: f64) -> f64 {
    let (rtt, decrease_factor) = (section.round_trip(), decrease(section.congestion));
    let increase = 4.0 * (1.0 - decrease_factor * decrease_factor) / (1.0 + decrease_factor).powi(2);
    let end = (start * start + increase * steady * steady).sqrt();
    if section.congestion != CongestionControl::Cubic {
        return end;
    }
    let time = rtt / section.loss_share() / start + rtt;
    let w_max = start / decrease_factor * (1.0 + decrease_factor) / 2.0;
    let time_to_w_max = ((w_max - start) / CUBIC_C).cbrt();
    end.max(w_max + CUBIC_C * (time.min(time_to_w_max) - time_to_w_max).powi(3))
}

/// Expected delay by losses in the last window, in seconds: such a loss delays the last byte by a round trip. In slow
/// start the last window is about half of all packets.
fn tail_loss_delay(section: &SectionModel, packets: f64) -> f64 {
    let last = packets_in_flight(section).max(INITIAL_WINDOW).min(start_window(section) + packets / 2.0).min(packets);
    section.round_trip() * loss_probability(section, last)
}
