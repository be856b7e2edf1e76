//! Plain values as the C program has them in memory (`struct settings` of aqm_program.h), without a copy of their layout:
//! every field is eight bytes, or said to be less.

use std::net::IpAddr;
use std::time::Duration;

use ekiden_proto::aqm::priority::{DynamicParams, StaticParams};
use ekiden_proto::aqm::{self, QueueLimit, auto, red, virtual_queue};

use super::ProgramParams;
use super::settings::{AqmMode, AqmSettings};

/// The room that the `union` of the laws takes: that of the largest.
const LAW_SIZE: usize = size_of::<StaticParams>();

/// How often packets are entered into the table of connections, in a second of a busy line.
const ENTRIES_PER_SECOND: u64 = 100_000;

/// Bytes for the settings that `show` prints: JSON, padded with zeros.
const STORED_SETTINGS: usize = 1024;

#[derive(Default)]
struct SettingsEncoder(Vec<u8>);

impl SettingsEncoder {
    fn u64s<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
    }

    fn u32s<const N: usize>(&mut self, numbers: [u32; N]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
    }

    fn pad_to(&mut self, length: usize) {
        assert!(self.0.len() <= length, "invariant: the encoding fits");
        self.0.resize(length, 0);
    }

    fn slope(&mut self, slope: red::Slope) {
        let red::Slope { from, base, rise, span, shift } = slope;
        self.u64s([from, base, rise, span, shift]);
    }

    fn red(&mut self, params: &red::RedParams) {
        let red::RedParams {
            key,
            queue_limit: room,
            weight,
            min,
            max,
            top,
            rise,
            gentle,
            n,
            ecn,
            typical_packet_time: typical_time,
            decay_factors: keep,
        } = *params;
        let QueueLimit { limit, in_bytes } = room;
        self.u64s([key, limit, in_bytes, weight, min, max, top]);
        self.slope(rise);
        self.slope(gentle);
        self.u64s([n, ecn, typical_time]);
        self.u64s(keep);
    }

    fn auto(&mut self, params: &auto::AutoParams) {
        let auto::AutoParams {
            queue_limit: QueueLimit { limit, in_bytes },
            capacity,
            byte_time,
            target,
            half,
            ecn,
            mask,
        } = *params;
        self.u64s([limit, in_bytes, capacity, byte_time, target, half, ecn, mask]);
    }

    fn law(&mut self, settings: &AqmSettings, key: u64) {
        let red = red::RedParams::new(&settings.red_config(), Some(settings.drain_rate()), key);
        let end = self.0.len() + 8 + LAW_SIZE;
        match &settings.mode {
            AqmMode::Auto { .. } => {
                self.u64s([3]);
                self.auto(&auto_params(settings));
            }
            AqmMode::Red => {
                self.u64s([0]);
                self.red(&red);
            }
            AqmMode::Static { heavy } => {
                let heavy: Vec<u32> = heavy.iter().map(sender_key).collect();
                let StaticParams { red, heavy, senders } = StaticParams::new(red, &heavy);
                self.u64s([1]);
                self.red(&red);
                self.u32s(heavy);
                self.u64s([senders]);
            }
            AqmMode::Dynamic { rec_int, sta_int, hist_len } => {
                let DynamicParams { red, rec_int, sta_int, hist_len } =
                    DynamicParams::new(red, *rec_int, *sta_int, *hist_len);
                self.u64s([2]);
                self.red(&red);
                self.u32s([rec_int, sta_int, hist_len]);
            }
        }
        self.pad_to(end);
    }
}

/// The parameters of `auto`.
#[must_use]
pub fn auto_params(settings: &AqmSettings) -> auto::AutoParams {
    let AqmSettings { mode, ecn, table, .. } = settings;
    let target = if let AqmMode::Auto { target } = mode { target.0 } else { Duration::ZERO };
    let target = u64::try_from(target.as_nanos()).unwrap_or(u64::MAX);
    auto::AutoParams::new(
        settings.red_config().queue_limit,
        target,
        *ecn,
        Some(settings.drain_rate()),
        u64::from(*table),
    )
}

/// All of `struct settings`.
pub(super) fn encode_settings(settings: &AqmSettings, line: ProgramParams, ways: u32) -> Vec<u8> {
    let mut memory = SettingsEncoder::default();
    let ProgramParams { hash_key: key, ethernet } = line;
    memory.law(settings, key);
    let virtual_queue::VirtualQueueParams { rate, max_age: longest } =
        virtual_queue::VirtualQueueParams::new(settings.drain_rate());
    let sets = u64::from(settings.table / ways);
    memory.u64s([rate, longest, key, sets, settings.drain_rate() / 8 / ENTRIES_PER_SECOND, u64::from(ethernet)]);
    let end = memory.0.len() + STORED_SETTINGS;
    memory.0.extend(serde_json::to_vec(settings).unwrap_or_default());
    memory.pad_to(end);
    memory.0
}

/// The settings for `show`.
pub(super) fn decode_settings(memory: &[u8]) -> Option<AqmSettings> {
    let text = memory.get(memory.len().checked_sub(STORED_SETTINGS)?..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    serde_json::from_slice(&text[..end]).ok()
}

fn sender_key(address: &IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(v4) => aqm::source_key(&v4.octets()),
        IpAddr::V6(v6) => aqm::source_key(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use std::mem::offset_of;

    use super::*;
    use crate::aqm::settings::DEFAULT_TARGET;

    #[test]
    fn encoded_settings_decode_to_the_same_settings() {
        for mode in [
            AqmMode::Red,
            AqmMode::Auto { target: DEFAULT_TARGET },
            AqmMode::Static { heavy: vec!["2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(); 16] },
            AqmMode::Dynamic { rec_int: 10, sta_int: 100, hist_len: 1024 },
        ] {
            let wanted = AqmSettings::new("123456789bit/s".parse().unwrap(), mode);
            let memory = encode_settings(&wanted, ProgramParams { hash_key: 7, ethernet: true }, 4);
            assert_eq!(decode_settings(&memory).unwrap(), wanted);
        }
        assert!(decode_settings(&[0; 3]).is_none());
    }

    #[test]
    fn encoded_static_and_dynamic_params_have_the_layout_of_their_structs() {
        let encoded = |mode: AqmMode| {
            let mut memory = SettingsEncoder::default();
            memory.law(&AqmSettings::new("1Mbit/s".parse().unwrap(), mode), 1);
            assert_eq!(memory.0.len(), 8 + LAW_SIZE, "the number of the law, and the room of the largest");
            memory.0.split_off(8)
        };
        let heavy: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let mut memory = encoded(AqmMode::Static { heavy: heavy.clone() });
        assert_eq!(memory.split_off(offset_of!(StaticParams, senders)), 2_u64.to_ne_bytes());
        let keys: Vec<u8> = heavy.iter().flat_map(|address| sender_key(address).to_ne_bytes()).collect();
        assert!(memory[offset_of!(StaticParams, heavy)..].starts_with(&keys));

        let memory = encoded(AqmMode::Dynamic { rec_int: 10, sta_int: 100, hist_len: 1024 });
        for (at, wanted) in [
            (offset_of!(DynamicParams, rec_int), 10_u32),
            (offset_of!(DynamicParams, sta_int), 100),
            (offset_of!(DynamicParams, hist_len), 1024),
        ] {
            assert_eq!(memory[at..at + 4], wanted.to_ne_bytes(), "byte {at}");
        }
        assert!(
            memory[offset_of!(DynamicParams, hist_len) + 4..].iter().all(|byte| *byte == 0),
            "only padding follows"
        );
    }

    #[test]
    fn encoded_red_and_auto_params_have_the_size_of_their_structs() {
        let one = AqmSettings::new("1Mbit/s".parse().unwrap(), AqmMode::Red);
        let mut memory = SettingsEncoder::default();
        memory.red(&red::RedParams::new(&one.red_config(), None, 1));
        assert_eq!(memory.0.len(), size_of::<red::RedParams>());
        let mut memory = SettingsEncoder::default();
        memory.auto(&auto_params(&one));
        assert_eq!(memory.0.len(), size_of::<auto::AutoParams>());
    }
}
