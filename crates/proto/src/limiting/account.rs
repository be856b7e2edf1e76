//! The limit tracker of one session: samples in, diagnoses out.

use std::time::Duration;

use super::judge::{self, Evidence};
use super::sums::{Flow, Section, SessionSums, Thread, ratio};
use super::{Diagnoses, Diagnosis};
use crate::direction::Direction;
use crate::path::reading::TcpCounters;

/// Age at which the weight of a sample has decayed to 1/e, in seconds: a diagnosis covers a few times this span.
const DECAY_SECONDS: f64 = 3.0;

/// The pump's counters of one direction, since the start of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowCounters {
    /// Bytes transferred in this direction.
    pub bytes: u64,
    /// Number of pieces in which these bytes were transferred.
    pub moves: u64,
    /// Time in which bytes were ready and there was no room to send them.
    pub blocked: Duration,
    /// Time spent waiting for bytes, without the time in which it was the client's turn to send.
    pub waiting: Duration,
    /// The sum of the squares of these waits, in s².
    pub wait_squares: f64,
    /// The part of `waiting` in which bytes were held back by a rate limit of this relay.
    pub throttled: Duration,
}

/// A sample of one side of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SideSample {
    /// The kernel's counters of the section; `None` if it has none or has ended.
    pub counters: Option<TcpCounters>,
    /// The congestion window of the section, in segments.
    pub cwnd: u32,
    /// Whether received bytes wait to be read.
    pub has_unread: bool,
    /// Whether bytes wait to be sent and the send buffer of the section is full.
    pub send_buffer_full: bool,
    /// Whether, in addition, all bytes in the send buffer are in flight.
    pub all_in_flight: bool,
    /// The pump's counters of the bytes sent to the section.
    pub flow: FlowCounters,
}

/// A sample of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SessionSample {
    /// Time since the last sample, or since the session began.
    pub span: Duration,
    /// The time in which the relay's thread ran.
    pub run_time: Duration,
    /// The time in which the relay's thread waited for a processor.
    pub runqueue_wait: Duration,
    /// The sample of the client's section.
    pub down: SideSample,
    /// The sample of the server's section.
    pub up: SideSample,
}

/// The state of a section at the last sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SectionState {
    pub(super) counters: TcpCounters,
    /// The congestion window, in segments.
    pub(super) cwnd: u32,
    /// The largest window that the peer has advertised, in bytes: the current window is smaller while it holds unread
    /// bytes.
    pub(super) widest_window: u32,
}

/// Tracks the limits of a session in both directions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitTracker {
    total: SessionSums,
    recent: SessionSums,
    counters: [FlowCounters; 2],
    sections: [SectionState; 2],
}

impl LimitTracker {
    /// Starts a section, at the start of the session or when the session changes to another server. The counters and
    /// the congestion window are not zero if the section has carried sessions before. `side` is the direction of the
    /// bytes that this relay sends to the section.
    pub fn start_section(&mut self, side: Direction, counters: TcpCounters, cwnd: u32) {
        self.sections[side as usize] = SectionState { counters, cwnd, widest_window: counters.peer_window };
    }

    /// Adds a sample of both directions.
    pub fn record(&mut self, sample: &SessionSample) {
        let span = sample.span.as_secs_f64();
        let mut sums = SessionSums::with_thread(Thread {
            span,
            on_cpu: sample.run_time.as_secs_f64(),
            queued: sample.runqueue_wait.as_secs_f64(),
        });
        for (side, side_sample) in [(Direction::Down, &sample.down), (Direction::Up, &sample.up)] {
            let previous = std::mem::replace(&mut self.counters[side as usize], side_sample.flow);
            *sums.flow_mut(side) = flow_since(&previous, &side_sample.flow);
            let section_state = &mut self.sections[side as usize];
            if let Some(now) = side_sample.counters {
                *sums.section_mut(side) = section_since(section_state, &now, side_sample);
                let widest_window = section_state.widest_window.max(now.peer_window);
                *section_state = SectionState { counters: now, cwnd: side_sample.cwnd, widest_window };
            }
        }
        self.total.add(&sums);
        self.recent.fade((-span / DECAY_SECONDS).exp());
        self.recent.add(&sums);
    }

    /// The current limit of each direction.
    #[must_use]
    pub fn limits(&self) -> Diagnoses {
        let limit = |direction| judge::diagnose(&self.evidence(&self.recent, direction));
        Diagnoses { down: limit(Direction::Down), up: limit(Direction::Up) }
    }

    /// The limit of a direction over the whole session.
    #[must_use]
    pub fn overall_limit(&self, direction: Direction) -> Option<Diagnosis> {
        judge::diagnose(&self.evidence(&self.total, direction))
    }

    fn evidence<'a>(&'a self, sums: &'a SessionSums, direction: Direction) -> Evidence<'a> {
        let opposite = direction.opposite();
        Evidence {
            direction,
            thread: &sums.thread,
            flow: sums.flow(direction),
            sending: (sums.section(direction), &self.sections[direction as usize]),
            receiving: (sums.section(opposite), &self.sections[opposite as usize]),
        }
    }
}

fn flow_since(previous: &FlowCounters, now: &FlowCounters) -> Flow {
    Flow {
        bytes: now.bytes.saturating_sub(previous.bytes) as f64,
        moves: now.moves.saturating_sub(previous.moves) as f64,
        blocked: now.blocked.saturating_sub(previous.blocked).as_secs_f64(),
        waiting: now.waiting.saturating_sub(previous.waiting).as_secs_f64(),
        squares: (now.wait_squares - previous.wait_squares).max(0.0),
        throttled: now.throttled.saturating_sub(previous.throttled).as_secs_f64(),
    }
}

fn section_since(previous_state: &SectionState, now: &TcpCounters, sample: &SideSample) -> Section {
    let previous = &previous_state.counters;
    let since = |now: u32, previous: u32| f64::from(now.saturating_sub(previous));
    let span = |now: Duration, previous: Duration| now.saturating_sub(previous).as_secs_f64();
    let retransmitted = since(now.retransmitted, previous.retransmitted);
    let lost = (retransmitted - since(now.spurious, previous.spurious)).max(0.0);
    let acknowledged = now.bytes_sent.saturating_sub(previous.bytes_sent) as f64;
    let busy = span(now.busy, previous.busy);
    let is_slow_start =
        lost == 0.0 && is_slow_start(previous_state.cwnd, sample.cwnd, ratio(acknowledged, f64::from(now.mss)));
    Section {
        busy,
        slow_start: if is_slow_start { busy } else { 0.0 },
        rwnd_limited: span(now.rwnd_limited, previous.rwnd_limited),
        sndbuf_limited: span(now.sndbuf_limited, previous.sndbuf_limited),
        sent: since(now.segments_sent, previous.segments_sent),
        lost,
        acknowledged,
        segments_received: since(now.segments_received, previous.segments_received),
        out_of_order: since(now.out_of_order, previous.out_of_order),
        received: now.bytes_received.saturating_sub(previous.bytes_received) as f64,
        samples: 1.0,
        rtt: now.rtt.as_secs_f64(),
        receive_rtt: now.rcv_rtt.as_secs_f64(),
        unread: f64::from(u8::from(sample.has_unread)),
        buffer_full: f64::from(u8::from(sample.send_buffer_full)),
        all_sent: f64::from(u8::from(sample.send_buffer_full && sample.all_in_flight)),
        paced: f64::from(u8::from(now.max_pacing_rate.is_some())),
        ceiling: now.max_pacing_rate.unwrap_or_default() as f64,
    }
}

/// Whether the congestion window, in segments, grew from `previous_cwnd` to `cwnd` as in slow start, while
/// `acknowledged` segments were acknowledged. In slow start each acknowledged segment widens the window by one (RFC
/// 5681, RFC 3465). This holds in STARTUP of BBR, too, whose slow-start threshold does not show the phase. Congestion
/// avoidance widens the window by half as much at most (CUBIC). A window that shrank without a loss was reset after an
/// idle time, and has grown since.
fn is_slow_start(previous_cwnd: u32, cwnd: u32, acknowledged: f64) -> bool {
    let growth = f64::from(if cwnd < previous_cwnd { cwnd } else { cwnd - previous_cwnd });
    acknowledged > 0.0 && growth * 2.0 > acknowledged
}
