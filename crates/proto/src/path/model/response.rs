//! How much a sender has under way on average when a share of its packets is lost, and what that makes of a section.
//!
//! | sender | packets under way at loss p and round trip d | source |
//! |---|---|---|
//! | Reno | 1.31 / (√p + p) | Mathis and others 1997; 1.31 for losses by chance: Ott, Kemperman, Mathis 1996 |
//! | CUBIC | 1.19 (d/p)^¾, and at least 1.31 / (√p + 2.4p) | RFC 9438, 5.1 and, its Reno-friendly region, 4.3 |
//! | CTCP | 0.255 / p^0.8, and at least Reno's | Tan, Song, Zhang, Sridharan 2006 |
//! | BBR | what window and line let it have | Cardwell and others 2016 |
//!
//! The published functions are for losses at equal distances, and forget that for a round trip after each nothing grows. What
//! chance and recovery make of them is from a simulation, packet by packet, of what Linux does: `docs/path-model.md`.

use super::{CongestionControl, SectionModel};

/// The factor on 1/√p for random losses.
const BY_CHANCE: f64 = 1.31;

/// RFC 9438's 1.054 (C = 0.4, β = 0.7), and an eighth more for losses by chance.
const CUBIC: f64 = 1.19;

/// A timeout is not earlier than this (`TCP_RTO_MIN`).
const RTO_MIN: f64 = 0.2;

/// BBR probes with 1.25 times the bandwidth that it knows, and so keeps it up to a loss of a fifth. It is near that when the first
/// share is lost, and has next to nothing when the second is.
const BBR: (f64, f64) = (0.15, 0.25);

/// The cost of BBR's ProbeRTT: 200 ms in ten seconds with four packets in flight.
const PROBE_RTT: f64 = 0.98;

/// How sharply the lesser of two limits wins, and the greater of two regions.
const SHARPNESS: (i32, f64) = (8, 0.125);

/// The factor on the window after a loss.
pub(super) const fn decrease(congestion: CongestionControl) -> f64 {
    match congestion {
        CongestionControl::Cubic => 0.7,
        CongestionControl::Reno | CongestionControl::Ctcp => 0.5,
        CongestionControl::Bbr => 1.0,
    }
}

/// Bytes of payload per second that arrive and stay.
pub(super) fn section_rate(section: &SectionModel) -> f64 {
    let (rtt, lost) = (section.round_trip(), section.loss_share());
    let (allowed, ceiling) = (loss_limited_window(section.congestion, lost, rtt), section.max_packet_rate());
    let sent = match section.congestion {
        CongestionControl::Bbr => ceiling * PROBE_RTT * bbr_share(lost),
        _ => smooth_min(allowed / rtt, ceiling),
    };
    delivered_rate(section, sent, allowed) * section.payload_bytes()
}

/// Packets per second that arrive of so many that are sent while no timeout stops it, with a window of `allowed` packets.
///
/// Timeouts are as Padhye and others (1998, 2000) count them: with backing off one takes (1 + 32p²) times as long. With
/// selective acknowledgements, tail loss probes and RACK (RFC 8985) it comes when all that is under way is lost.
pub(super) fn delivered_rate(section: &SectionModel, sent: f64, allowed: f64) -> f64 {
    let lost = section.loss_share();
    let times = lost.powf(allowed.min(section.max_window())) * (1.0 + 32.0 * lost * lost);
    (1.0 - lost) / (1.0 / sent + times * (RTO_MIN + 2.0 * section.round_trip()))
}

/// Packets under way on average when nothing but loss limits.
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

/// The share of the bandwidth that BBR keeps when this share of packets is lost.
fn bbr_share(lost: f64) -> f64 {
    let (kept, gone) = BBR;
    ((gone - lost) / (gone - kept)).clamp(0.01, 1.0)
}

/// The greater of two, and a little more where they are near: a window that grows by either law grows by both.
fn smooth_max(a: f64, b: f64) -> f64 {
    let (least, most) = (a.min(b), a.max(b));
    most * (1.0 + (least / most).powi(SHARPNESS.0)).powf(SHARPNESS.1)
}

/// The mean of a rate that swings about `wanted` and is cut at `ceiling`: less than either where they are near.
pub(super) fn smooth_min(wanted: f64, ceiling: f64) -> f64 {
    if wanted.is_infinite() {
        return ceiling;
    }
    let (least, most) = (wanted.min(ceiling), wanted.max(ceiling));
    least / (1.0 + (least / most).powi(4)).powf(0.25)
}
