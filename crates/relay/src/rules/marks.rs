//! The marks of packets (`SO_MARK`, socket(7)), by which the rules, the gate and the relay's sockets classify packets.
//! They use the upper half of the 32 bits, and leave the lower one to other programs.

/// The bits that are ours.
pub const MASK: u32 = 0xffff_0000;

/// The marks of one of the daemons on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    instance: u8,
}

impl Marks {
    /// Most transparent listeners of one daemon.
    pub const MOST_LISTENERS: usize = 16;

    /// The bits that [`Marks::caught`] has in common for all listeners, besides the lower ones.
    pub const CAUGHT: u32 = 0xfff0_0000;

    /// The marks of daemon number `instance`, 1 to 15.
    #[must_use]
    pub const fn new(instance: u8) -> Self {
        Self { instance }
    }

    /// A packet that is routed to us.
    #[must_use]
    pub const fn local(self) -> u32 {
        self.mark(0x01)
    }

    /// A packet of one of our own sockets.
    #[must_use]
    pub const fn own(self) -> u32 {
        self.mark(0x02)
    }

    /// A packet of a relay socket that is bound to another host's address.
    #[must_use]
    pub const fn kept(self) -> u32 {
        self.mark(0x06)
    }

    /// A first packet that goes on without us.
    #[must_use]
    pub const fn pass(self) -> u32 {
        self.mark(0x03)
    }

    /// A first packet to be answered by a reset.
    #[must_use]
    pub const fn refused(self) -> u32 {
        self.mark(0x04)
    }

    /// A first packet to be answered by "host unreachable".
    #[must_use]
    pub const fn unreachable(self) -> u32 {
        self.mark(0x05)
    }

    /// A first packet that is for transparent listener number `listener`, counted from 0.
    #[must_use]
    pub const fn caught(self, listener: usize) -> u32 {
        self.mark(0x10 + (listener % Self::MOST_LISTENERS) as u8)
    }

    /// A first packet that the gate lets in to listener number `listener`.
    #[must_use]
    pub const fn let_in(self, listener: usize) -> u32 {
        self.mark(0x20 + (listener % Self::MOST_LISTENERS) as u8)
    }

    /// The queue in which first packets wait for the gate of that listener.
    #[must_use]
    pub const fn queue(self, listener: usize) -> u16 {
        self.base() + (listener % Self::MOST_LISTENERS) as u16
    }

    /// The routing table that leads to us.
    #[must_use]
    pub const fn table(self) -> u16 {
        57344 + self.instance as u16
    }

    /// The first of the three preferences of the rules that lead there: all before `main` (32766), which has a way for
    /// everything.
    #[must_use]
    pub const fn preference(self) -> u16 {
        180 + 3 * self.instance as u16
    }

    /// Which of the daemons it is.
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
