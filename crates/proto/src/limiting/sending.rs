//! Bytes waited for room in the section they were to be sent into: the kernel is its sender, and knows why.

use super::Bottleneck;
use super::figures::{BitRate, Percent, Seconds, Size};
use super::judge::{Case, program};
use super::seen::{Section, ratio};
use crate::path::reading::Reading;

/// A window that is used up by so much in every round trip is what limits; one that is not has a slow reader behind it.
const USED_UP: f64 = 0.4;

/// Our send buffer is what limits from this share of the time on: the congestion window, which grows only when it is full, is
/// about as large then, and has its part of the time.
const BUFFER: f64 = 0.25;

/// Or when in this part of the looks nothing was left to be sent of a full buffer. The kernel's own clock stands still while
/// its congestion window has been used up once in the round trip, however wide it has become since (tcp_cwnd_validate()).
const ALL_SENT: f64 = 0.5;

/// Loss is to blame from one segment in a thousand, where no queue stands on the way.
const LOSSY: f64 = 0.001;

/// A ceiling of ours that is reached by so much is what limits.
const REACHED: f64 = 0.75;

/// A queue makes the round trip longer by this part, and by at least so many seconds: less is what happens anyway.
const QUEUED: f64 = 0.25;
const LEAST_QUEUE: f64 = 0.002;

pub(super) fn judge(case: &Case<'_>) -> (Bottleneck, String) {
    let (section, standing) = case.sending;
    // Both clocks agree, but for one that has just begun to send.
    let busy = section.busy.max(f64::MIN_POSITIVE);
    if section.rwnd_limited * 2.0 > busy {
        return reader(case, busy);
    }
    if section.sndbuf_limited > BUFFER * busy || all_sent(section) > ALL_SENT {
        return (Bottleneck::SendBuffer, buffer(section, busy));
    }
    let (rate, ceiling) = (ratio(section.acknowledged, busy), ratio(section.ceiling, section.paced));
    if section.mean(section.paced) > 0.5 && rate > REACHED * ceiling {
        let why = format!("we pace it at {}, and it had {}", BitRate(ceiling), BitRate(rate));
        return (Bottleneck::Share, why);
    }
    path(section, &standing.reading)
}

/// The receiver closes its window. It is small if each round trip fills it; else it was full of bytes that nobody read.
fn reader(case: &Case<'_>, busy: f64) -> (Bottleneck, String) {
    let (section, standing) = case.sending;
    let (rate, rtt) = (ratio(section.acknowledged, busy), section.mean(section.rtt));
    let (held, widest) = (Percent((section.rwnd_limited / busy).min(1.0)), f64::from(standing.widest));
    let whose = program(case.direction);
    if rate * rtt > USED_UP * widest && widest > 0.0 {
        let (window, rtt) = (Size(widest), Seconds(rtt));
        let why =
            format!("{whose}'s window of {window} lets {} through at {rtt}: full {held} of the time", BitRate(rate));
        return (Bottleneck::Window, why);
    }
    let why = format!("{whose} reads {}: its buffer was full {held} of the time", BitRate(rate));
    (Bottleneck::slow(case.direction), why)
}

/// The part of the looks at a full send buffer, from 0 to 1, that found all of it under way.
fn all_sent(section: &Section) -> f64 {
    ratio(section.all_sent, section.no_room)
}

fn buffer(section: &Section, busy: f64) -> String {
    let held = Percent((section.sndbuf_limited / busy).max(all_sent(section)).min(1.0));
    let (rate, rtt) = (BitRate(ratio(section.acknowledged, busy)), Seconds(section.mean(section.rtt)));
    format!("all of our send buffer was under way {held} of the time: it lets {rate} through at {rtt}")
}

/// Who slows down for losses is slowed down by them, unless it has filled the path all the same: then there is a queue.
fn path(section: &Section, now: &Reading) -> (Bottleneck, String) {
    let (rtt, base) = (section.mean(section.rtt), now.min_rtt.as_secs_f64());
    let (lost, queue) = (ratio(section.lost, section.sent), (rtt - base).max(0.0));
    let rate = BitRate(ratio(section.acknowledged, section.busy));
    if lost > LOSSY && now.yields && queue < (QUEUED * base).max(LEAST_QUEUE) {
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
