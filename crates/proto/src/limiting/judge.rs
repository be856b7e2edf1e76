//! The diagnosis of one direction: which side was waited for.

use super::account::SectionState;
use super::figures::Percent;
use super::seen::{Flow, Section, Thread, ratio};
use super::{Bottleneck, Diagnosis, LimitingSection, receiving, sending};
use crate::direction::Direction;

/// Less than this says nothing, in bytes, unless something waited to be sent.
const MIN_BYTES: f64 = 64.0 * 1024.0;

/// A thread that runs or waits for a processor for this share of the time lacks processor time.
const CPU_STARVED: f64 = 0.85;

/// Unread bytes that count as a backlog.
const BACKLOG_BYTES: f64 = 32.0 * 1024.0;

/// The evidence for one direction.
pub(super) struct Evidence<'a> {
    pub(super) direction: Direction,
    pub(super) thread: &'a Thread,
    pub(super) flow: &'a Flow,
    pub(super) sending: (&'a Section, &'a SectionState),
    pub(super) receiving: (&'a Section, &'a SectionState),
}

impl Evidence<'_> {
    /// Time in which bytes moved or were waited for, or room was, in seconds.
    pub(super) fn active(&self) -> f64 {
        self.flow.blocked + self.flow.waiting
    }

    /// Bytes a second of that time.
    pub(super) fn active_rate(&self) -> f64 {
        ratio(self.flow.bytes, self.active())
    }

    /// Whether bytes waited for room most of the time, although the receiving side was read.
    fn is_send_blocked(&self) -> bool {
        let unseen = if self.is_cpu_starved() { self.thread.queued } else { 0.0 };
        (self.flow.blocked - unseen) * 2.0 > self.active() || self.is_kernel_limited()
    }

    /// Whether the kernel knows a reason for not sending, which holds whether the relay's thread runs or not.
    fn is_kernel_limited(&self) -> bool {
        let section = self.sending.0;
        (section.rwnd_limited + section.sndbuf_limited) * 2.0 > self.active()
    }

    fn is_cpu_starved(&self) -> bool {
        self.thread.cpu_demand() >= CPU_STARVED
    }

    /// Whether bytes have come and wait for us, rather than we for them.
    fn has_backlog(&self) -> bool {
        let (section, _) = self.receiving;
        section.mean(section.unread) >= 0.5 || ratio(self.flow.bytes, self.flow.moves) >= BACKLOG_BYTES
    }
}

/// The limit; `None` if too few bytes moved.
pub(super) fn diagnose(case: &Evidence<'_>) -> Option<Diagnosis> {
    let waited = case.flow.blocked * 2.0 > case.active();
    if case.active() <= 0.0 || case.flow.bytes < MIN_BYTES && !waited {
        return None;
    }
    Some(if case.is_send_blocked() {
        diagnosis(LimitingSection::from(case.direction), sending::diagnose_sending(case))
    } else if case.is_cpu_starved() && case.has_backlog() {
        diagnosis(LimitingSection::Relay, (Bottleneck::RelayCpu, describe_cpu_starvation(case.thread)))
    } else {
        diagnosis(LimitingSection::from(case.direction.opposite()), receiving::diagnose_receiving(case))
    })
}

fn diagnosis(section: LimitingSection, (by, why): (Bottleneck, String)) -> Diagnosis {
    Diagnosis { section, by, why }
}

fn describe_cpu_starvation(thread: &Thread) -> String {
    let (wanted, had) = (Percent(thread.cpu_demand()), Percent(ratio(thread.ran, thread.span)));
    format!("bytes waited for this relay: its thread wanted a processor {wanted} of the time, and had one {had}")
}

/// The program at the other end of a section, in words.
pub(super) const fn peer_name(section: Direction) -> &'static str {
    match section {
        Direction::Down => "the client",
        Direction::Up => "the server",
    }
}
