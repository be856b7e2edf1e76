//! A lane as the other threads know it: where to leave packets for it, and what has crossed it so far.
//!
//! The connection under it belongs to one thread, and [`Carrier`](super::carrier::Carrier) drives it there. A packet may
//! come from any: whoever reads the device has no other way to the lane of an answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ekiden_proto::direction::Direction;
use tokio::sync::Notify;

use super::crossing::Crossing;
use super::judge::{Dropped, judge};
use super::queue::Queue;
use super::sources::Remote;
use crate::config::access::Rules;
use crate::shared::Shared;
use crate::status::LaneView;

/// One end of a lane.
#[derive(Debug)]
pub struct Lane {
    /// The relay at the other end.
    remote: Remote,
    /// Which way we send: up where we have dialled.
    sends: Direction,
    crossing: Arc<Crossing>,
    queue: Mutex<Queue>,
    wake: Notify,
    stands: AtomicBool,
    retired: AtomicBool,
    began: Instant,
    sent: Tally,
    received: Tally,
    /// In the order of [`Dropped::ALL`].
    dropped: [AtomicU64; Dropped::ALL.len()],
}

#[derive(Debug, Default)]
struct Tally {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl Lane {
    /// A lane that has carried no packet.
    pub fn new(crossing: &Arc<Crossing>, remote: Remote, sends: Direction) -> Arc<Self> {
        Arc::new(Self {
            remote,
            sends,
            crossing: Arc::clone(crossing),
            queue: Mutex::default(),
            wake: Notify::new(),
            stands: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            began: Instant::now(),
            sent: Tally::default(),
            received: Tally::default(),
            dropped: Default::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The relay at the other end.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Which way we send.
    pub fn sends(&self) -> Direction {
        self.sends
    }

    /// Which way packets go that come from the other side.
    pub fn receives(&self) -> Direction {
        self.sends.other()
    }

    /// Leaves a packet to be sent. Never waits: what there is no room for is dropped, and so are those before it that
    /// have waited too long.
    pub fn push(&self, packet: &[u8]) {
        let now = Instant::now();
        let (late, taken) = {
            let mut queue = self.queue();
            (queue.expire(now), queue.push(packet, now))
        };
        self.drops(Dropped::Late, late);
        self.drops(Dropped::Full, usize::from(!taken));
        self.wake.notify_one();
    }

    /// Completes when there is something to send, or nothing will be any more.
    pub async fn has_packets(&self) {
        while self.queue().len() == 0 && !self.is_retired() {
            self.wake.notified().await;
        }
    }

    /// Gives away the first packet that is not late, if it has at most `room` bytes.
    pub fn pop(&self, room: usize) -> Option<Vec<u8>> {
        let (late, packet) = {
            let mut queue = self.queue();
            (queue.expire(Instant::now()), queue.pop(room))
        };
        self.drops(Dropped::Late, late);
        packet
    }

    /// Counts a packet that is on its way to the other side.
    pub fn sent(&self, bytes: usize) {
        self.sent.count(bytes);
        self.crossing.crossed(self.sends, bytes);
    }

    /// Counts a packet that has come from there.
    pub fn received(&self, bytes: usize) {
        self.received.count(bytes);
        self.crossing.crossed(self.receives(), bytes);
    }

    /// Gives this host a packet that has come from the other side, and notes where answers to it go.
    pub fn gives(self: &Arc<Self>, packet: &[u8], shared: &Shared, rules: Option<Rules<'_>>) {
        let taken = judge(packet, rules).and_then(|head| {
            let learn = || shared.lanes.seen.note(head.source, self, Instant::now());
            shared.tunnels.take(packet, (&head, &self.remote), learn)
        });
        taken.unwrap_or_else(|why| self.drops(why, 1));
    }

    /// Counts packets that go nowhere.
    pub fn drops(&self, why: Dropped, packets: usize) {
        if packets > 0 {
            self.dropped[why as usize].fetch_add(packets as u64, Ordering::Relaxed);
            self.crossing.dropped(why, packets);
        }
    }

    /// Notes that both sides have agreed on it.
    pub fn is_agreed(&self) {
        self.stands.store(true, Ordering::Relaxed);
    }

    /// Says goodbye as soon as what waits is sent: somebody else takes its place, or nobody.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether it is about to end.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// What `ekiden status` shows of it.
    pub fn view(&self, listener: &str) -> LaneView {
        let ((sent, bytes_sent), (received, bytes_received)) = (self.sent.read(), self.received.read());
        let dropped = Dropped::ALL.map(|why| (why.word(), self.dropped[why as usize].load(Ordering::Relaxed)));
        let dropped_for: BTreeMap<_, _> = dropped.into_iter().filter(|(_, packets)| *packets > 0).collect();
        LaneView {
            listener: listener.to_owned(),
            by: self.remote.name().to_owned(),
            dialled: self.sends == Direction::Up,
            stands: self.stands.load(Ordering::Relaxed),
            seconds: self.began.elapsed().as_secs_f64(),
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

/// What still waits has no lane any more.
impl Drop for Lane {
    fn drop(&mut self) {
        let left = self.queue().len();
        self.drops(Dropped::NoLane, left);
    }
}
