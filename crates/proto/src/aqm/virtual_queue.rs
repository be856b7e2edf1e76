//! A virtual queue: the backlog that a line with the configured rate would have.
//!
//! `level = max(0, level - rate * dt) + bytes`. With a rate a little below the true rate, the virtual queue fills
//! before the real queue does, so that the real backlog stays small, and the state of the driver or queueing discipline
//! is not needed. The level is in bytes; for settings in packets it is divided by [`TYPICAL_PACKET`].

use crate::aqm::{ArrivingPacket, Backlog};

/// The assumed size of a packet, in bytes, where the true size is unknown.
pub const TYPICAL_PACKET: u64 = 1500;

/// Number of fraction bits of a level in bytes.
const FRACTION: u32 = 32;

/// Constant parameters of the virtual queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct VirtualQueueParams {
    /// The rate of the line, in 2^-32 bytes per nanosecond.
    pub rate: u64,
    /// Time in nanoseconds after which every backlog has drained.
    pub max_age: u64,
}

/// The state of the virtual queue, initially all 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct VirtualQueueState {
    /// The backlog, in 2^-32 bytes.
    pub level: u64,
    /// Time of the last update of `level`, in nanoseconds.
    pub updated_at: u64,
}

impl VirtualQueueParams {
    /// Computes the parameters from the rate of a line, in bits per second; at least 8 bit/s.
    #[must_use]
    pub const fn new(bits_per_second: u64) -> Self {
        let rate = (bits_per_second as u128) << FRACTION;
        let rate = (rate / 8_000_000_000) as u64;
        let rate = if rate == 0 { 1 } else { rate };
        Self { rate, max_age: u64::MAX / rate }
    }
}

/// Drains the queue up to the time of the arrival, and sets the backlog and the idle time of `arrival`.
pub const fn advance(params: &VirtualQueueParams, state: &mut VirtualQueueState, arrival: &mut ArrivingPacket) {
    let passed = arrival.now.saturating_sub(state.updated_at);
    let drained = if passed > params.max_age { u64::MAX } else { passed * params.rate };
    arrival.idle = 0;
    if drained >= state.level {
        arrival.idle = passed - state.level / params.rate;
        state.level = 0;
    } else {
        state.level -= drained;
    }
    state.updated_at += passed;
    let bytes = state.level >> FRACTION;
    arrival.backlog = Backlog { bytes, packets: bytes.div_ceil(TYPICAL_PACKET) };
}

/// Adds a packet of `bytes` bytes to the backlog.
pub const fn enqueue(state: &mut VirtualQueueState, bytes: u32) {
    state.level = state.level.saturating_add((bytes as u64) << FRACTION);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12 Mbit/s: 1500 bytes per millisecond.
    const LINE: VirtualQueueParams = VirtualQueueParams::new(12_000_000);
    const MS: u64 = 1_000_000;

    fn at(state: &mut VirtualQueueState, now: u64) -> (Backlog, u64) {
        let mut arrival = ArrivingPacket { now, ..ArrivingPacket::default() };
        advance(&LINE, state, &mut arrival);
        (arrival.backlog, arrival.idle)
    }

    #[test]
    fn enqueued_bytes_drain_at_the_rate() {
        let mut state = VirtualQueueState::default();
        assert_eq!(at(&mut state, 5 * MS), (Backlog::default(), 5 * MS));
        for _ in 0..4 {
            enqueue(&mut state, 1500);
        }
        assert_eq!(at(&mut state, 5 * MS), (Backlog { bytes: 6000, packets: 4 }, 0));
        let left = Backlog { bytes: 3000, packets: 2 };
        assert_eq!(at(&mut state, 7 * MS), (left, 0));
        assert_eq!(at(&mut state, 6 * MS), (left, 0), "a clock that steps back drains nothing");
        assert_eq!(at(&mut state, 7 * MS + 1), (Backlog { bytes: 2999, packets: 2 }, 0));
        let (waiting, idle) = at(&mut state, 12 * MS);
        assert_eq!((waiting, idle / 10), (Backlog::default(), 3 * MS / 10), "the queue was empty at 9 ms");
        assert_eq!(at(&mut state, 12 * MS + 7), (Backlog::default(), 7), "idle is counted from the last arrival");
    }

    /// Steps of a nanosecond drain as much as one large step, because fractions of bytes are not lost.
    #[test]
    fn small_time_steps_drain_as_much_as_a_large_step() {
        let mut state = VirtualQueueState::default();
        enqueue(&mut state, 3000);
        let (waiting, _) = (0..=MS).map(|now| at(&mut state, now)).last().unwrap();
        assert!((1499..=1500).contains(&waiting.bytes), "{waiting:?}");
    }

    #[test]
    fn extreme_rates_and_times_cause_no_overflow() {
        for rate in [0, 1, 8, 400_000_000_000, 1 << 60] {
            let params = VirtualQueueParams::new(rate);
            let mut state = VirtualQueueState::default();
            for now in [0, 1, u64::MAX / 2, u64::MAX] {
                let mut arrival = ArrivingPacket { now, ..ArrivingPacket::default() };
                advance(&params, &mut state, &mut arrival);
                enqueue(&mut state, u32::MAX);
            }
            assert_eq!(state.updated_at, u64::MAX, "{rate}");
        }
    }
}
