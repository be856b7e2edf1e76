//! Measures the times of requests and responses of a session: when bytes moved, and which side was silent in between.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;

/// Measures the times of requests and responses of a session.
#[derive(Debug, Default)]
pub(super) struct ResponseTimer {
    last: Cell<Option<(Direction, Instant)>>,
    flowing: Cell<Duration>,
    /// The time at which the first byte toward the client moved; `None` before that.
    first: Cell<Option<Instant>>,
    /// The current response; `None` between responses.
    answer: Cell<Option<Response>>,
    /// The response with the most bytes so far.
    largest: Cell<Option<Response>>,
}

/// A response: bytes from the server without a longer gap, after bytes to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Size of the response in bytes.
    pub bytes: u64,
    /// Time from the last bytes toward the server to the first bytes of the response.
    pub wait: Duration,
    /// Time from the first to the last bytes of the response.
    pub span: Duration,
}

/// A gap that is longer than this, and longer than the wait for the response, ends the response. A retransmission
/// timeout takes about this long (`TCP_RTO_MIN` and a round trip).
const MAX_RESPONSE_GAP: Duration = Duration::from_millis(300);

/// A longer gap counts as idle time of the endpoints, not of the path.
const MAX_PAUSE: Duration = Duration::from_secs(3);

impl ResponseTimer {
    /// Records that the path is established. The wait for the first response starts here, for servers that send first.
    pub(super) fn on_path_ready(&self) {
        self.last.set(Some((Direction::Up, Instant::now())));
        self.answer.set(None);
        self.largest.set(None);
    }

    /// The time at which the first byte toward the client moved; `None` before that.
    pub(super) fn first_byte_at(&self) -> Option<Instant> {
        self.first.get()
    }

    /// Total time in which bytes moved or the path or the server was awaited. The time between a response and the next
    /// request is excluded.
    pub(super) fn active_time(&self) -> Duration {
        self.flowing.get()
    }

    /// The response with the most bytes so far; `None` before the first response.
    pub(super) fn largest_response(&self) -> Option<Response> {
        self.largest.get()
    }

    #[cfg(test)]
    pub(super) fn last_moved_at(&self, direction: Direction, at: Instant) {
        self.last.set(Some((direction, at)));
    }

    /// Records that `bytes` bytes have moved. Returns the time since the previous bytes, at most [`MAX_PAUSE`], that is
    /// attributed to the path or the server: zero between a response and the next request, when the relay waits for the
    /// client.
    pub(super) fn on_bytes(&self, direction: Direction, bytes: u64) -> Duration {
        self.on_bytes_at(Instant::now(), direction, bytes)
    }

    fn on_bytes_at(&self, now: Instant, direction: Direction, bytes: u64) -> Duration {
        if direction == Direction::Down && self.first.get().is_none() {
            self.first.set(Some(now));
        }
        let Some((before, at)) = self.last.replace(Some((direction, now))) else { return Duration::ZERO };
        let pause = now.saturating_duration_since(at);
        if direction == Direction::Down {
            self.on_response(before, pause, bytes);
        }
        if direction == Direction::Up && before == Direction::Down {
            return Duration::ZERO;
        }
        let pause = pause.min(MAX_PAUSE);
        self.flowing.set(self.flowing.get() + pause);
        pause
    }

    fn on_response(&self, before: Direction, pause: Duration, bytes: u64) {
        let answer = match self.answer.get() {
            _ if before == Direction::Up => Some(Response { bytes, wait: pause, span: Duration::ZERO }),
            Some(answer) if pause <= answer.wait.max(MAX_RESPONSE_GAP) => {
                Some(Response { bytes: answer.bytes + bytes, span: answer.span + pause, ..answer })
            }
            _ => None,
        };
        self.answer.set(answer);
        if answer.map(|answer| answer.bytes) > self.largest.get().map(|largest| largest.bytes) {
            self.largest.set(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records bytes that move `millis` milliseconds after the previous bytes.
    fn record_bytes(response_timer: &ResponseTimer, direction: Direction, bytes: u64, millis: u64) {
        let (_, before) = response_timer.last.get().unwrap();
        response_timer.on_bytes_at(before + Duration::from_millis(millis), direction, bytes);
    }

    fn started_timer() -> ResponseTimer {
        let response_timer = ResponseTimer::default();
        response_timer.last.set(Some((Direction::Up, Instant::now())));
        response_timer
    }

    #[test]
    fn client_think_time_is_excluded() {
        let response_timer = started_timer();
        record_bytes(&response_timer, Direction::Down, 10, 2000);
        let answer = response_timer.flowing.get();
        assert!(answer >= Duration::from_secs(2), "{answer:?}");
        record_bytes(&response_timer, Direction::Up, 10, 2000);
        assert_eq!(response_timer.flowing.get(), answer, "the client's own time");
        record_bytes(&response_timer, Direction::Down, 10, 60_000);
        assert_eq!(response_timer.flowing.get(), answer + MAX_PAUSE, "a silent minute counts as the longest pause");
    }

    #[test]
    fn largest_response_ends_at_a_long_gap() {
        let response_timer = started_timer();
        assert!(response_timer.largest.get().is_none());
        for (direction, bytes, millis) in [
            (Direction::Down, 3000, 40),
            (Direction::Up, 500, 900),
            (Direction::Down, 4000, 50),
            (Direction::Down, 1000, 20),
        ] {
            record_bytes(&response_timer, direction, bytes, millis);
        }
        let largest = response_timer.largest.get().unwrap();
        assert_eq!((largest.bytes, largest.wait.as_millis(), largest.span.as_millis()), (5000, 50, 20));
        record_bytes(&response_timer, Direction::Down, 9000, 400);
        record_bytes(&response_timer, Direction::Down, 9000, 1);
        assert_eq!(response_timer.largest.get(), Some(largest), "later bytes without a request are no response");
        record_bytes(&response_timer, Direction::Up, 500, 10);
        record_bytes(&response_timer, Direction::Down, 4000, 60);
        assert_eq!(response_timer.largest.get(), Some(largest));
    }
}
