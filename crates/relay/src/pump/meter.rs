//! Exact counters of a session, and of everything that goes through its listener.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::limiting::Direction;
use prometheus_client::metrics::counter::Counter;

use crate::share::Member;
use crate::tuning::Tuner;

/// Bytes through one listener, counted as they move.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Toward the client, copied.
    pub down_copied: Counter,
    /// Toward the client, spliced.
    pub down_spliced: Counter,
    /// Toward the server, copied.
    pub up_copied: Counter,
    /// Toward the server, spliced.
    pub up_spliced: Counter,
}

/// The counters of one session. A session never leaves its thread, so they are plain cells.
#[derive(Debug)]
pub struct Meter {
    totals: Arc<Totals>,
    down: OneWay,
    up: OneWay,
    course: Course,
}

/// When bytes have moved, and who was waited for.
#[derive(Debug, Default)]
struct Course {
    last: Cell<Option<(Direction, Instant)>>,
    flowing: Cell<Duration>,
    answer: Cell<Option<Duration>>,
}

/// A longer pause is somebody's who has nothing to say.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

impl Course {
    /// Bytes have moved. Between an answer and the next question the client is waited for; all other time is the path's, or
    /// the server's.
    fn moved(&self, direction: Direction) {
        let now = Instant::now();
        let Some((before, at)) = self.last.replace(Some((direction, now))) else { return };
        let pause = now.saturating_duration_since(at);
        if direction == Direction::Down && self.answer.get().is_none() {
            self.answer.set(Some(pause));
        }
        if direction == Direction::Down || before == Direction::Up {
            self.flowing.set(self.flowing.get() + pause.min(LONGEST_PAUSE));
        }
    }
}

#[derive(Debug, Default)]
struct OneWay {
    bytes: Cell<u64>,
    spliced: Cell<u64>,
    blocked: Cell<Duration>,
    /// The section that sends these bytes, where it shares an interface with others.
    member: RefCell<Option<Rc<Member>>>,
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
    pub fn is_sent_by(&self, direction: Direction, member: Option<Rc<Member>>) {
        if let Some(before) = self.one_way(direction).member.replace(member) {
            before.leave();
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
        self.one_way(direction).tuner.borrow().iter().for_each(|tuner| tuner.makes_records_of(most));
    }

    /// Bytes of either direction go through both sections: sent by one, acknowledged by the other.
    fn wake_tuners(&self) {
        for one_way in [&self.down, &self.up] {
            one_way.tuner.borrow().iter().for_each(Tuner::moved);
        }
    }

    /// Notes how many shares its sections have.
    pub fn weigh(&self, weight: u32) {
        for one_way in [&self.down, &self.up] {
            one_way.member.borrow().iter().for_each(|member| member.weigh(weight));
        }
    }

    /// Notes bytes that were written from a buffer.
    pub fn copied(&self, direction: Direction, bytes: usize) {
        self.one_way(direction).moved(bytes as u64);
        self.course.moved(direction);
        self.wake_tuners();
        match direction {
            Direction::Down => self.totals.down_copied.inc_by(bytes as u64),
            Direction::Up => self.totals.up_copied.inc_by(bytes as u64),
        };
    }

    /// Notes bytes that were written from a pipe.
    pub fn spliced(&self, direction: Direction, bytes: usize) {
        let one_way = self.one_way(direction);
        one_way.moved(bytes as u64);
        self.course.moved(direction);
        self.wake_tuners();
        one_way.spliced.set(one_way.spliced.get() + bytes as u64);
        match direction {
            Direction::Down => self.totals.down_spliced.inc_by(bytes as u64),
            Direction::Up => self.totals.up_spliced.inc_by(bytes as u64),
        };
    }

    /// Notes time in which there were bytes and no room to send them.
    pub fn blocked(&self, direction: Direction, span: Duration) {
        let one_way = self.one_way(direction);
        one_way.blocked.set(one_way.blocked.get() + span);
    }

    /// Bytes in one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.one_way(direction).bytes.get()
    }

    /// Time blocked in one direction.
    #[must_use]
    pub fn blocked_for(&self, direction: Direction) -> Duration {
        self.one_way(direction).blocked.get()
    }

    /// Notes that the path stands: from now on the server is waited for, if it is the one who speaks first.
    pub fn begins(&self) {
        self.course.last.set(Some((Direction::Up, Instant::now())));
        self.course.answer.set(None);
    }

    /// Time in which bytes moved, or were waited for and not by the client.
    #[must_use]
    pub fn flowing(&self) -> Duration {
        self.course.flowing.get()
    }

    /// From the last bytes toward the server to the first ones of the answer, once there are any.
    #[must_use]
    pub fn answer(&self) -> Option<Duration> {
        self.course.answer.get()
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

impl OneWay {
    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        if let Some(member) = &*self.member.borrow() {
            member.moved(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_thinks_is_not_what_the_path_takes() {
        let course = Course::default();
        let ago = |seconds| Some((Direction::Up, Instant::now() - Duration::from_secs(seconds)));
        course.last.set(ago(2));
        course.moved(Direction::Down);
        let answer = course.answer.get().unwrap();
        assert!(answer >= Duration::from_secs(2) && course.flowing.get() == answer);
        course.last.set(Some((Direction::Down, Instant::now() - Duration::from_secs(2))));
        course.moved(Direction::Up);
        assert_eq!(course.flowing.get(), answer, "the client's own time");
        course.last.set(ago(60));
        course.moved(Direction::Down);
        assert_eq!(course.flowing.get(), answer + LONGEST_PAUSE, "nobody has anything to say for a minute");
        assert_eq!(course.answer.get(), Some(answer), "the first one");
    }
}
