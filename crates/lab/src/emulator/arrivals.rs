//! Times of arrival of the frames at one port, and the time until which all frames are known.

use std::time::SystemTime;

use ekiden_emulator::Nanos;

use crate::emulator::clock::ClockReading;

/// Arrivals at one port. Times are nanoseconds of the emulator's clock.
#[derive(Debug, Default)]
pub struct Arrivals {
    last: Nanos,
    known_until: Nanos,
}

impl Arrivals {
    /// Returns when the next frame arrived. `timestamp` is the kernel's, in wall-clock time, taken before `reading`; a
    /// frame without one arrives now.
    ///
    /// The times never decrease. Timestamps can: two processors may queue frames in another order than they stamped
    /// them, and the wall clock may be stepped.
    pub fn next(&mut self, reading: ClockReading, timestamp: Option<SystemTime>) -> Nanos {
        let age = timestamp.and_then(|stamp| reading.wall.duration_since(stamp).ok()).unwrap_or_default();
        let at = reading.now.saturating_sub(Nanos::try_from(age.as_nanos()).unwrap_or(Nanos::MAX));
        self.last = self.last.max(at);
        self.last
    }

    /// Records that the port was read after `now`, and whether further frames may wait there, of unknown age.
    pub fn on_read(&mut self, now: Nanos, may_have_more: bool) {
        self.known_until = self.last.max(if may_have_more { self.known_until } else { now });
    }

    /// Returns the time until which every frame that arrived has been read.
    #[must_use]
    pub const fn known_until(&self) -> Nanos {
        self.known_until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reading(now: Nanos) -> ClockReading {
        ClockReading { now, wall: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000 + now) }
    }

    /// The kernel's timestamp of a frame that arrived at `at`.
    fn stamp(at: Nanos) -> Option<SystemTime> {
        Some(reading(at).wall)
    }

    #[test]
    fn frame_arrives_at_its_timestamp_or_now() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.next(reading(5000), stamp(3000)), 3000);
        assert_eq!(arrivals.next(reading(5000), None), 5000);
        assert_eq!(arrivals.next(reading(6000), stamp(9000)), 6000, "the wall clock was stepped back");
    }

    #[test]
    fn times_of_arrival_never_decrease() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.next(reading(5000), stamp(4000)), 4000);
        assert_eq!(arrivals.next(reading(5000), stamp(3999)), 4000, "queued after a frame with a later timestamp");
        let stepped =
            ClockReading { wall: reading(6000).wall + Duration::from_secs(1_000_000_000_000), ..reading(6000) };
        assert_eq!(arrivals.next(stepped, stamp(5900)), 4000, "the wall clock was stepped forward");
    }

    #[test]
    fn frames_are_known_until_the_read_or_the_last_arrival() {
        let mut arrivals = Arrivals::default();
        arrivals.on_read(1000, false);
        assert_eq!(arrivals.known_until(), 1000, "no frame");
        arrivals.next(reading(2600), stamp(1500));
        arrivals.on_read(2500, true);
        assert_eq!(arrivals.known_until(), 1500, "more frames may wait");
        arrivals.next(reading(2600), stamp(2550));
        arrivals.on_read(2500, false);
        assert_eq!(arrivals.known_until(), 2550, "arrived during the read");
        arrivals.on_read(2600, true);
        assert_eq!(arrivals.known_until(), 2550);
    }
}
