//! The marks of packets (`SO_MARK`, socket(7)), by which the rules, the gate and the relay's sockets classify packets.
//! They use the upper 16 of the 32 bits; the lower 16 bits are left to other programs.

/// The bits that ekiden uses.
pub const MASK: u32 = 0xffff_0000;

/// The marks of one daemon on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    instance: u8,
}

impl Marks {
    /// Largest number of transparent listeners of one daemon.
    pub const MOST_LISTENERS: usize = 16;

    /// Mask of the bits that [`Marks::caught`] has in common for all listeners.
    pub const CAUGHT: u32 = 0xfff0_0000;

    /// Returns the marks of daemon number `instance`, 1 to 15.
    #[must_use]
    pub const fn new(instance: u8) -> Self {
        Self { instance }
    }

    /// Returns the mark of a packet that is delivered to this host.
    #[must_use]
    pub const fn local(self) -> u32 {
        self.mark(0x01)
    }

    /// Returns the mark of a packet of the relay's sockets.
    #[must_use]
    pub const fn own(self) -> u32 {
        self.mark(0x02)
    }

    /// Returns the mark of a packet of a relay socket that is bound to another host's address.
    #[must_use]
    pub const fn kept(self) -> u32 {
        self.mark(0x06)
    }

    /// Returns the mark of a first packet that bypasses the relay.
    #[must_use]
    pub const fn pass(self) -> u32 {
        self.mark(0x03)
    }

    /// Returns the mark of a first packet to be answered by a reset.
    #[must_use]
    pub const fn refused(self) -> u32 {
        self.mark(0x04)
    }

    /// Returns the mark of a first packet to be answered by "host unreachable".
    #[must_use]
    pub const fn unreachable(self) -> u32 {
        self.mark(0x05)
    }

    /// Returns the mark of a first packet for transparent listener number `listener`, counted from 0.
    #[must_use]
    pub const fn caught(self, listener: usize) -> u32 {
        self.mark(0x10 + (listener % Self::MOST_LISTENERS) as u8)
    }

    /// Returns the mark of a first packet that the gate admits to listener number `listener`.
    #[must_use]
    pub const fn let_in(self, listener: usize) -> u32 {
        self.mark(0x20 + (listener % Self::MOST_LISTENERS) as u8)
    }

    /// Returns the number of the queue in which first packets wait for the gate of that listener.
    #[must_use]
    pub const fn queue(self, listener: usize) -> u16 {
        self.base() + (listener % Self::MOST_LISTENERS) as u16
    }

    /// Returns the routing table that delivers packets to this host.
    #[must_use]
    pub const fn table(self) -> u16 {
        57344 + self.instance as u16
    }

    /// Returns the first of the three preferences of the routing rules for that table. All precede `main` (32766),
    /// which may have a route for every packet.
    #[must_use]
    pub const fn preference(self) -> u16 {
        180 + 3 * self.instance as u16
    }

    /// Returns the number of the daemon.
    #[must_use]
    pub const fn instance(self) -> u8 {
        self.instance
    }

    const fn base(self) -> u16 {
        57344 + 16 * self.instance as u16
    }

    const fn mark(self, state: u8) -> u32 {
        0xe000_0000 | (self.instance as u32) << 24 | (state as u32) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn marks_queues_and_preferences_are_distinct() {
        let (mut marks, mut queues, mut preferences) = (Vec::new(), Vec::new(), Vec::new());
        for marks_of in (1..=15).map(Marks::new) {
            marks.extend([
                marks_of.local(),
                marks_of.own(),
                marks_of.kept(),
                marks_of.pass(),
                marks_of.refused(),
                marks_of.unreachable(),
            ]);
            marks.extend((0..Marks::MOST_LISTENERS).map(|listener| marks_of.caught(listener)));
            marks.extend((0..Marks::MOST_LISTENERS).map(|listener| marks_of.let_in(listener)));
            preferences.extend((0..3).map(|rule| marks_of.preference() + rule));
            queues.extend((0..Marks::MOST_LISTENERS).map(|listener| marks_of.queue(listener)));
        }
        assert!(marks.iter().all(|mark| mark & !MASK == 0));
        let distinct = (BTreeSet::from_iter(&marks).len(), BTreeSet::from_iter(&queues).len());
        assert_eq!(distinct, (marks.len(), queues.len()));
        assert_eq!(BTreeSet::from_iter(&preferences).len(), preferences.len());
        assert!(preferences.iter().all(|preference| (1..32766).contains(preference)));
    }
}
