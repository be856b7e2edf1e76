//! The decision: whose turn was it to be waited for?

use super::account::Standing;
use super::figures::Percent;
use super::seen::{Flow, Section, Thread, ratio};
use super::{Bottleneck, Culprit, Limit, receiving, sending};
use crate::direction::Direction;

/// Less than this says nothing, in bytes, unless something waited to be sent.
const ENOUGH: f64 = 64.0 * 1024.0;

/// From this share of the time on, a thread that wants a processor all that time is one that has too little of it.
const PRESSED: f64 = 0.85;

/// Pieces of at least so many bytes have gathered while nobody took them.
const GATHERED: f64 = 32.0 * 1024.0;

/// All there is to judge one direction of bytes by.
pub(super) struct Case<'a> {
    pub(super) direction: Direction,
    pub(super) thread: &'a Thread,
    pub(super) flow: &'a Flow,
    pub(super) sending: (&'a Section, &'a Standing),
    pub(super) receiving: (&'a Section, &'a Standing),
}

impl Case<'_> {
    /// Time in which bytes moved or were waited for, or room was, in seconds.
    pub(super) fn active(&self) -> f64 {
        self.flow.blocked + self.flow.waiting
    }

    /// Bytes a second of that time.
    pub(super) fn rate(&self) -> f64 {
        ratio(self.flow.bytes, self.active())
    }

    /// Whether most of the time there was something to send and no room, and that was not because nobody looked.
    fn waits_for_room(&self) -> bool {
        let unseen = if self.is_pressed() { self.thread.queued } else { 0.0 };
        (self.flow.blocked - unseen) * 2.0 > self.active() || self.is_held_by_kernel()
    }

    /// Whether the kernel knows a reason why it does not send. That is so whether we run or not.
    fn is_held_by_kernel(&self) -> bool {
        let section = self.sending.0;
        (section.rwnd_limited + section.sndbuf_limited) * 2.0 > self.active()
    }

    fn is_pressed(&self) -> bool {
        self.thread.demand() >= PRESSED
    }

    /// Whether bytes have come and wait for us, rather than we for them.
    fn has_gathered(&self) -> bool {
        let (section, _) = self.receiving;
        section.mean(section.unread) >= 0.5 || ratio(self.flow.bytes, self.flow.moves) >= GATHERED
    }
}

/// What held it back; none when too little moved to tell.
pub(super) fn limit(case: &Case<'_>) -> Option<Limit> {
    let waited = case.flow.blocked * 2.0 > case.active();
    if case.active() <= 0.0 || case.flow.bytes < ENOUGH && !waited {
        return None;
    }
    Some(if case.waits_for_room() {
        told(Culprit::from(case.direction), sending::judge(case))
    } else if case.is_pressed() && case.has_gathered() {
        told(Culprit::Relay, (Bottleneck::RelayCpu, pressed(case.thread)))
    } else {
        told(Culprit::from(case.direction.other()), receiving::judge(case))
    })
}

fn told(section: Culprit, (by, why): (Bottleneck, String)) -> Limit {
    Limit { section, by, why }
}

fn pressed(thread: &Thread) -> String {
    let (wanted, had) = (Percent(thread.demand()), Percent(ratio(thread.ran, thread.span)));
    format!("bytes waited for this relay: its thread wanted a processor {wanted} of the time, and had one {had}")
}

/// The program at the other end of a section, in words.
pub(super) const fn program(section: Direction) -> &'static str {
    match section {
        Direction::Down => "the client",
        Direction::Up => "the server",
    }
}
