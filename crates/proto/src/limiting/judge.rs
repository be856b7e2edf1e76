//! The diagnosis of one direction: the side for which the relay waited, and the reason.
//!
//! Where the relay waited for bytes, its kernel is only the receiver. A receiver has few observations: the arrival and
//! order of segments, the delay of answers to ACKs, and its own window. A sender that always has data fills the path
//! until a queue builds, a packet is lost or the receive window is full, and it never pauses for longer than a round
//! trip. If none of these is observed and bytes arrive with pauses, the sender had no data.
//!
//! Where bytes waited for room, the kernel is the sender, and its counters contain the reason.

use super::account::SectionState;
use super::sums::{Flow, Section, Thread, ratio};
use super::{Bottleneck, Diagnosis, LimitingSection};
use crate::direction::Direction;
use crate::path::reading::{TcpCounters, estimate_losses};
use crate::quantity::{bit_rate, percent, size, time};

/// Smallest number of bytes for a diagnosis, unless bytes mostly waited to be sent.
const MIN_BYTES: f64 = 64.0 * 1024.0;

/// A thread lacks CPU time if it runs or waits for a processor for this share of the time.
const CPU_STARVED: f64 = 0.85;

/// Mean bytes in a piece from which on the relay counts as having a backlog.
const BACKLOG_BYTES: f64 = 32.0 * 1024.0;

/// The evidence for the diagnosis of one direction.
pub(super) struct Evidence<'a> {
    pub(super) direction: Direction,
    pub(super) thread: &'a Thread,
    pub(super) flow: &'a Flow,
    pub(super) sending: (&'a Section, &'a SectionState),
    pub(super) receiving: (&'a Section, &'a SectionState),
}

impl Evidence<'_> {
    /// Time in which the pump waited for bytes or for room to send, in seconds.
    pub(super) fn active(&self) -> f64 {
        self.flow.blocked + self.flow.waiting
    }

    /// Bytes per second of the active time.
    pub(super) fn active_rate(&self) -> f64 {
        ratio(self.flow.bytes, self.active())
    }

    /// Whether bytes waited for room to send for most of the time, not counting waits of the relay's thread for a
    /// processor.
    fn is_send_blocked(&self) -> bool {
        let cpu_wait = if self.is_cpu_starved() { self.thread.queued } else { 0.0 };
        (self.flow.blocked - cpu_wait) * 2.0 > self.active() || self.is_kernel_limited()
    }

    /// Whether the kernel's counters show a reason for not sending. They are valid even if the relay's thread does not
    /// run.
    fn is_kernel_limited(&self) -> bool {
        let section = self.sending.0;
        (section.rwnd_limited + section.sndbuf_limited) * 2.0 > self.active()
    }

    fn is_cpu_starved(&self) -> bool {
        self.thread.cpu_demand() >= CPU_STARVED
    }

    /// Whether received bytes wait for the relay, rather than the relay for bytes.
    fn has_backlog(&self) -> bool {
        let (section, _) = self.receiving;
        section.mean(section.unread) >= 0.5 || ratio(self.flow.bytes, self.flow.moves) >= BACKLOG_BYTES
    }
}

/// Returns the limit; `None` if too few bytes were transferred.
pub(super) fn diagnose(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    let is_mostly_blocked = evidence.flow.blocked * 2.0 > evidence.active();
    if evidence.active() <= 0.0 || evidence.flow.bytes < MIN_BYTES && !is_mostly_blocked {
        return None;
    }
    let (section, (by, why)) = if evidence.flow.throttled * 2.0 > evidence.active() {
        let why = format!("the rate limit of the user or of the listener allows {}", bit_rate(evidence.active_rate()));
        (LimitingSection::Relay, (Bottleneck::RateLimit, why))
    } else if evidence.is_send_blocked() {
        (LimitingSection::from(evidence.direction), diagnose_sending(evidence))
    } else if evidence.is_cpu_starved() && evidence.has_backlog() {
        (LimitingSection::Relay, (Bottleneck::RelayCpu, describe_cpu_starvation(evidence.thread)))
    } else {
        (LimitingSection::from(evidence.direction.opposite()), diagnose_receiving(evidence))
    };
    Some(Diagnosis { section, by, why })
}

fn describe_cpu_starvation(thread: &Thread) -> String {
    let (demand, share) = (percent(thread.cpu_demand()), percent(ratio(thread.on_cpu, thread.span)));
    format!(
        "bytes waited in this relay: its thread needed a processor {demand} of the time, and had a processor {share}"
    )
}

/// The name of the peer of a section, for messages.
pub(super) const fn peer_name(section: Direction) -> &'static str {
    match section {
        Direction::Down => "the client",
        Direction::Up => "the server",
    }
}

/// Share of lost segments from which on a receiving section is lossy: one in two thousand, estimated from the order of
/// arrival.
const RECEIVE_LOSSY: f64 = 0.0005;

/// The relay's own window is the limit if this share of it is in flight in every round trip.
const RECEIVE_WINDOW_USED: f64 = 0.7;

/// A queue is detected if it delays the answers to acknowledgements by this share of the round trip, and by at least
/// this many seconds: the kernel measures these delays in steps of a millisecond.
const RECEIVE_QUEUE_SHARE: f64 = 0.25;
const RECEIVE_MIN_QUEUE: f64 = 0.004;

/// Waits of up to this many full segments at the measured rate, or this many seconds, do not count as pauses: the
/// network card also delays segments, by interrupt coalescing.
const PAUSE_SEGMENTS: f64 = 4.0;
const MIN_PAUSE: f64 = 0.002;

/// Largest segment, in bytes, on any path whose rate can be a limit.
const MAX_SEGMENT: f64 = 1500.0;

/// A sender with enough data sends full segments; a smaller mean size, as a share of a full segment, results from many
/// small writes.
const FULL_SEGMENT_SHARE: f64 = 0.95;

/// Number of round trips that a sender needs at least to reach the rate of the path.
const MIN_ROUND_TRIPS: f64 = 20.0;

pub(super) fn diagnose_receiving(evidence: &Evidence<'_>) -> (Bottleneck, String) {
    let (section, state) = evidence.receiving;
    let (now, rate, wait) = (&state.counters, evidence.active_rate(), evidence.flow.mean_wait());
    let base = base_rtt(now);
    let lost = loss_share(section, now, evidence.active());
    if let Some(queue) = queueing_delay(section, base, wait) {
        let why = format!("bytes arrived at {}, delayed {} by queues on the path", bit_rate(rate), time(queue));
        return (Bottleneck::PathRate, why);
    }
    if lost > RECEIVE_LOSSY {
        let why =
            format!("about {} of the segments were lost on the path to this relay: {}", percent(lost), bit_rate(rate));
        return (Bottleneck::Loss, why);
    }
    if rate * base > RECEIVE_WINDOW_USED * f64::from(now.own_window) && now.own_window > 0 {
        let (window, rtt) = (size(u64::from(now.own_window)), time(base));
        return (Bottleneck::Window, format!("the relay's window of {window} allows {} at {rtt}", bit_rate(rate)));
    }
    let peer = peer_name(evidence.direction.opposite());
    if evidence.active() < MIN_ROUND_TRIPS * base {
        let why = format!("{peer} has been sending for only {} round trips", (evidence.active() / base).ceil());
        return (Bottleneck::PathRate, why);
    }
    let segment = full_segment(section, now).min(MAX_SEGMENT);
    if wait > MIN_PAUSE.max(PAUSE_SEGMENTS * segment / rate) || has_small_segments(section, now) {
        let why = format!("{peer} sends {} with pauses of {}: no loss, and no queue", bit_rate(rate), time(wait));
        return (Bottleneck::slow_peer(evidence.direction.opposite()), why);
    }
    (
        Bottleneck::PathRate,
        format!("bytes arrived without a pause at {}, and the relay had room for more", bit_rate(rate)),
    )
}

fn base_rtt(now: &TcpCounters) -> f64 {
    if now.min_rtt.is_zero() { now.rtt.as_secs_f64() } else { now.min_rtt.as_secs_f64() }
}

/// The estimated share of received segments that were lost.
fn loss_share(section: &Section, now: &TcpCounters, active: f64) -> f64 {
    let rtt = section.mean(section.receive_rtt).max(base_rtt(now));
    ratio(
        estimate_losses(ratio(section.out_of_order, section.segments_received), ratio(active, rtt)),
        section.segments_received,
    )
}

/// The time by which queues on the path delay the answers to the relay's acknowledgements, in seconds; `None` if it is
/// insignificant. A sender that pauses also answers late, by up to two waits, which do not count.
fn queueing_delay(section: &Section, base: f64, wait: f64) -> Option<f64> {
    let queue = section.mean(section.receive_rtt) - base - 2.0 * wait;
    (queue > (RECEIVE_QUEUE_SHARE * base).max(RECEIVE_MIN_QUEUE)).then_some(queue)
}

fn full_segment(section: &Section, now: &TcpCounters) -> f64 {
    if now.rcv_mss > 0 { f64::from(now.rcv_mss) } else { mean_segment(section) }
}

fn mean_segment(section: &Section) -> f64 {
    ratio(section.received, section.segments_received)
}

fn has_small_segments(section: &Section, now: &TcpCounters) -> bool {
    section.segments_received > 0.0 && mean_segment(section) < FULL_SEGMENT_SHARE * full_segment(section, now)
}

/// The peer's window is the limit if this share of it is used in every round trip; otherwise the peer reads slowly.
const PEER_WINDOW_USED: f64 = 0.4;

/// The send buffer is the limit if it is full for this share of the time. The share is small because the congestion
/// window limits for a part of the time, too: it grows only while it is fully used, and so becomes about as large as the
/// buffer.
const SEND_BUFFER_SHARE: f64 = 0.25;

/// The send buffer is also the limit if all of it was in flight in this share of the samples with a full buffer. The
/// kernel's own timer stops for a round trip in which the congestion window was once used up, even if the window has
/// grown since (tcp_cwnd_validate()).
const ALL_IN_FLIGHT: f64 = 0.5;

/// Share of lost segments from which on a sending section is lossy, if no queue delays the path: one in a thousand.
const SEND_LOSSY: f64 = 0.001;

/// A pacing ceiling is the limit if the rate reaches this share of it.
const PACING_USED: f64 = 0.75;

/// Slow start is the limit if it takes this share of the time with data to send.
const SLOW_START_SHARE: f64 = 0.5;

/// A queue is detected if it extends the round trip by this share and by at least this many seconds; smaller changes
/// are noise.
const SEND_QUEUE_SHARE: f64 = 0.25;
const SEND_MIN_QUEUE: f64 = 0.002;

pub(super) fn diagnose_sending(evidence: &Evidence<'_>) -> (Bottleneck, String) {
    let (section, state) = evidence.sending;
    // The timers of the pump and of the kernel agree, except just after the start of sending.
    let busy = section.busy.max(f64::MIN_POSITIVE);
    if section.rwnd_limited * 2.0 > busy {
        return receiver_limit(evidence, busy);
    }
    if section.sndbuf_limited > SEND_BUFFER_SHARE * busy || all_in_flight_share(section) > ALL_IN_FLIGHT {
        return (Bottleneck::SendBuffer, describe_send_buffer(section, busy));
    }
    let (rate, ceiling) = (ratio(section.acknowledged, busy), ratio(section.ceiling, section.paced));
    if section.mean(section.paced) > 0.5 && rate > PACING_USED * ceiling {
        let why =
            format!("the relay paces the section at {}, and the section reached {}", bit_rate(ceiling), bit_rate(rate));
        return (Bottleneck::Share, why);
    }
    path_limit(section, state)
}

/// The limit where the peer closes its receive window. If the sender fills the window in each round trip, the window is
/// too small; otherwise the peer reads slowly.
fn receiver_limit(evidence: &Evidence<'_>, busy: f64) -> (Bottleneck, String) {
    let (section, state) = evidence.sending;
    let (rate, rtt) = (ratio(section.acknowledged, busy), section.mean(section.rtt));
    let (full_share, widest) = (percent((section.rwnd_limited / busy).min(1.0)), f64::from(state.widest_window));
    let peer = peer_name(evidence.direction);
    if rate * rtt > PEER_WINDOW_USED * widest && widest > 0.0 {
        let (window, rtt) = (size(u64::from(state.widest_window)), time(rtt));
        let why =
            format!("{peer}'s window of {window} allows {} at {rtt}: full {full_share} of the time", bit_rate(rate));
        return (Bottleneck::Window, why);
    }
    let why = format!("{peer} reads {}: its buffer was full {full_share} of the time", bit_rate(rate));
    (Bottleneck::slow_peer(evidence.direction), why)
}

/// The share of samples with a full send buffer, from 0 to 1, in which all of it was in flight.
fn all_in_flight_share(section: &Section) -> f64 {
    ratio(section.all_sent, section.buffer_full)
}

fn describe_send_buffer(section: &Section, busy: f64) -> String {
    let full_share = percent((section.sndbuf_limited / busy).max(all_in_flight_share(section)).min(1.0));
    let (rate, rtt) = (bit_rate(ratio(section.acknowledged, busy)), time(section.mean(section.rtt)));
    format!("all of the relay's send buffer was in flight {full_share} of the time: the buffer allows {rate} at {rtt}")
}

/// Loss is the limit of a sender that backs off for losses, and slow start of a sender whose window still grows, unless
/// the sender fills the path nevertheless, as a queue on the path shows.
fn path_limit(section: &Section, state: &SectionState) -> (Bottleneck, String) {
    let now = &state.counters;
    let (rtt, base) = (section.mean(section.rtt), now.min_rtt.as_secs_f64());
    let (lost, queue) = (ratio(section.lost, section.sent), (rtt - base).max(0.0));
    let rate = bit_rate(ratio(section.acknowledged, section.busy));
    let is_path_full = queue >= (SEND_QUEUE_SHARE * base).max(SEND_MIN_QUEUE);
    if lost > SEND_LOSSY && now.has_backed_off && !is_path_full {
        let (lost, rtt) = (percent(lost), time(rtt));
        return (
            Bottleneck::Loss,
            format!("{lost} of the segments were lost, with no queue on the path ({rtt}): {rate}"),
        );
    }
    if section.slow_start > SLOW_START_SHARE * section.busy && !is_path_full {
        let (window, rtt) = (size(u64::from(state.cwnd) * u64::from(now.mss)), time(rtt));
        let why = format!("the congestion window was still in slow start, at {window}: {rate} at {rtt}");
        return (Bottleneck::SlowStart, why);
    }
    let (rtt, queue) = (time(rtt), time(queue));
    (
        Bottleneck::PathRate,
        format!("the relay had more to send than {rate}; of the round trip of {rtt}, {queue} are queueing delay"),
    )
}
