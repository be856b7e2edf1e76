//! A short queue of packets for a lane, bounded in size and time: a late packet is useless, and would delay the packets
//! behind it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most packets that wait.
const MAX_PACKETS: usize = 256;

/// Most bytes of packets that wait: the longest packet that fits into a record, and more.
const MAX_BYTES: usize = 64 * 1024;

/// How long a packet may wait.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The packets in order.
#[derive(Debug, Default)]
pub struct LaneQueue {
    packets: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl LaneQueue {
    /// Queues a packet, unless the queue is full.
    pub fn push(&mut self, packet: &[u8], now: Instant) -> bool {
        let has_room = self.packets.len() < MAX_PACKETS && self.bytes + packet.len() <= MAX_BYTES;
        if has_room {
            self.packets.push_back((now, packet.to_vec()));
            self.bytes += packet.len();
        }
        has_room
    }

    /// Takes the first packet, if it and the packets taken before have at most `room` bytes.
    pub fn pop(&mut self, room: usize) -> Option<Vec<u8>> {
        let fits = self.packets.front().is_some_and(|(_, packet)| packet.len() <= room);
        let (_, packet) = if fits { self.packets.pop_front() } else { None }?;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// Drops packets that have waited too long. Returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        let is_late = |(since, _): &(Instant, Vec<u8>)| now.saturating_duration_since(*since) > MAX_WAIT;
        let late = self.packets.iter().take_while(|waiting| is_late(waiting)).count();
        self.bytes -= self.packets.drain(..late).map(|(_, packet)| packet.len()).sum::<usize>();
        late
    }

    /// Number of packets in the queue.
    pub fn len(&self) -> usize {
        self.packets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

    #[test]
    fn packets_leave_in_order_and_as_they_came() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert!(queue.push(b"first", now) && queue.push(b"", now) && queue.push(b"last", now));
        assert_eq!(std::iter::from_fn(|| queue.pop(ALL)).collect::<Vec<_>>(), [b"first".as_slice(), b"", b"last"]);
        assert_eq!((queue.len(), queue.bytes), (0, 0));
    }

    #[test]
    fn it_is_full_by_number_and_by_bytes() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert_eq!((0..300).filter(|_| queue.push(b"small", now)).count(), MAX_PACKETS);
        let mut queue = LaneQueue::default();
        assert_eq!((0..300).filter(|_| queue.push(&[0; 1400], now)).count(), MAX_BYTES / 1400);
        assert!(queue.pop(ALL).is_some() && queue.push(&[0; 1400], now), "there is room again");
        let mut queue = LaneQueue::default();
        assert!(queue.push(&[0; 65_535], now), "the longest there is");
        assert!(!queue.push(&[0; 2], now) && queue.push(&[0; 1], now));
        assert_eq!(queue.pop(ALL).map(|packet| packet.len()), Some(65_535));
    }

    #[test]
    fn who_waits_too_long_is_dropped() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        let step = MAX_WAIT / 2;
        assert!(queue.push(b"a", now) && queue.push(b"b", now + step) && queue.push(b"c", now + 2 * step));
        assert_eq!(queue.expire(now + MAX_WAIT), 0, "just in time");
        assert_eq!(queue.expire(now + MAX_WAIT + step), 1);
        assert_eq!(queue.pop(ALL).as_deref(), Some(b"b".as_slice()));
        assert_eq!(queue.expire(now + 9 * MAX_WAIT), 1);
        assert_eq!((queue.pop(ALL), queue.bytes), (None, 0));
    }

    #[test]
    fn what_has_no_room_stays() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert!(queue.push(&[1; 100], now));
        assert_eq!(queue.pop(99), None);
        assert_eq!(queue.pop(100), Some(vec![1; 100]));
    }
}
