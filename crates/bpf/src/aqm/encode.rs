//! Plain values as the C program has them in memory (`struct settings` of aqm_program.h), without a copy of their layout:
//! every field is eight bytes, or said to be less.

use std::net::IpAddr;
use std::time::Duration;

use ekiden_proto::aqm::priority::{Dynamic, Static};
use ekiden_proto::aqm::{Room, auto, flow, red, virtual_queue};

use super::Line;
use super::settings::{Mode, Settings};

/// The room that the `union` of the laws takes: that of the largest.
const LAW: usize = size_of::<Static>();

/// How often packets are entered into the table of connections, in a second of a busy line.
const ENTRIES: u64 = 100_000;

/// What the settings are told to `show` in, as JSON; the rest is zeros.
const TOLD: usize = 1024;

/// Bytes, growing.
#[derive(Default)]
struct Memory(Vec<u8>);

impl Memory {
    fn u64s<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
    }

    fn u32s<const N: usize>(&mut self, numbers: [u32; N]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
    }

    fn fill(&mut self, length: usize) {
        assert!(self.0.len() <= length, "invariant: what is encoded fits");
        self.0.resize(length, 0);
    }

    fn slope(&mut self, slope: red::Slope) {
        let red::Slope { from, base, rise, span, shift } = slope;
        self.u64s([from, base, rise, span, shift]);
    }

    fn red(&mut self, params: &red::Params) {
        let red::Params { key, room, weight, min, max, top, rise, gentle, n, ecn, typical_time, keep } = *params;
        let Room { limit, in_bytes } = room;
        self.u64s([key, limit, in_bytes, weight, min, max, top]);
        self.slope(rise);
        self.slope(gentle);
        self.u64s([n, ecn, typical_time]);
        self.u64s(keep);
    }

    fn auto(&mut self, params: &auto::Params) {
        let auto::Params { room: Room { limit, in_bytes }, capacity, byte_time, target, half, ecn, mask } = *params;
        self.u64s([limit, in_bytes, capacity, byte_time, target, half, ecn, mask]);
    }

    fn law(&mut self, settings: &Settings, key: u64) {
        let red = red::Params::new(&settings.red(), Some(settings.drain()), key);
        let end = self.0.len() + 8 + LAW;
        match &settings.mode {
            Mode::Auto { .. } => {
                self.u64s([3]);
                self.auto(&auto_params(settings));
            }
            Mode::Red => {
                self.u64s([0]);
                self.red(&red);
            }
            Mode::Static { heavy } => {
                let heavy: Vec<u32> = heavy.iter().map(sender).collect();
                let Static { red, heavy, senders } = Static::new(red, &heavy);
                self.u64s([1]);
                self.red(&red);
                self.u32s(heavy);
                self.u64s([senders]);
            }
            Mode::Dynamic { rec_int, sta_int, hist_len } => {
                let Dynamic { red, rec_int, sta_int, hist_len } = Dynamic::new(red, *rec_int, *sta_int, *hist_len);
                self.u64s([2]);
                self.red(&red);
                self.u32s([rec_int, sta_int, hist_len]);
            }
        }
        self.fill(end);
    }
}

/// What `auto` is told.
#[must_use]
pub fn auto_params(settings: &Settings) -> auto::Params {
    let Settings { mode, ecn, table, .. } = settings;
    let target = if let Mode::Auto { target } = mode { target.0 } else { Duration::ZERO };
    let target = u64::try_from(target.as_nanos()).unwrap_or(u64::MAX);
    auto::Params::new(settings.red().room, target, *ecn, Some(settings.drain()), u64::from(*table))
}

/// All of `struct settings`.
pub(super) fn settings(settings: &Settings, line: Line, ways: u32) -> Vec<u8> {
    let mut memory = Memory::default();
    let Line { key, ethernet } = line;
    memory.law(settings, key);
    let virtual_queue::Params { rate, longest } = virtual_queue::Params::new(settings.drain());
    let sets = u64::from(settings.table / ways);
    memory.u64s([rate, longest, key, sets, settings.drain() / 8 / ENTRIES, u64::from(ethernet)]);
    let end = memory.0.len() + TOLD;
    memory.0.extend(serde_json::to_vec(settings).unwrap_or_default());
    memory.fill(end);
    memory.0
}

/// What was told to `show`.
pub(super) fn told(memory: &[u8]) -> Option<Settings> {
    let text = memory.get(memory.len().checked_sub(TOLD)?..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    serde_json::from_slice(&text[..end]).ok()
}

fn sender(address: &IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(v4) => flow::source(&v4.octets()),
        IpAddr::V6(v6) => flow::source(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;
    use crate::aqm::settings::DEFAULT_TARGET;

    #[test]
    fn what_is_told_is_what_was_set() {
        for mode in [
            Mode::Red,
            Mode::Auto { target: DEFAULT_TARGET },
            Mode::Static { heavy: vec!["2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(); 16] },
            Mode::Dynamic { rec_int: 10, sta_int: 100, hist_len: 1024 },
        ] {
            let wanted = Settings::new("123456789bit/s".parse().unwrap(), mode);
            let memory = settings(&wanted, Line { key: 7, ethernet: true }, 4);
            assert_eq!(told(&memory).unwrap(), wanted);
        }
        assert!(told(&[0; 3]).is_none());
    }

    #[test]
    fn no_field_is_forgotten() {
        let one = Settings::new("1Mbit/s".parse().unwrap(), Mode::Red);
        let mut memory = Memory::default();
        memory.red(&red::Params::new(&one.red(), None, 1));
        assert_eq!(memory.0.len(), size_of::<red::Params>());
        let mut memory = Memory::default();
        memory.auto(&auto_params(&one));
        assert_eq!(memory.0.len(), size_of::<auto::Params>());
    }
}
