//! How much a sender has under way on average when a share of its packets is lost, and what that makes of a section.
//!
//! | sender | packets under way | source |
//! |---|---|---|
//! | Reno | √(3 / 2p) | Mathis and others 1997; Linux counts packets, not acknowledgements (RFC 3465) |
//! | CUBIC | 1.054 (d/p)^¾, at least Reno's | RFC 9438, 5.1, and its Reno-friendly region, 4.3 |
//! | CTCP | 0.255 / p^0.8, at least Reno's | Tan, Song, Zhang, Sridharan 2006 |
//! | BBR | what window and line let it have, until a fifth is lost | Cardwell and others 2016 |
//!
//! Waiting for a timeout is Padhye, Firoiu, Towsley and Kurose (1998, 2000); with SACK, tail loss probes and RACK (RFC 8985)
//! it takes a window that is lost whole, so it matters where few packets are under way.

use super::{Congestion, Section};

/// C (RFC 9438, 5).
pub(super) const C: f64 = 0.4;

/// A timeout is not earlier than this (`TCP_RTO_MIN`).
const RTO_MIN: f64 = 0.2;

/// BBR probes with 1.25 times the bandwidth it knows, and so does not notice a loss of a fifth; from there it loses bandwidth
/// with every round, and has next to none when this share is lost.
const BBR: (f64, f64) = (0.15, 0.25);

/// What BBR gives up to see the round trip: 200 ms in ten seconds with four packets under way.
const PROBE_RTT: f64 = 0.98;

/// What is left of the window after a loss.
pub(super) const fn decrease(congestion: Congestion) -> f64 {
    match congestion {
        Congestion::Cubic => 0.7,
        Congestion::Reno | Congestion::Ctcp => 0.5,
        Congestion::Bbr => 1.0,
    }
}

/// Bytes of payload per second that arrive and stay.
pub(super) fn rate(section: &Section) -> f64 {
    let rtt = section.round_trip();
    let ceiling = (section.ceiling() / rtt).min(section.line_packets());
    let lost = section.lost();
    let sent = match section.congestion {
        Congestion::Bbr => ceiling * PROBE_RTT * bbr_share(lost),
        other => below(window(other, lost, rtt) / rtt, ceiling),
    };
    with_timeouts(sent, lost, rtt) * (1.0 - lost) * section.packet()
}

/// Packets under way on average when nothing but loss limits.
pub(super) fn window(congestion: Congestion, lost: f64, rtt: f64) -> f64 {
    let reno = (1.5 / lost).sqrt();
    match congestion {
        Congestion::Reno => reno,
        Congestion::Cubic => reno.max((C * 3.7 / 1.2).powf(0.25) * (rtt / lost).powf(0.75)),
        Congestion::Ctcp => reno.max(0.255 / lost.powf(0.8)),
        Congestion::Bbr => f64::INFINITY,
    }
    .max(1.0)
}

/// The share of the bandwidth that BBR keeps when this share of packets is lost.
fn bbr_share(lost: f64) -> f64 {
    let (tolerated, nothing) = BBR;
    ((nothing - lost) / (nothing - tolerated)).clamp(0.01, 1.0)
}

/// The mean of a rate that swings about `wanted` and is cut at `ceiling`: less than either where they are near.
fn below(wanted: f64, ceiling: f64) -> f64 {
    if !wanted.is_finite() {
        return ceiling;
    }
    let ratio = wanted / ceiling;
    ceiling * ratio / (1.0 + ratio.powi(4)).powf(0.25)
}

/// A packet that is sent costs its time, and now and then a timeout: when all others under way are lost with it, or too few
/// come back to tell. Backing off is 1 + 32p² (Padhye and others 2000, equation 31 simplified).
fn with_timeouts(rate: f64, lost: f64, rtt: f64) -> f64 {
    let under_way = (rate * rtt).max(1.0);
    let unseen = lost.powf((under_way - 1.0).min(3.0));
    let timeout = RTO_MIN.max(rtt) + rtt;
    1.0 / (1.0 / rate + timeout * lost * unseen * (1.0 + 32.0 * lost * lost))
}
