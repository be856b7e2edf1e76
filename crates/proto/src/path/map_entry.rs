//! The figures of one direction of a section, unpacked for use, and packed for storage in a map of up to a million
//! sections.

use std::time::Duration;

use super::estimate;
use super::figures::PRIOR_SEGMENTS;
use super::model::{self, CongestionControl, Connection, RelayCosts, SectionModel};

/// One direction of a section, with its confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapEntry {
    /// The model of the section.
    pub section: SectionModel,
    /// Confidence of the estimate, 0 to 1.
    pub confidence: f64,
    /// Whether this relay has measured the section itself. Reports count according to the trust in the relay that sent
    /// them.
    pub is_own: bool,
}

impl MapEntry {
    /// The section with the lowest loss that is consistent with its samples (by one standard deviation, Poisson).
    #[must_use]
    pub fn optimistic(&self) -> SectionModel {
        let lost = self.section.loss * (estimate::segments_for_confidence(self.confidence) + PRIOR_SEGMENTS);
        SectionModel { loss: self.section.loss * (1.0 - 1.0 / lost.sqrt()).max(0.0), ..self.section }
    }
}

/// The stored form, 28 bytes, without the window of a used connection: times in microseconds, rates in bytes/s. The
/// throughput is computed once, on insertion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PackedEntry {
    rtt: u32,
    loss: f32,
    /// The window in bytes; 0 if unknown.
    window: u32,
    /// The line's rate in bytes/s; infinite if unknown.
    line: f32,
    throughput: Throughput,
    mss: u16,
    /// The confidence in units of 1/255.
    confidence: u8,
    flags: u8,
}

/// The throughput of a section or a path for transfers of two sizes, in bytes/s: short transfers end while windows
/// open, and long transfers have losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Throughput {
    pub medium: f32,
    pub large: f32,
}

const MEDIUM_BYTES: u64 = 1 << 20;
const LARGE_BYTES: u64 = 64 << 20;

impl Throughput {
    /// The throughput of a path without sections.
    pub const UNLIMITED: Self = Self { medium: f32::INFINITY, large: f32::INFINITY };

    /// The throughput of an unusable path.
    pub const NONE: Self = Self { medium: 0.0, large: 0.0 };

    fn of_section(section: &SectionModel) -> Self {
        let sections = [*section];
        let first = model::time_to_first_byte(&sections, &RelayCosts::default());
        let rate = |bytes: u64| {
            let time = model::completion(&sections, bytes, &RelayCosts::default()).saturating_sub(first);
            (bytes as f64 / time.as_secs_f64().max(1e-9)) as f32
        };
        Self { medium: rate(MEDIUM_BYTES), large: rate(LARGE_BYTES) }
    }

    /// The throughput for a transfer of this size, in bytes/s.
    pub const fn for_size(self, bytes: u64) -> f32 {
        if bytes < 8 * MEDIUM_BYTES { self.medium } else { self.large }
    }

    pub fn min(self, other: Self) -> Self {
        Self { medium: self.medium.min(other.medium), large: self.large.min(other.large) }
    }

    pub fn max(self, other: Self) -> Self {
        Self { medium: self.medium.max(other.medium), large: self.large.max(other.large) }
    }

    pub fn scaled(self, factor: f32) -> Self {
        Self { medium: self.medium * factor, large: self.large * factor }
    }
}

/// Bits of `flags`; the lowest two bits contain the congestion control.
const CONGESTION: u8 = 0b11;
const READY: u8 = 1 << 2;
const OWN: u8 = 1 << 3;
const KNOWN: u8 = 1 << 4;

/// Both directions of a section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BothDirections {
    pub down: PackedEntry,
    pub up: PackedEntry,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, or as near as it gets")]
impl From<&MapEntry> for PackedEntry {
    fn from(entry: &MapEntry) -> Self {
        let MapEntry { section, confidence, is_own: own } = entry;
        let congestion = match section.congestion {
            CongestionControl::Reno => 0,
            CongestionControl::Cubic => 1,
            CongestionControl::Ctcp => 2,
            CongestionControl::Bbr => 3,
        };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        Self {
            rtt: u32::try_from(section.rtt.as_micros()).unwrap_or(u32::MAX),
            loss: if section.loss > 0.0 { section.loss.min(1.0) as f32 } else { 0.0 },
            window: section.window.map_or(0, |window| u32::try_from(window.max(1)).unwrap_or(u32::MAX)),
            line: section.line_rate.filter(|line| *line > 0.0).map_or(f32::INFINITY, |line| line as f32),
            throughput: Throughput::of_section(section),
            mss: section.mss,
            confidence: (confidence.clamp(0.0, 1.0) * 255.0).round() as u8,
            flags: congestion | flag(section.connection.is_ready(), READY) | flag(*own, OWN) | KNOWN,
        }
    }
}

impl PackedEntry {
    /// An entry without figures.
    pub const UNKNOWN: Self = Self {
        rtt: 0,
        loss: 0.0,
        window: 0,
        line: f32::INFINITY,
        throughput: Throughput::UNLIMITED,
        mss: 0,
        confidence: 0,
        flags: 0,
    };

    pub fn unpack(&self) -> Option<MapEntry> {
        self.is_known().then(|| MapEntry {
            section: self.section(),
            confidence: f64::from(self.confidence) / 255.0,
            is_own: self.is_own(),
        })
    }

    fn section(&self) -> SectionModel {
        SectionModel {
            rtt: Duration::from_micros(self.rtt.into()),
            loss: self.loss.into(),
            window: (self.window > 0).then_some(self.window.into()),
            line_rate: self.line.is_finite().then_some(self.line.into()),
            congestion: match self.flags & CONGESTION {
                0 => CongestionControl::Reno,
                1 => CongestionControl::Cubic,
                2 => CongestionControl::Ctcp,
                _ => CongestionControl::Bbr,
            },
            mss: self.mss,
            connection: Connection::ready_if(self.flags & READY > 0),
        }
    }

    pub const fn is_known(&self) -> bool {
        self.flags & KNOWN > 0
    }

    pub const fn is_own(&self) -> bool {
        self.flags & OWN > 0
    }

    /// The throughput by size.
    pub const fn throughput(&self) -> Throughput {
        self.throughput
    }

    /// Seconds from request to answer: one round trip, or two without a ready connection.
    #[expect(clippy::cast_precision_loss, reason = "as near as it gets")]
    pub const fn delay(&self) -> f32 {
        let round_trips = if self.flags & READY > 0 { 1.0 } else { 2.0 };
        self.rtt as f32 * 1e-6 * round_trips
    }
}

impl BothDirections {
    /// The entries of a section without figures.
    pub const UNKNOWN: Self = Self { down: PackedEntry::UNKNOWN, up: PackedEntry::UNKNOWN };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_entry_unpacks_to_the_original() {
        for congestion in
            [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Ctcp, CongestionControl::Bbr]
        {
            for (window, line, flag) in [(None, None, false), (Some(1 << 19), Some(12_500_000.0), true)] {
                let rtt = Duration::from_micros(38_600);
                let section = SectionModel {
                    rtt,
                    loss: 0.0009765625,
                    window,
                    line_rate: line,
                    congestion,
                    mss: 1448,
                    connection: Connection::ready_if(flag),
                };
                let known = MapEntry { section, confidence: 1.0, is_own: !flag };
                assert_eq!(PackedEntry::from(&known).unpack(), Some(known));
            }
        }
        assert_eq!(PackedEntry::UNKNOWN.unpack(), None);
    }

    #[test]
    fn invalid_figures_are_packed_as_bounded_values() {
        let section = SectionModel {
            rtt: Duration::MAX,
            loss: 7.0,
            window: Some(0),
            line_rate: Some(-1.0),
            congestion: CongestionControl::Bbr,
            mss: 0,
            connection: Connection::New,
        };
        let known = PackedEntry::from(&MapEntry { section, confidence: f64::NAN, is_own: true });
        assert!(known.throughput().large.is_finite() && known.delay().is_finite(), "{known:?}");
        let out = known.unpack().unwrap();
        assert_eq!((out.section.loss, out.section.window, out.section.line_rate), (1.0, Some(1), None));
        assert_eq!(out.confidence, 0.0);
    }

    #[test]
    fn packed_entry_of_both_directions_takes_56_bytes() {
        assert_eq!(size_of::<BothDirections>(), 56);
    }
}
