//! Exact counters of a session. They report every change to an observer.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::limiting::FlowCounters;

use super::observer::{Allowance, FlowObserver, TransferMethod};
use super::response_timer::{Response, ResponseTimer};

/// The counters of one session. A session never leaves its thread, so the counters are plain cells.
#[derive(Debug)]
pub struct FlowStats {
    observer: Rc<dyn FlowObserver>,
    down: DirectionStats,
    up: DirectionStats,
    response_timer: ResponseTimer,
}

#[derive(Debug, Default)]
struct DirectionStats {
    bytes: Cell<u64>,
    spliced: Cell<u64>,
    moves: Cell<u64>,
    waiting: Cell<Duration>,
    squares: Cell<f64>,
    /// Bytes queued in this host at the last sample.
    queued: Cell<i64>,
    /// Allocated when bytes are held for the first time, which never happens in most sessions.
    held: OnceCell<Box<HeldTimes>>,
}

/// Times in which a direction had bytes and did not read or send them.
#[derive(Debug, Default)]
struct HeldTimes {
    blocked: Cell<Duration>,
    /// When the receiver's socket became full; `None` while it has room.
    blocked_since: Cell<Option<Instant>>,
    /// Total blocked time at the last move.
    blocked_before: Cell<Duration>,
    throttled: Cell<Duration>,
}

impl FlowStats {
    /// Creates counters at zero that report to `observer`.
    #[must_use]
    pub fn new(observer: Rc<dyn FlowObserver>) -> Self {
        Self {
            observer,
            down: DirectionStats::default(),
            up: DirectionStats::default(),
            response_timer: ResponseTimer::default(),
        }
    }

    fn direction(&self, direction: Direction) -> &DirectionStats {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Returns whether small reads of a direction are gathered before they are sent.
    #[must_use]
    pub fn is_tuned(&self, direction: Direction) -> bool {
        self.observer.is_tuned(direction)
    }

    /// Returns whether the section that sends the bytes of a direction carries no session after this one.
    #[must_use]
    pub fn is_last_session(&self, direction: Direction) -> bool {
        self.observer.is_last_session(direction)
    }

    /// Returns the number of bytes that a direction may read next, and when.
    #[must_use]
    pub fn reserve(&self, direction: Direction) -> Allowance {
        self.observer.reserve(direction)
    }

    /// Sets the largest plaintext of the next records of a direction, in bytes.
    pub fn set_max_record(&self, direction: Direction, most: usize) {
        self.observer.on_record_size(direction, most);
    }

    /// Records bytes that were written from a buffer.
    pub fn record_copied(&self, direction: Direction, bytes: usize) {
        self.record_moved(direction, bytes as u64, TransferMethod::Copied);
    }

    /// Records bytes that were written from a pipe.
    pub fn record_spliced(&self, direction: Direction, bytes: usize) {
        self.record_moved(direction, bytes as u64, TransferMethod::Spliced);
        let one_way = self.direction(direction);
        one_way.spliced.set(one_way.spliced.get() + bytes as u64);
    }

    fn record_moved(&self, direction: Direction, bytes: u64, transfer: TransferMethod) {
        let one_way = self.direction(direction);
        one_way.moved(bytes);
        one_way.on_wait(self.response_timer.on_bytes(direction, bytes));
        self.observer.on_moved(direction, bytes, transfer);
    }

    /// Records that bytes wait for room in the receiver's socket, until the guard is dropped.
    pub fn start_stall(&self, direction: Direction) -> StallGuard<'_> {
        self.direction(direction).held().blocked_since.set(Some(Instant::now()));
        StallGuard { stats: self, direction }
    }

    /// Sets the number of bytes of a direction that are queued in this host.
    pub fn set_queued(&self, direction: Direction, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.direction(direction).queued.replace(bytes);
        if bytes != before {
            self.observer.on_queue_change(direction, bytes - before);
        }
    }

    /// Whether bytes were queued in this host at the last sample.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.down.queued.get() + self.up.queued.get() > 0
    }

    /// Bytes moved in one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.direction(direction).bytes.get()
    }

    /// Total time in which one direction had bytes but no room to send them.
    #[must_use]
    pub fn blocked_for(&self, direction: Direction) -> Duration {
        self.direction(direction).blocked_for()
    }

    /// Records the time that bytes have waited for their turn under a rate limit.
    pub fn record_throttled(&self, direction: Direction, span: Duration) {
        let throttled = &self.direction(direction).held().throttled;
        throttled.set(throttled.get() + span);
    }

    /// Total time in which one direction had bytes and did not read or send them: the receiver had no room, or a rate
    /// limit applied.
    #[must_use]
    pub fn held_for(&self, direction: Direction) -> Duration {
        self.blocked_for(direction) + self.direction(direction).throttled_for()
    }

    /// Returns whether one direction has bytes but no room to send them now.
    #[must_use]
    pub fn is_blocked(&self, direction: Direction) -> bool {
        self.direction(direction).held.get().is_some_and(|held| held.blocked_since.get().is_some())
    }

    /// The counters of one direction, for the limit tracker.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> FlowCounters {
        let one_way = self.direction(direction);
        FlowCounters {
            bytes: one_way.bytes.get(),
            moves: one_way.moves.get(),
            blocked: self.blocked_for(direction),
            waiting: one_way.waiting.get(),
            wait_squares: one_way.squares.get(),
            throttled: one_way.throttled_for(),
        }
    }

    /// Records that the path is established. The wait for the first response starts here, for servers that send first.
    pub fn on_path_ready(&self) {
        self.response_timer.on_path_ready();
    }

    /// The time at which the first byte toward the client moved; `None` before that.
    #[must_use]
    pub fn first_byte_at(&self) -> Option<Instant> {
        self.response_timer.first_byte_at()
    }

    /// Total time in which bytes moved or the path or the server was awaited. The time between a response and the next
    /// request, in which the relay waits for the client, is excluded.
    #[must_use]
    pub fn active_time(&self) -> Duration {
        self.response_timer.active_time()
    }

    /// The response with the most bytes so far; `None` before the first response.
    #[must_use]
    pub fn largest_response(&self) -> Option<Response> {
        self.response_timer.largest_response()
    }

    /// Number of bytes moved in both directions.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.down.bytes.get() + self.up.bytes.get()
    }

    /// Number of bytes that were moved by splice(2) in both directions.
    #[must_use]
    pub fn spliced_bytes(&self) -> u64 {
        self.down.spliced.get() + self.up.spliced.get()
    }
}

/// Removes the session's queued bytes from the totals.
impl Drop for FlowStats {
    fn drop(&mut self) {
        self.set_queued(Direction::Down, 0);
        self.set_queued(Direction::Up, 0);
    }
}

impl DirectionStats {
    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.moves.set(self.moves.get() + 1);
    }

    fn held(&self) -> &HeldTimes {
        self.held.get_or_init(Box::default)
    }

    fn blocked_for(&self) -> Duration {
        self.held.get().map_or(Duration::ZERO, |held| held.blocked_for())
    }

    fn throttled_for(&self) -> Duration {
        self.held.get().map_or(Duration::ZERO, |held| held.throttled.get())
    }

    /// Records the time without a byte, `pause`, as a wait for bytes. The blocked time is subtracted; some bytes may
    /// move before the receiver has enough room.
    fn on_wait(&self, pause: Duration) {
        let blocked = self.held.get().map_or(Duration::ZERO, |held| held.take_blocked());
        let wait = pause.saturating_sub(blocked);
        self.waiting.set(self.waiting.get() + wait);
        self.squares.set(self.squares.get() + wait.as_secs_f64().powi(2));
    }
}

impl HeldTimes {
    fn blocked_for(&self) -> Duration {
        self.blocked.get() + self.current_stall()
    }

    /// The time since the receiver's socket became full; zero while it has room.
    fn current_stall(&self) -> Duration {
        self.blocked_since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns the blocked time since the last call.
    fn take_blocked(&self) -> Duration {
        let blocked = self.blocked_for();
        blocked.saturating_sub(self.blocked_before.replace(blocked))
    }
}

/// Marks a direction as blocked (bytes to send, and no room in the socket) until the guard is dropped.
#[must_use]
pub struct StallGuard<'a> {
    stats: &'a FlowStats,
    direction: Direction,
}

impl StallGuard<'_> {
    /// Ends the stall and returns its duration.
    pub fn end(self) -> Duration {
        self.stats.direction(self.direction).held().current_stall()
    }
}

impl Drop for StallGuard<'_> {
    fn drop(&mut self) {
        let held = self.stats.direction(self.direction).held();
        let span = held.current_stall();
        held.blocked_since.set(None);
        held.blocked.set(held.blocked.get() + span);
        self.stats.observer.on_stall_end(self.direction, span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_time_is_not_counted_as_waiting() {
        let stats = FlowStats::new(Rc::new(()));
        let past = |millis| Instant::now() - Duration::from_millis(millis);
        let (moved_at, blocked_since) = (past(500), past(300));
        stats.response_timer.last_moved_at(Direction::Down, moved_at);
        let stall = stats.start_stall(Direction::Down);
        stats.down.held().blocked_since.set(Some(blocked_since));
        assert!(
            stats.is_blocked(Direction::Down) && stats.counters(Direction::Down).blocked >= Duration::from_millis(300)
        );
        let before = Instant::now();
        stats.record_copied(Direction::Down, 10);
        let recording = before.elapsed();
        assert!(stall.end() >= Duration::from_millis(300));
        let clocks = stats.counters(Direction::Down);
        assert!(!stats.is_blocked(Direction::Down) && clocks.blocked >= Duration::from_millis(300), "{clocks:?}");
        // The wait ends when the call reads the clock, and the stall later in the same call.
        let most = blocked_since - moved_at;
        assert!((most.saturating_sub(recording)..=most).contains(&clocks.waiting), "{clocks:?} in {recording:?}");
        assert!((clocks.wait_squares - clocks.waiting.as_secs_f64().powi(2)).abs() < 1e-9, "{clocks:?}");
        assert_eq!((clocks.bytes, clocks.moves), (10, 1));

        stats.response_timer.last_moved_at(Direction::Down, past(500));
        stats.record_copied(Direction::Up, 10);
        assert_eq!(stats.counters(Direction::Up).waiting, Duration::ZERO, "the client's own time");
    }
}
