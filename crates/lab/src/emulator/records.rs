//! The fate of every packet of a direction, for those who check the emulator.

use crate::emulator::Record;

/// Records come in pieces of this many: one long list would now and then be copied as a whole, which takes milliseconds.
const PIECE: usize = 1024;

/// Records by the numbers of their packets.
#[derive(Debug, Default)]
pub struct Records(Vec<Vec<Record>>);

impl Records {
    /// Adds the record of a packet whose number is above all others.
    pub fn push(&mut self, record: Record) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(record),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(record);
                self.0.push(piece);
            }
        }
    }

    /// The record of packet `number`.
    pub fn of(&mut self, number: u64) -> Option<&mut Record> {
        let first = |piece: &Vec<Record>| piece.first().is_some_and(|record| record.packet.number <= number);
        let piece = self.0.partition_point(first).checked_sub(1)?;
        let place = self.0[piece].binary_search_by_key(&number, |record| record.packet.number).ok()?;
        self.0[piece].get_mut(place)
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        self.0.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Fate;
    use crate::packet::{Ecn, Packet};

    #[test]
    fn every_record_is_found_by_its_number() {
        let mut records = Records::default();
        assert!(records.of(0).is_none());
        // Superpackets that are not cut leave gaps between numbers.
        let numbers: Vec<u64> = (0..3 * PIECE as u64).map(|index| 3 * index).collect();
        for number in &numbers {
            let packet = Packet { number: *number, at: 0, bytes: 1, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 };
            records.push(Record { packet, segment: (0, 1), fate: Fate::UnderWay });
        }
        assert!(numbers.iter().all(|number| records.of(*number).is_some_and(|found| found.packet.number == *number)));
        assert!(records.of(1).is_none() && records.of(9 * PIECE as u64).is_none());
        assert_eq!(records.all().len(), numbers.len());
    }
}
