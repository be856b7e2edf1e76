//! How long a section takes for a size: slow start in rounds until the line, the window or a loss ends it, the way from there
//! to the steady rate, and the rest at that rate.
//!
//! After Cardwell, Savage and Anderson (INFOCOM 2000), with the initial window of RFC 6928, and doubling: Linux counts
//! acknowledged packets (RFC 3465), so delayed acknowledgements do not slow it down.

use super::response::{decrease, window};
use super::{Congestion, Section};

/// RFC 6928.
const INITIAL: f64 = 10.0;

/// What arrives in how long.
struct Progress {
    /// Packets.
    sent: f64,
    /// Seconds.
    time: f64,
}

/// From the first packet's departure to the last one's, in seconds, for so many bytes.
pub(super) fn transfer(section: &Section, size: u64) -> f64 {
    let packets = (size as f64 / section.packet()).ceil();
    let rate = section.rate() / section.packet();
    let (progress, at) = slow_start(section, packets);
    if progress.sent >= packets {
        return progress.time;
    }
    let progress = settle(section, progress, at, packets);
    progress.time + (packets - progress.sent).max(0.0) / rate
}

/// Rounds that double, until something ends them; and the window then.
fn slow_start(section: &Section, packets: f64) -> (Progress, f64) {
    let (rtt, line, lost) = (section.round_trip(), section.line_packets(), section.lost());
    let full = section.ceiling().min(line * rtt);
    // The packet before which half of all connections have lost one.
    let first_loss = if lost > 0.0 && section.congestion != Congestion::Bbr { 0.693 / lost } else { f64::INFINITY };
    let (mut sent, mut time, mut now) = (0.0, 0.0, INITIAL.min(section.ceiling()));
    loop {
        if now >= full || sent + now >= packets.min(first_loss) {
            break;
        }
        (sent, time, now) = (sent + now, time + rtt, now * 2.0);
    }
    let last = packets - sent;
    if last <= now.min(first_loss) {
        return (Progress { sent: packets, time: time + last / line }, now);
    }
    (Progress { sent, time }, now)
}

/// From the window at the first loss down (or up) to where loss holds it: an epoch is the packets between two losses.
fn settle(section: &Section, mut progress: Progress, mut at: f64, packets: f64) -> Progress {
    let (rtt, line, lost) = (section.round_trip(), section.line_packets(), section.lost());
    if lost <= 0.0 || section.congestion == Congestion::Bbr {
        return progress;
    }
    let steady = window(section.congestion, lost, rtt);
    let kept = decrease(section.congestion);
    while at * kept > steady && progress.sent < packets {
        at *= kept;
        let epoch = (1.0 / lost).min(packets - progress.sent);
        progress.time += epoch / (at / rtt).min(line).min(section.ceiling() / rtt);
        progress.sent += epoch;
    }
    progress
}
