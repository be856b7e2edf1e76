//! The fate of every packet of a direction, for those who check the emulator, and for logs of packets.

use crate::emulator::Record;

/// Records come in pieces of this many: one long list would now and then be copied as a whole, which takes milliseconds.
const PIECE: usize = 1024;

/// Of which packets the fate is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Recording {
    /// Of none: it costs nothing.
    #[default]
    Nothing,
    /// Of all on all links, for as long as there is memory.
    Everything,
    /// Of those of these links, in each direction of the first [`LOGGED`].
    Links(Vec<String>),
}

/// A log of packets is no longer than this in each direction: some 25 MB.
pub const LOGGED: usize = 200_000;

impl Recording {
    /// How many packets it keeps of each direction of a link.
    pub(super) fn of(&self, link: &str) -> usize {
        match self {
            Self::Everything => usize::MAX,
            Self::Links(links) if links.iter().any(|name| name == link) => LOGGED,
            Self::Nothing | Self::Links(_) => 0,
        }
    }
}

/// Records by the numbers of their packets.
#[derive(Debug)]
pub struct Records {
    pieces: Vec<Vec<Record>>,
    /// For how many more there is room.
    room: usize,
}

impl Records {
    /// For `most` packets; none at all for nothing.
    #[must_use]
    pub fn new(most: usize) -> Option<Self> {
        (most > 0).then_some(Self { pieces: Vec::new(), room: most })
    }

    /// Adds the record of a packet whose number is above all others, if there is room.
    pub fn push(&mut self, record: Record) {
        let Some(room) = self.room.checked_sub(1) else { return };
        self.room = room;
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(record),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(record);
                self.pieces.push(piece);
            }
        }
    }

    /// The record of packet `number`.
    pub fn of(&mut self, number: u64) -> Option<&mut Record> {
        let first = |piece: &Vec<Record>| piece.first().is_some_and(|record| record.packet.number <= number);
        let piece = self.pieces.partition_point(first).checked_sub(1)?;
        let place = self.pieces[piece].binary_search_by_key(&number, |record| record.packet.number).ok()?;
        self.pieces[piece].get_mut(place)
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        self.pieces.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Fate;
    use crate::packet::{Ecn, Packet};

    fn record(number: u64) -> Record {
        let packet = Packet { number, at: 0, bytes: 1, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 };
        Record { packet, segment: (0, 1), tcp: None, fate: Fate::UnderWay }
    }

    #[test]
    fn a_log_is_no_longer_than_it_may_be() {
        assert!(Records::new(0).is_none(), "who records nothing has nothing to look at for each packet");
        let mut records = Records::new(3).unwrap();
        (0..9).for_each(|number| records.push(record(number)));
        assert_eq!(records.all().iter().map(|record| record.packet.number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(records.of(2).is_some() && records.of(3).is_none());
    }

    #[test]
    fn every_record_is_found_by_its_number() {
        let mut records = Records::new(usize::MAX).unwrap();
        assert!(records.of(0).is_none());
        // Superpackets that are not cut leave gaps between numbers.
        let numbers: Vec<u64> = (0..3 * PIECE as u64).map(|index| 3 * index).collect();
        for number in &numbers {
            records.push(record(*number));
        }
        assert!(numbers.iter().all(|number| records.of(*number).is_some_and(|found| found.packet.number == *number)));
        assert!(records.of(1).is_none() && records.of(9 * PIECE as u64).is_none());
        assert_eq!(records.all().len(), numbers.len());
    }
}
