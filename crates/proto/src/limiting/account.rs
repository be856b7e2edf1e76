//! The account of one session: looks go in, answers come out.

use std::time::Duration;

use super::judge::{self, Evidence};
use super::seen::{Flow, Section, SessionSums, Thread};
use super::{Diagnoses, Diagnosis};
use crate::direction::Direction;
use crate::path::reading::TcpCounters;

/// What was seen so long ago counts a third (1/e) of what is seen now, in seconds: an answer is about the last few of them.
const DECAY_SECONDS: f64 = 3.0;

/// What the pump knows of one direction of bytes, since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowCounters {
    /// Bytes that have moved.
    pub bytes: u64,
    /// Pieces that they moved in.
    pub moves: u64,
    /// Time in which there were bytes and no room to send them.
    pub blocked: Duration,
    /// Time in which there were none, and it was not the client's turn to ask for any.
    pub waiting: Duration,
    /// The square of each of these waits, added up, in s².
    pub wait_squares: f64,
}

/// One side of a session at a look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SideSample {
    /// The kernel's counters of its section; none where it has none, or has ended.
    pub counters: Option<TcpCounters>,
    /// Whether bytes have come that nobody has read.
    pub has_unread: bool,
    /// Whether there are bytes for it and no room in its send buffer,
    pub send_buffer_full: bool,
    /// and all that this buffer holds is under way.
    pub all_in_flight: bool,
    /// What the pump has sent into it.
    pub flow: FlowCounters,
}

/// One look at a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SessionSample {
    /// Since the look before, or since the session began.
    pub span: Duration,
    /// The part of it in which the relay's thread was on a processor.
    pub run_time: Duration,
    /// The part of it in which it was not, and wanted to be.
    pub runqueue_wait: Duration,
    /// The client's side.
    pub down: SideSample,
    /// The server's side.
    pub up: SideSample,
}

/// What is known of a section as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SectionState {
    pub(super) counters: TcpCounters,
    /// The widest window that its peer has offered, in bytes: one that is full of unread bytes says little of its size.
    pub(super) widest_window: u32,
}

/// What is known of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitTracker {
    total: SessionSums,
    recent: SessionSums,
    counters: [FlowCounters; 2],
    sections: [SectionState; 2],
}

impl LimitTracker {
    /// Takes what was seen at a look.
    pub fn record(&mut self, look: &SessionSample) {
        let span = look.span.as_secs_f64();
        let mut seen = SessionSums::with_thread(Thread {
            span,
            ran: look.run_time.as_secs_f64(),
            queued: look.runqueue_wait.as_secs_f64(),
        });
        for (side, look) in [(Direction::Down, &look.down), (Direction::Up, &look.up)] {
            let before = std::mem::replace(&mut self.counters[side as usize], look.flow);
            *seen.flow_mut(side) = flow_since(&before, &look.flow);
            let standing = &mut self.sections[side as usize];
            if let Some(now) = look.counters {
                *seen.section_mut(side) = section_since(&standing.counters, &now, look);
                *standing = SectionState { counters: now, widest_window: standing.widest_window.max(now.peer_window) };
            }
        }
        self.total.add(&seen);
        self.recent.fade((-span / DECAY_SECONDS).exp());
        self.recent.add(&seen);
    }

    /// What holds it back now.
    #[must_use]
    pub fn limits(&self) -> Diagnoses {
        let limit = |direction| judge::diagnose(&self.evidence(&self.recent, direction));
        Diagnoses { down: limit(Direction::Down), up: limit(Direction::Up) }
    }

    /// What has held a direction back, all in all.
    #[must_use]
    pub fn overall_limit(&self, direction: Direction) -> Option<Diagnosis> {
        judge::diagnose(&self.evidence(&self.total, direction))
    }

    fn evidence<'a>(&'a self, seen: &'a SessionSums, direction: Direction) -> Evidence<'a> {
        let far = direction.opposite();
        Evidence {
            direction,
            thread: &seen.thread,
            flow: seen.flow(direction),
            sending: (seen.section(direction), &self.sections[direction as usize]),
            receiving: (seen.section(far), &self.sections[far as usize]),
        }
    }
}

fn flow_since(before: &FlowCounters, now: &FlowCounters) -> Flow {
    Flow {
        bytes: now.bytes.saturating_sub(before.bytes) as f64,
        moves: now.moves.saturating_sub(before.moves) as f64,
        blocked: now.blocked.saturating_sub(before.blocked).as_secs_f64(),
        waiting: now.waiting.saturating_sub(before.waiting).as_secs_f64(),
        squares: (now.wait_squares - before.wait_squares).max(0.0),
    }
}

/// Counters of another connection, which a session may have after its first, begin anew: then they say nothing this time.
fn section_since(before: &TcpCounters, now: &TcpCounters, look: &SideSample) -> Section {
    let since = |now: u32, before: u32| f64::from(now.saturating_sub(before));
    let span = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
    let retransmitted = since(now.retransmitted, before.retransmitted);
    Section {
        busy: span(now.busy, before.busy),
        rwnd_limited: span(now.rwnd_limited, before.rwnd_limited),
        sndbuf_limited: span(now.sndbuf_limited, before.sndbuf_limited),
        sent: since(now.segments_sent, before.segments_sent),
        lost: (retransmitted - since(now.spurious, before.spurious)).max(0.0),
        acknowledged: now.bytes_sent.saturating_sub(before.bytes_sent) as f64,
        come: since(now.segments_received, before.segments_received),
        out_of_order: since(now.out_of_order, before.out_of_order),
        received: now.bytes_received.saturating_sub(before.bytes_received) as f64,
        looks: 1.0,
        rtt: now.rtt.as_secs_f64(),
        receive_rtt: now.rcv_rtt.as_secs_f64(),
        unread: f64::from(u8::from(look.has_unread)),
        no_room: f64::from(u8::from(look.send_buffer_full)),
        all_sent: f64::from(u8::from(look.send_buffer_full && look.all_in_flight)),
        paced: f64::from(u8::from(now.max_pacing_rate.is_some())),
        ceiling: now.max_pacing_rate.unwrap_or_default() as f64,
    }
}
