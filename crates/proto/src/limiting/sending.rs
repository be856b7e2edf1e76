//! Diagnosis of bytes that waited for room in the section they were to be sent into: the kernel is the sender and knows
//! the reason.

use super::Bottleneck;
use super::figures::{BitRate, Percent, Seconds, Size};
use super::judge::{Evidence, peer_name};
use super::seen::{Section, ratio};
use crate::path::reading::TcpCounters;

/// The peer's window is the limit if this share of it is used in every round trip; otherwise the receiver reads slowly.
const PEER_WINDOW_USED: f64 = 0.4;

/// The send buffer is the limit from this share of the time on: the congestion window grows only while it is full, so
/// by then it is about as large and accounts for its own share.
const SEND_BUFFER_SHARE: f64 = 0.25;

/// Or when in this part of the looks nothing was left to be sent of a full buffer. The kernel's own clock stands still while
/// its congestion window has been used up once in the round trip, however wide it has become since (tcp_cwnd_validate()).
const ALL_IN_FLIGHT: f64 = 0.5;

/// A sending section is lossy from one segment in a thousand, if no queue delays the path.
const SEND_LOSSY: f64 = 0.001;

/// A pacing ceiling is the limit if this share of it is reached.
const PACING_USED: f64 = 0.75;

/// A queue extends the round trip by this share and by at least so many seconds; smaller changes are noise.
const SEND_QUEUE_SHARE: f64 = 0.25;
const SEND_MIN_QUEUE: f64 = 0.002;

pub(super) fn diagnose_sending(case: &Evidence<'_>) -> (Bottleneck, String) {
    let (section, standing) = case.sending;
    // Both clocks agree, except just after the start of sending.
    let busy = section.busy.max(f64::MIN_POSITIVE);
    if section.rwnd_limited * 2.0 > busy {
        return receiver_limit(case, busy);
    }
    if section.sndbuf_limited > SEND_BUFFER_SHARE * busy || all_in_flight_share(section) > ALL_IN_FLIGHT {
        return (Bottleneck::SendBuffer, describe_send_buffer(section, busy));
    }
    let (rate, ceiling) = (ratio(section.acknowledged, busy), ratio(section.ceiling, section.paced));
    if section.mean(section.paced) > 0.5 && rate > PACING_USED * ceiling {
        let why = format!("we pace it at {}, and it had {}", BitRate(ceiling), BitRate(rate));
        return (Bottleneck::Share, why);
    }
    path_limit(section, &standing.counters)
}

/// The receiver closes its window. If each round trip fills the window, it is small; otherwise the receiver does not
/// read.
fn receiver_limit(case: &Evidence<'_>, busy: f64) -> (Bottleneck, String) {
    let (section, standing) = case.sending;
    let (rate, rtt) = (ratio(section.acknowledged, busy), section.mean(section.rtt));
    let (held, widest) = (Percent((section.rwnd_limited / busy).min(1.0)), f64::from(standing.widest_window));
    let whose = peer_name(case.direction);
    if rate * rtt > PEER_WINDOW_USED * widest && widest > 0.0 {
        let (window, rtt) = (Size(widest), Seconds(rtt));
        let why =
            format!("{whose}'s window of {window} lets {} through at {rtt}: full {held} of the time", BitRate(rate));
        return (Bottleneck::Window, why);
    }
    let why = format!("{whose} reads {}: its buffer was full {held} of the time", BitRate(rate));
    (Bottleneck::slow_peer(case.direction), why)
}

/// The share of samples with a full send buffer, from 0 to 1, in which all of it was in flight.
fn all_in_flight_share(section: &Section) -> f64 {
    ratio(section.all_sent, section.no_room)
}

fn describe_send_buffer(section: &Section, busy: f64) -> String {
    let held = Percent((section.sndbuf_limited / busy).max(all_in_flight_share(section)).min(1.0));
    let (rate, rtt) = (BitRate(ratio(section.acknowledged, busy)), Seconds(section.mean(section.rtt)));
    format!("all of our send buffer was under way {held} of the time: it lets {rate} through at {rtt}")
}

/// Loss limits a sender that backs off for losses, unless the sender fills the path nevertheless: then there is a
/// queue.
fn path_limit(section: &Section, now: &TcpCounters) -> (Bottleneck, String) {
    let (rtt, base) = (section.mean(section.rtt), now.min_rtt.as_secs_f64());
    let (lost, queue) = (ratio(section.lost, section.sent), (rtt - base).max(0.0));
    let rate = BitRate(ratio(section.acknowledged, section.busy));
    if lost > SEND_LOSSY && now.has_backed_off && queue < (SEND_QUEUE_SHARE * base).max(SEND_MIN_QUEUE) {
        let (lost, rtt) = (Percent(lost), Seconds(rtt));
        return (
            Bottleneck::Loss,
            format!("{lost} of the segments were lost, no queue stands on the way ({rtt}): {rate}"),
        );
    }
    let (rtt, queue) = (Seconds(rtt), Seconds(queue));
    (
        Bottleneck::PathRate,
        format!("there was more to send than {rate}; of the round trip of {rtt}, {queue} are queues"),
    )
}
