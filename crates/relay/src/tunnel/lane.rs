//! The part of a lane that all threads share: its packet queue and counters.
//!
//! The connection of the lane belongs to one thread, where [`LaneTransport`](super::transport::LaneTransport) drives
//! it. Any thread may queue a packet: the reader of a device queues answers for lanes of other threads. The queue is
//! bounded in size and time, because a late packet is useless and would delay the packets behind it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use tokio::sync::Notify;

use super::addresses::AddressTable;
use super::filter::judge;
use super::flows::FlowTable;
use super::sources::LaneRemote;
use crate::config::access::AccessPolicy;
use crate::events::metrics::tunnels::{DropReason, PacketCounters};
use crate::ingress::services::Services;
use crate::status::LaneView;

/// One end of a lane.
#[derive(Debug)]
pub struct Lane {
    /// The relay at the other end.
    remote: LaneRemote,
    /// The direction in which this end sends: up if this relay has dialled.
    send_direction: Direction,
    counters: Arc<PacketCounters>,
    queue: Mutex<LaneQueue>,
    wake: Notify,
    established: AtomicBool,
    retired: AtomicBool,
    started_at: Instant,
    sent: PacketTally,
    received: PacketTally,
    /// Dropped packets by reason, in the order of [`DropReason::ALL`].
    dropped: [AtomicU64; DropReason::ALL.len()],
}

#[derive(Debug, Default)]
struct PacketTally {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl PacketTally {
    fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl Lane {
    /// Returns a lane that has carried no packet.
    pub fn new(counters: &Arc<PacketCounters>, remote: LaneRemote, direction: Direction) -> Arc<Self> {
        Arc::new(Self {
            remote,
            send_direction: direction,
            counters: Arc::clone(counters),
            queue: Mutex::default(),
            wake: Notify::new(),
            established: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            started_at: Instant::now(),
            sent: PacketTally::default(),
            received: PacketTally::default(),
            dropped: Default::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, LaneQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the relay at the other end.
    pub fn remote(&self) -> &LaneRemote {
        &self.remote
    }

    /// Returns the direction in which this end sends.
    pub fn send_direction(&self) -> Direction {
        self.send_direction
    }

    /// Returns the direction of received packets.
    pub fn receive_direction(&self) -> Direction {
        self.send_direction.opposite()
    }

    /// Queues a packet. Never waits: a packet that does not fit, and packets that have waited too long, are dropped.
    /// Returns whether the packet is queued.
    pub fn push(&self, packet: &[u8]) -> bool {
        let now = Instant::now();
        let (late, is_queued) = {
            let mut queue = self.queue();
            (queue.expire(now), queue.push(packet, now))
        };
        self.record_dropped(DropReason::Late, late);
        self.record_dropped(DropReason::Full, usize::from(!is_queued));
        self.wake.notify_one();
        is_queued
    }

    /// Waits until the queue has a packet or the lane is retired.
    pub async fn wait_ready(&self) {
        while self.queue().len() == 0 && !self.is_retired() {
            self.wake.notified().await;
        }
    }

    /// Removes and returns the first packet that is not late, if it has at most `room` bytes.
    pub fn pop(&self, room: usize) -> Option<Vec<u8>> {
        let (late, packet) = {
            let mut queue = self.queue();
            (queue.expire(Instant::now()), queue.pop(room))
        };
        self.record_dropped(DropReason::Late, late);
        packet
    }

    /// Counts a packet sent to the other end.
    pub fn record_sent(&self, bytes: usize) {
        self.sent.count(bytes);
        self.counters.record_carried(self.send_direction, bytes);
    }

    /// Counts a packet received from the other end.
    pub fn record_received(&self, bytes: usize) {
        self.received.count(bytes);
        self.counters.record_carried(self.receive_direction(), bytes);
    }

    /// Delivers a received packet to this host, and records its source for answers. `rules` are those for the relay at
    /// the other end.
    pub fn deliver(self: &Arc<Self>, packet: &[u8], services: &Services, rules: &[AccessPolicy<'_>]) {
        let result = judge(packet, rules, Some(&services.lanes.flows)).and_then(|head| {
            let learn = || services.lanes.addresses.record(head.source, self, Instant::now());
            services.tunnels.deliver(packet, &head, &self.remote, learn)
        });
        result.unwrap_or_else(|reason| self.record_dropped(reason, 1));
    }

    /// Counts packets that were dropped for `reason`.
    pub fn record_dropped(&self, reason: DropReason, packets: usize) {
        if packets > 0 {
            self.dropped[reason as usize].fetch_add(packets as u64, Ordering::Relaxed);
            self.counters.record_dropped(reason, packets);
        }
    }

    /// Marks the lane as established: both sides have agreed.
    pub fn mark_established(&self) {
        self.established.store(true, Ordering::Relaxed);
    }

    /// Returns whether the lane is established.
    pub fn is_established(&self) -> bool {
        self.established.load(Ordering::Relaxed)
    }

    /// Returns the number of packets dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().map(|packets| packets.load(Ordering::Relaxed)).sum()
    }

    /// Ends the lane after its queued packets are sent.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns whether the lane is about to end.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Returns the view of the lane for `ekiden status`.
    pub fn view(&self, listener: &str) -> LaneView {
        let ((sent, bytes_sent), (received, bytes_received)) = (self.sent.read(), self.received.read());
        let dropped =
            DropReason::ALL.map(|reason| (reason.as_str(), self.dropped[reason as usize].load(Ordering::Relaxed)));
        let dropped_for: BTreeMap<_, _> = dropped.into_iter().filter(|(_, packets)| *packets > 0).collect();
        LaneView {
            listener: listener.to_owned(),
            by: self.remote.name().to_owned(),
            dialled: self.send_direction == Direction::Up,
            stands: self.established.load(Ordering::Relaxed),
            seconds: self.started_at.elapsed().as_secs_f64(),
            waiting: self.queue().len(),
            packets_sent: sent,
            packets_received: received,
            bytes_sent,
            bytes_received,
            packets_dropped: dropped_for.values().sum(),
            dropped_for,
        }
    }
}

/// Counts the packets that are still queued as dropped.
impl Drop for Lane {
    fn drop(&mut self) {
        let queued = self.queue().len();
        self.record_dropped(DropReason::NoLane, queued);
    }
}

/// The lanes of all threads.
#[derive(Debug, Default)]
pub struct LaneRegistry {
    lanes: Mutex<Vec<(Box<str>, Weak<Lane>)>>,
    /// The lane in which each address was last seen.
    pub(super) addresses: AddressTable,
    /// The flows of the packets that the tunnels of this host have sent.
    pub(super) flows: FlowTable,
}

impl LaneRegistry {
    /// Creates and registers a lane of a listener.
    pub(super) fn register(
        &self,
        listener: &str,
        counters: &Arc<PacketCounters>,
        remote: LaneRemote,
        direction: Direction,
    ) -> Arc<Lane> {
        let lane = Lane::new(counters, remote, direction);
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|(_, lane)| lane.strong_count() > 0);
        lanes.push((listener.into(), Arc::downgrade(&lane)));
        lane
    }

    /// Returns the views of the lanes for `ekiden status`.
    #[must_use]
    pub fn views(&self) -> Vec<LaneView> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().filter_map(|(listener, lane)| Some(lane.upgrade()?.view(listener))).collect()
    }
}

/// Largest number of queued packets.
const MAX_PACKETS: usize = 256;

/// Largest number of queued bytes; more than the longest packet that fits into a record.
const MAX_BYTES: usize = 64 * 1024;

/// Longest queueing time of a packet.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The packets in order.
#[derive(Debug, Default)]
pub struct LaneQueue {
    packets: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl LaneQueue {
    /// Queues a packet, unless the queue is full. Returns whether the packet is queued.
    pub fn push(&mut self, packet: &[u8], now: Instant) -> bool {
        let has_room = self.packets.len() < MAX_PACKETS && self.bytes + packet.len() <= MAX_BYTES;
        if has_room {
            self.packets.push_back((now, packet.to_vec()));
            self.bytes += packet.len();
        }
        has_room
    }

    /// Removes and returns the first packet, if it has at most `room` bytes.
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

    /// Returns the number of packets in the queue.
    pub fn len(&self) -> usize {
        self.packets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

    #[test]
    fn packets_are_dequeued_in_order_and_unchanged() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert!(queue.push(b"first", now) && queue.push(b"", now) && queue.push(b"last", now));
        assert_eq!(std::iter::from_fn(|| queue.pop(ALL)).collect::<Vec<_>>(), [b"first".as_slice(), b"", b"last"]);
        assert_eq!((queue.len(), queue.bytes), (0, 0));
    }

    #[test]
    fn queue_is_bounded_by_packets_and_by_bytes() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert_eq!((0..300).filter(|_| queue.push(b"small", now)).count(), MAX_PACKETS);
        let mut queue = LaneQueue::default();
        assert_eq!((0..300).filter(|_| queue.push(&[0; 1400], now)).count(), MAX_BYTES / 1400);
        assert!(queue.pop(ALL).is_some() && queue.push(&[0; 1400], now), "there is room again");
        let mut queue = LaneQueue::default();
        assert!(queue.push(&[0; 65_535], now), "the longest packet");
        assert!(!queue.push(&[0; 2], now) && queue.push(&[0; 1], now));
        assert_eq!(queue.pop(ALL).map(|packet| packet.len()), Some(65_535));
    }

    #[test]
    fn expired_packets_are_dropped() {
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
    fn packet_larger_than_the_room_stays_queued() {
        let (mut queue, now) = (LaneQueue::default(), Instant::now());
        assert!(queue.push(&[1; 100], now));
        assert_eq!(queue.pop(99), None);
        assert_eq!(queue.pop(100), Some(vec![1; 100]));
    }
}
