//! Exact counters of a session, which count for its listener as well.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::limiting::FlowCounters;

use super::course::{Answer, Course};
use super::totals::Totals;
use crate::metrics::SecondsCounter;
use crate::share::PacedSocket;
use crate::tuning::Tuner;

/// The counters of one session. A session never leaves its thread, so they are plain cells.
#[derive(Debug)]
pub struct Meter {
    totals: Arc<Totals>,
    down: OneWay,
    up: OneWay,
    course: Course,
}

#[derive(Debug, Default)]
struct OneWay {
    bytes: Cell<u64>,
    spliced: Cell<u64>,
    moves: Cell<u64>,
    blocked: Cell<Duration>,
    /// Since when there is no room, as long as there is none.
    blocked_since: Cell<Option<Instant>>,
    /// How long it had been blocked when bytes moved last.
    blocked_before: Cell<Duration>,
    waiting: Cell<Duration>,
    squares: Cell<f64>,
    /// Bytes that waited in this host when somebody looked last.
    queued: Cell<i64>,
    /// The section that sends these bytes, where it shares an interface with others.
    member: RefCell<Option<Rc<PacedSocket>>>,
    /// Who tunes that section, if somebody does.
    tuner: RefCell<Option<Rc<Tuner>>>,
}

impl Meter {
    /// Counters at zero that also count into `totals`.
    #[must_use]
    pub fn new(totals: Arc<Totals>) -> Self {
        Self { totals, down: OneWay::default(), up: OneWay::default(), course: Course::default() }
    }

    fn one_way(&self, direction: Direction) -> &OneWay {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Notes who sends the bytes of a direction from now on; nobody that shares, for `None`.
    pub fn is_sent_by(&self, direction: Direction, member: Option<Rc<PacedSocket>>) {
        if let Some(before) = self.one_way(direction).member.replace(member) {
            before.deactivate();
        }
    }

    /// Notes who tunes the section that sends the bytes of a direction from now on; nobody, for `None`.
    pub fn is_tuned_by(&self, direction: Direction, tuner: Option<Rc<Tuner>>) {
        self.one_way(direction).tuner.replace(tuner);
    }

    /// Whether somebody tunes the section that sends the bytes of a direction.
    #[must_use]
    pub fn is_tuned(&self, direction: Direction) -> bool {
        self.one_way(direction).tuner.borrow().is_some()
    }

    /// Who tunes the section that sends the bytes of a direction.
    #[must_use]
    pub fn tuner(&self, direction: Direction) -> Option<Rc<Tuner>> {
        self.one_way(direction).tuner.borrow().clone()
    }

    /// Notes how large the records of a direction may be now.
    pub fn makes_records_of(&self, direction: Direction, most: usize) {
        self.one_way(direction).tuner.borrow().iter().for_each(|tuner| tuner.set_max_record(most));
    }

    /// Bytes of either direction go through both sections: sent by one, acknowledged by the other.
    fn wake_tuners(&self) {
        for one_way in [&self.down, &self.up] {
            one_way.tuner.borrow().iter().for_each(Tuner::on_bytes_moved);
        }
    }

    /// Notes how many shares its sections have.
    pub fn weigh(&self, weight: u32) {
        for one_way in [&self.down, &self.up] {
            one_way.member.borrow().iter().for_each(|member| member.set_weight(weight));
        }
    }

    /// Notes bytes that were written from a buffer.
    pub fn copied(&self, direction: Direction, bytes: usize) {
        self.moves(direction, bytes as u64);
        match direction {
            Direction::Down => self.totals.down_copied.inc_by(bytes as u64),
            Direction::Up => self.totals.up_copied.inc_by(bytes as u64),
        };
    }

    /// Notes bytes that were written from a pipe.
    pub fn spliced(&self, direction: Direction, bytes: usize) {
        self.moves(direction, bytes as u64);
        let one_way = self.one_way(direction);
        one_way.spliced.set(one_way.spliced.get() + bytes as u64);
        match direction {
            Direction::Down => self.totals.down_spliced.inc_by(bytes as u64),
            Direction::Up => self.totals.up_spliced.inc_by(bytes as u64),
        };
    }

    fn moves(&self, direction: Direction, bytes: u64) {
        let one_way = self.one_way(direction);
        one_way.moved(bytes);
        one_way.waited(self.course.moved(direction, bytes));
        self.wake_tuners();
    }

    /// Notes that there are bytes and no room to send them, until what it returns is dropped.
    pub fn stalls(&self, direction: Direction) -> Stall<'_> {
        let since = Instant::now();
        let (one_way, total) = (self.one_way(direction), self.totals.stalled(direction));
        one_way.blocked_since.set(Some(since));
        Stall { one_way, total, since }
    }

    /// Notes how many bytes of a direction wait in this host now.
    pub fn queue(&self, direction: Direction, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.one_way(direction).queued.replace(bytes);
        if bytes != before {
            self.totals.queued(direction).inc_by(bytes - before);
        }
    }

    /// Whether bytes waited in this host when somebody looked last.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.down.queued.get() + self.up.queued.get() > 0
    }

    /// Bytes in one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.one_way(direction).bytes.get()
    }

    /// Time in which one direction had bytes and no room to send them, until now.
    #[must_use]
    pub fn blocked_for(&self, direction: Direction) -> Duration {
        self.one_way(direction).blocked_for()
    }

    /// Whether one direction has bytes and no room to send them.
    #[must_use]
    pub fn is_blocked(&self, direction: Direction) -> bool {
        self.one_way(direction).blocked_since.get().is_some()
    }

    /// What there is to say of one direction, until now.
    #[must_use]
    pub fn clocks(&self, direction: Direction) -> FlowCounters {
        let one_way = self.one_way(direction);
        FlowCounters {
            bytes: one_way.bytes.get(),
            moves: one_way.moves.get(),
            blocked: self.blocked_for(direction),
            waiting: one_way.waiting.get(),
            wait_squares: one_way.squares.get(),
        }
    }

    /// Notes that the path stands: from now on the server is waited for, if it is the one who speaks first.
    pub fn begins(&self) {
        self.course.begins();
    }

    /// When the first byte for the client moved.
    #[must_use]
    pub fn first_byte(&self) -> Option<Instant> {
        self.course.first_byte()
    }

    /// Time in which bytes moved, or were waited for and not by the client.
    #[must_use]
    pub fn flowing(&self) -> Duration {
        self.course.flowing()
    }

    /// The largest answer, once there is one.
    #[must_use]
    pub fn largest_answer(&self) -> Option<Answer> {
        self.course.largest()
    }

    /// Bytes in both directions.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.down.bytes.get() + self.up.bytes.get()
    }

    /// Of these, how many were spliced.
    #[must_use]
    pub fn moved_by_splice(&self) -> u64 {
        self.down.spliced.get() + self.up.spliced.get()
    }
}

/// What waits for the sections of a session is gone with them.
impl Drop for Meter {
    fn drop(&mut self) {
        self.queue(Direction::Down, 0);
        self.queue(Direction::Up, 0);
    }
}

impl OneWay {
    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.moves.set(self.moves.get() + 1);
        if let Some(member) = &*self.member.borrow() {
            member.record_bytes(bytes);
        }
    }

    fn blocked_for(&self) -> Duration {
        self.blocked.get() + self.blocked_since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Bytes were waited for, unless it was room. Some may move before there is enough of it.
    fn waited(&self, pause: Duration) {
        let blocked = self.blocked_for();
        let wait = pause.saturating_sub(blocked.saturating_sub(self.blocked_before.replace(blocked)));
        self.waiting.set(self.waiting.get() + wait);
        self.squares.set(self.squares.get() + wait.as_secs_f64().powi(2));
    }
}

/// A direction that has bytes and no room to send them.
#[must_use]
pub struct Stall<'a> {
    one_way: &'a OneWay,
    /// That of all sessions.
    total: &'a SecondsCounter,
    since: Instant,
}

impl Stall<'_> {
    /// There is room again; how long there was none.
    pub fn end(self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let span = self.since.elapsed();
        self.one_way.blocked_since.set(None);
        self.one_way.blocked.set(self.one_way.blocked.get() + span);
        self.total.inc_by(span.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
