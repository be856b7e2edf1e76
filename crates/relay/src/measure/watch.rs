//! One connection of a session, looked at from time to time and at its end.

use std::os::fd::AsFd;
use std::rc::Weak;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::reading::{Pumped, Reading, receiving, sending};
use ekiden_sys::tcp_info::reading;
use tokio::net::TcpStream;

use super::{Book, Place};
use crate::pump::Meter;

/// The shortest time between two looks: less says little of a rate.
const APART: Duration = Duration::from_secs(3);

/// A connection whose section is measured.
#[derive(Debug)]
pub struct Watch {
    stream: Weak<TcpStream>,
    /// `Down` for the client's section.
    side: Direction,
    place: Place,
    /// The relay whose session it is.
    user: Option<PublicKey>,
    before: Reading,
    at: Instant,
    /// Of the meter, by the last look.
    moved: u64,
    stalled: Duration,
    held: Duration,
    /// Whether nothing was noted yet.
    starts: bool,
}

impl Watch {
    /// Begins with what the counters say now: the connection may have been somebody else's before.
    #[must_use]
    pub fn begin(stream: &std::rc::Rc<TcpStream>, side: Direction, place: Place, meter: &Meter) -> Self {
        Self {
            before: reading(stream.as_fd()).unwrap_or_default(),
            stream: std::rc::Rc::downgrade(stream),
            side,
            place,
            user: None,
            at: Instant::now(),
            moved: meter.moved(),
            stalled: meter.blocked_for(side),
            held: meter.blocked_for(side.other()),
            starts: true,
        }
    }

    /// Notes the relay whose session it is.
    #[must_use]
    pub fn of(self, user: Option<PublicKey>) -> Self {
        Self { user, ..self }
    }

    /// Looks, unless it has just been looked at or nothing has moved since.
    pub fn look(&mut self, meter: &Meter, book: &Book) {
        if self.at.elapsed() >= APART && meter.moved() != self.moved {
            self.note(meter, book);
        }
    }

    /// Writes down what was seen since the last time.
    pub fn note(&mut self, meter: &Meter, book: &Book) {
        // Fails only when the socket is already dead.
        let Some(stream) = self.stream.upgrade() else { return };
        let Ok(now) = reading(stream.as_fd()) else { return };
        let pumped = Pumped {
            span: self.at.elapsed(),
            stalled: meter.blocked_for(self.side).saturating_sub(self.stalled),
            held: meter.blocked_for(self.side.other()).saturating_sub(self.held),
            starts: self.starts,
        };
        let (out, back) = (sending(&self.before, &now, pumped), receiving(&self.before, &now, pumped));
        let bytes = meter.moved() - self.moved;
        match self.side {
            Direction::Up => book.note(self.place, self.user, (&out, &back), bytes),
            Direction::Down => book.note_caller(self.place, (&out, &back), bytes),
        }
        let Self { stream, side, place, user, .. } = self;
        *self = Self {
            stream: stream.clone(),
            side: *side,
            place: *place,
            user: *user,
            before: now,
            at: Instant::now(),
            moved: meter.moved(),
            stalled: meter.blocked_for(*side),
            held: meter.blocked_for(side.other()),
            starts: false,
        };
    }
}
