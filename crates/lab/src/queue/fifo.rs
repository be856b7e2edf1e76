//! First in, first out, and how much is in it: what every queue here is made of.

use std::collections::VecDeque;

use crate::packet::Packet;
use crate::queue::Backlog;

/// Packets in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    packets: VecDeque<Packet>,
    backlog: Backlog,
}

impl Fifo {
    /// Puts a packet at the tail.
    pub(super) fn push(&mut self, packet: Packet) {
        self.backlog.add(&packet);
        self.packets.push_back(packet);
    }

    /// Takes the packet at the head.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// What is in it.
    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }
}
