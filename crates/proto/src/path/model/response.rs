//! The mean window of a sender for a share of lost packets, and the resulting rate of a section.
//!
//! | sender | packets in flight at loss p and round trip d | source |
//! |---|---|---|
//! | Reno | 1.31 / (√p + p) | Mathis and others 1997; 1.31 for random losses: Ott, Kemperman, Mathis 1996 |
//! | CUBIC | 1.19 (d/p)^¾, and at least 1.31 / (√p + 2.4p) | RFC 9438, 5.1 and, its Reno-friendly region, 4.3 |
//! | CTCP | 0.255 / p^0.8, and at least Reno's | Tan, Song, Zhang, Sridharan 2006 |
//! | BBR | limited by window and line | Cardwell and others 2016 |
//!
//! The published functions assume losses at equal distances and ignore that the window does not grow for a round trip
//! after each loss. The corrections for random losses and recovery come from a packet-level simulation of Linux:
//! `docs/path-model.md`.

use super::{CongestionControl, SectionModel};

/// The factor on 1/√p for random losses.
const BY_CHANCE: f64 = 1.31;

/// RFC 9438's 1.054 (C = 0.4, β = 0.7), increased by an eighth for random losses.
const CUBIC: f64 = 1.19;

/// Minimum retransmission timeout in seconds (`TCP_RTO_MIN`).
const RTO_MIN: f64 = 0.2;

/// BBR probes with 1.25 times its bandwidth estimate, so it keeps its rate up to a loss of a fifth. The rate is nearly
/// full up to the first share of loss, and nearly zero from the second share on.
const BBR: (f64, f64) = (0.15, 0.25);

/// The factor on the rate for BBR's ProbeRTT: 200 ms in ten seconds with four packets in flight.
const PROBE_RTT: f64 = 0.98;

/// Sharpness of the transition between two limits or two regions: the exponent and its inverse.
const SHARPNESS: (i32, f64) = (8, 0.125);

/// The factor by which a loss reduces the window.
pub(super) const fn decrease(congestion: CongestionControl) -> f64 {
    match congestion {
        CongestionControl::Cubic => 0.7,
        CongestionControl::Reno | CongestionControl::Ctcp => 0.5,
        CongestionControl::Bbr => 1.0,
    }
}

/// The payload rate that arrives, in bytes/s, without lost packets.
pub(super) fn section_rate(section: &SectionModel) -> f64 {
    let (rtt, lost) = (section.round_trip(), section.loss_share());
    let (allowed, ceiling) = (loss_limited_window(section.congestion, lost, rtt), section.max_packet_rate());
    let sent = match section.congestion {
        CongestionControl::Bbr => ceiling * PROBE_RTT * bbr_share(lost),
        _ => smooth_min(allowed / rtt, ceiling),
    };
    delivered_rate(section, sent, allowed) * section.payload_bytes()
}

/// The rate at which packets arrive, in packets/s, when `sent` packets per second are sent outside timeouts, with a
/// window of `allowed` packets.
///
/// Timeouts follow Padhye and others (1998, 2000): exponential backoff prolongs a timeout by the factor (1 + 32p²).
/// With selective acknowledgements, tail loss probes and RACK (RFC 8985) a timeout occurs only if all packets in flight
/// are lost.
pub(super) fn delivered_rate(section: &SectionModel, sent: f64, allowed: f64) -> f64 {
    let lost = section.loss_share();
    let times = lost.powf(allowed.min(section.max_window())) * (1.0 + 32.0 * lost * lost);
    (1.0 - lost) / (1.0 / sent + times * (RTO_MIN + 2.0 * section.round_trip()))
}

/// Mean number of packets in flight if only loss limits them.
pub(super) fn loss_limited_window(congestion: CongestionControl, lost: f64, rtt: f64) -> f64 {
    if lost <= 0.0 || congestion == CongestionControl::Bbr {
        return f64::INFINITY;
    }
    let linear = |recovery: f64| BY_CHANCE / (lost.sqrt() + recovery * lost);
    let packets = match congestion {
        CongestionControl::Cubic => smooth_max(linear(2.4), CUBIC * (rtt / lost).powf(0.75)),
        CongestionControl::Ctcp => smooth_max(linear(1.0), 0.255 / lost.powf(0.8)),
        CongestionControl::Reno | CongestionControl::Bbr => linear(1.0),
    };
    packets.max(1.0)
}

/// The share of the bandwidth that BBR uses at this share of lost packets.
fn bbr_share(lost: f64) -> f64 {
    let (full_rate_loss, zero_rate_loss) = BBR;
    ((zero_rate_loss - lost) / (zero_rate_loss - full_rate_loss)).clamp(0.01, 1.0)
}

/// A smooth maximum, slightly larger than both values where they are close, because a window that can grow by either of
/// two laws grows by both.
fn smooth_max(a: f64, b: f64) -> f64 {
    let (least, most) = (a.min(b), a.max(b));
    most * (1.0 + (least / most).powi(SHARPNESS.0)).powf(SHARPNESS.1)
}

/// The mean of a rate that varies around `rate` and is cut off at `ceiling`: less than both where they are close.
pub(super) fn smooth_min(rate: f64, ceiling: f64) -> f64 {
    if rate.is_infinite() {
        return ceiling;
    }
    let (least, most) = (rate.min(ceiling), rate.max(ceiling));
    least / (1.0 + (least / most).powi(4)).powf(0.25)
}
