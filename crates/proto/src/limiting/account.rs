//! The account of one session: looks go in, answers come out.

use std::time::Duration;

use super::judge::{self, Case};
use super::seen::{Flow, Section, Seen, Thread};
use super::{Limit, Limits};
use crate::direction::Direction;
use crate::path::reading::Reading;

/// What was seen so long ago counts a third (1/e) of what is seen now, in seconds: an answer is about the last few of them.
const MEMORY: f64 = 3.0;

/// What the pump knows of one direction of bytes, since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Clocks {
    /// Bytes that have moved.
    pub bytes: u64,
    /// Pieces that they moved in.
    pub moves: u64,
    /// Time in which there were bytes and no room to send them.
    pub blocked: Duration,
    /// Time in which there were none, and it was not the client's turn to ask for any.
    pub waiting: Duration,
    /// The square of each of these waits, added up, in s².
    pub squares: f64,
}

/// One side of a session at a look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Side {
    /// The kernel's counters of its section; none where it has none, or has ended.
    pub reading: Option<Reading>,
    /// Whether bytes have come that nobody has read.
    pub unread: bool,
    /// Whether there are bytes for it and no room in its send buffer,
    pub no_room: bool,
    /// and all that this buffer holds is under way.
    pub all_sent: bool,
    /// What the pump has sent into it.
    pub clocks: Clocks,
}

/// One look at a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Look {
    /// Since the look before, or since the session began.
    pub span: Duration,
    /// The part of it in which the relay's thread was on a processor.
    pub ran: Duration,
    /// The part of it in which it was not, and wanted to be.
    pub queued: Duration,
    /// The client's side.
    pub down: Side,
    /// The server's side.
    pub up: Side,
}

/// What is known of a section as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Standing {
    pub(super) reading: Reading,
    /// The widest window that its peer has offered, in bytes: one that is full of unread bytes says little of its size.
    pub(super) widest: u32,
}

/// What is known of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    whole: Seen,
    recent: Seen,
    clocks: [Clocks; 2],
    standing: [Standing; 2],
}

impl Account {
    /// Takes what was seen at a look.
    pub fn note(&mut self, look: &Look) {
        let span = look.span.as_secs_f64();
        let mut seen = Seen::of(Thread { span, ran: look.ran.as_secs_f64(), queued: look.queued.as_secs_f64() });
        for (side, look) in [(Direction::Down, &look.down), (Direction::Up, &look.up)] {
            let before = std::mem::replace(&mut self.clocks[side as usize], look.clocks);
            *seen.flow_mut(side) = flow(&before, &look.clocks);
            let standing = &mut self.standing[side as usize];
            if let Some(now) = look.reading {
                *seen.section_mut(side) = section(&standing.reading, &now, look);
                *standing = Standing { reading: now, widest: standing.widest.max(now.peer_window) };
            }
        }
        self.whole.add(&seen);
        self.recent.fade((-span / MEMORY).exp());
        self.recent.add(&seen);
    }

    /// What holds it back now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let limit = |direction| judge::limit(&self.case(&self.recent, direction));
        Limits { down: limit(Direction::Down), up: limit(Direction::Up) }
    }

    /// What has held a direction back, all in all.
    #[must_use]
    pub fn whole(&self, direction: Direction) -> Option<Limit> {
        judge::limit(&self.case(&self.whole, direction))
    }

    fn case<'a>(&'a self, seen: &'a Seen, direction: Direction) -> Case<'a> {
        let far = direction.other();
        Case {
            direction,
            thread: &seen.thread,
            flow: seen.flow(direction),
            sending: (seen.section(direction), &self.standing[direction as usize]),
            receiving: (seen.section(far), &self.standing[far as usize]),
        }
    }
}

fn flow(before: &Clocks, now: &Clocks) -> Flow {
    Flow {
        bytes: now.bytes.saturating_sub(before.bytes) as f64,
        moves: now.moves.saturating_sub(before.moves) as f64,
        blocked: now.blocked.saturating_sub(before.blocked).as_secs_f64(),
        waiting: now.waiting.saturating_sub(before.waiting).as_secs_f64(),
        squares: (now.squares - before.squares).max(0.0),
    }
}

/// Counters of another connection, which a session may have after its first, begin anew: then they say nothing this time.
fn section(before: &Reading, now: &Reading, look: &Side) -> Section {
    let since = |now: u32, before: u32| f64::from(now.saturating_sub(before));
    let span = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
    let retransmitted = since(now.retransmitted, before.retransmitted);
    Section {
        busy: span(now.busy, before.busy),
        rwnd_limited: span(now.rwnd_limited, before.rwnd_limited),
        sndbuf_limited: span(now.sndbuf_limited, before.sndbuf_limited),
        sent: since(now.sent, before.sent),
        lost: (retransmitted - since(now.spurious, before.spurious)).max(0.0),
        acknowledged: now.bytes_sent.saturating_sub(before.bytes_sent) as f64,
        come: since(now.received, before.received),
        out_of_order: since(now.out_of_order, before.out_of_order),
        received: now.bytes_received.saturating_sub(before.bytes_received) as f64,
        looks: 1.0,
        rtt: now.rtt.as_secs_f64(),
        receive_rtt: now.receive_rtt.as_secs_f64(),
        unread: f64::from(u8::from(look.unread)),
        no_room: f64::from(u8::from(look.no_room)),
        all_sent: f64::from(u8::from(look.no_room && look.all_sent)),
        paced: f64::from(u8::from(now.ceiling.is_some())),
        ceiling: now.ceiling.unwrap_or_default() as f64,
    }
}
