//! Bytes were waited for. The kernel is only the receiver here: it sees when segments come, in what order, how long the answer
//! to an acknowledgement takes, and what window it offers.
//!
//! A sender that always has more fills the path until a queue stands there, or something is lost, or our window is full, and
//! it never pauses for longer than a round trip. Where none of that is seen and bytes come with pauses, it had no more.

use super::Bottleneck;
use super::figures::{BitRate, Percent, Seconds, Size};
use super::judge::{Evidence, peer_name};
use super::seen::{Section, ratio};
use crate::path::reading::{TcpCounters, estimate_losses};

/// A receiving section is lossy from one segment in two thousand: an estimate from the order of arrival.
const RECEIVE_LOSSY: f64 = 0.0005;

/// The own window is the limit if this share of it is in flight in every round trip.
const RECEIVE_WINDOW_USED: f64 = 0.7;

/// A queue makes the answers to acknowledgements later by this part of the round trip, and by at least so many seconds: the
/// kernel's clock for these has steps of a millisecond.
const RECEIVE_QUEUE_SHARE: f64 = 0.25;
const RECEIVE_MIN_QUEUE: f64 = 0.004;

/// Waits of up to so many full segments at that rate, or so many seconds, are no pauses: interrupts are gathered, too.
const PAUSE_SEGMENTS: f64 = 4.0;
const MIN_PAUSE: f64 = 0.002;

/// Segments are no larger than this on their way through any path that has a rate worth naming, in bytes.
const MAX_SEGMENT: f64 = 1500.0;

/// A sender with enough data sends full segments; a smaller mean share comes from many small writes.
const FULL_SEGMENT_SHARE: f64 = 0.95;

/// In fewer round trips no sender has found the rate of the path.
const MIN_ROUND_TRIPS: f64 = 20.0;

pub(super) fn diagnose_receiving(case: &Evidence<'_>) -> (Bottleneck, String) {
    let (section, standing) = case.receiving;
    let (now, rate, wait) = (&standing.counters, case.active_rate(), case.flow.mean_wait());
    let base = base_rtt(now);
    let lost = loss_share(section, now, case.active());
    if let Some(queue) = queueing_delay(section, base, wait) {
        let why = format!("bytes came at {}, and queues on the way make that {} late", BitRate(rate), Seconds(queue));
        return (Bottleneck::PathRate, why);
    }
    if lost > RECEIVE_LOSSY {
        let why = format!("about {} of the segments were lost on the way here: {}", Percent(lost), BitRate(rate));
        return (Bottleneck::Loss, why);
    }
    if rate * base > RECEIVE_WINDOW_USED * f64::from(now.own_window) && now.own_window > 0 {
        let (window, rtt) = (Size(f64::from(now.own_window)), Seconds(base));
        return (Bottleneck::Window, format!("our window of {window} lets {} through at {rtt}", BitRate(rate)));
    }
    let whose = peer_name(case.direction.opposite());
    if case.active() < MIN_ROUND_TRIPS * base {
        let why = format!("{whose} has been sending for {} round trips only", (case.active() / base).ceil());
        return (Bottleneck::PathRate, why);
    }
    let segment = full_segment(section, now).min(MAX_SEGMENT);
    if wait > MIN_PAUSE.max(PAUSE_SEGMENTS * segment / rate) || has_small_segments(section, now) {
        let why = format!("{whose} sends {} with pauses of {}: no loss, and no queue", BitRate(rate), Seconds(wait));
        return (Bottleneck::slow_peer(case.direction.opposite()), why);
    }
    (Bottleneck::PathRate, format!("bytes came without a pause at {}, and we had room for more", BitRate(rate)))
}

fn base_rtt(now: &TcpCounters) -> f64 {
    if now.min_rtt.is_zero() { now.rtt.as_secs_f64() } else { now.min_rtt.as_secs_f64() }
}

/// The share of segments that were lost.
fn loss_share(section: &Section, now: &TcpCounters, active: f64) -> f64 {
    let rtt = section.mean(section.receive_rtt).max(base_rtt(now));
    ratio(estimate_losses(ratio(section.out_of_order, section.come), ratio(active, rtt)), section.come)
}

/// By how much the answers to our acknowledgements are late for another reason than that there was nothing to say: a sender
/// that pauses answers late, too, by up to two waits.
fn queueing_delay(section: &Section, base: f64, wait: f64) -> Option<f64> {
    let queue = section.mean(section.receive_rtt) - base - 2.0 * wait;
    (queue > (RECEIVE_QUEUE_SHARE * base).max(RECEIVE_MIN_QUEUE)).then_some(queue)
}

fn full_segment(section: &Section, now: &TcpCounters) -> f64 {
    if now.rcv_mss > 0 { f64::from(now.rcv_mss) } else { mean_segment(section) }
}

fn mean_segment(section: &Section) -> f64 {
    ratio(section.received, section.come)
}

fn has_small_segments(section: &Section, now: &TcpCounters) -> bool {
    section.come > 0.0 && mean_segment(section) < FULL_SEGMENT_SHARE * full_segment(section, now)
}
