//! Reports between relays about their sections: the records of a connection that was opened for reports.
//!
//! The dialling side sends queries and probes, the other side replies. Only durations are sent, never times of day, so
//! clocks may differ. As in OPEN every value has one encoding: a parsed value encodes to the bytes it was read from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::key::PublicKey;
use crate::path::figures::EstimateSnapshot;
use crate::path::prefix::Prefix;
use crate::wire::WireError;
use crate::wire::cursor::Cursor;

use super::open::read_all;

/// Maximum number of prefixes in a query, and of sections in a reply.
pub const MAX_ENTRIES: usize = 64;

/// Maximum length of a probe train, in bytes.
pub const MAX_PROBE: u16 = 16 * 1024;

/// Maximum length of the plaintext of a record on a report connection, in bytes.
pub const MAX_RECORD: usize = MAX_PROBE as usize + 3;

const QUERY: u8 = 1;
const REPLY: u8 = 2;
const PROBE: u8 = 3;

const RELAY: u8 = 1;
const CALLER: u8 = 2;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// The unit of a share on the wire is one billionth.
const BILLION: f64 = 1e9;

/// One record of a report connection.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportMessage {
    /// A request for estimates.
    Query(ReportQuery),
    /// The answer to one query.
    Reply(Vec<SectionReport>),
    /// Bytes without content, which only load the section.
    Probe(ProbeTrain),
}

/// A request for the estimates of sections of another relay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportQuery {
    /// Whether estimates of the sections to other relays are requested.
    pub neighbours: bool,
    /// The prefixes whose last sections are requested.
    pub prefixes: Vec<Prefix>,
}

/// A train of bytes that measures a section without other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTrain {
    /// Number of bytes in the train.
    pub bytes: u16,
    /// Number of bytes that the other side is to send back.
    pub reply_bytes: u16,
}

/// The remote end of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A relay that the reporting relay dials, possibly the relay that sent the query.
    Relay(PublicKey),
    /// A relay that dials the reporting relay and is not dialled by it.
    Caller(PublicKey),
    /// The targets in an address prefix.
    Targets(Prefix),
}

/// The estimate of one relay for one section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SectionReport {
    /// The remote end of the section.
    pub subject: Subject,
    /// The direction from the reporting relay.
    pub sending: DirectionEstimate,
    /// The direction to the reporting relay.
    pub receiving: DirectionEstimate,
}

/// The estimate of one direction of a section.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DirectionEstimate {
    /// The figures of the estimate.
    pub snapshot: EstimateSnapshot,
    /// Age of the estimate when the report was written.
    pub age: Duration,
}

impl ReportMessage {
    /// Encodes the plaintext of a record. Entries beyond [`MAX_ENTRIES`] and bytes beyond [`MAX_PROBE`] are omitted.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Query(ask) => {
                let prefixes = &ask.prefixes[..ask.prefixes.len().min(MAX_ENTRIES)];
                out.extend([QUERY, u8::from(ask.neighbours), prefixes.len() as u8]);
                prefixes.iter().for_each(|prefix| write_prefix(*prefix, &mut out));
            }
            Self::Reply(entries) => {
                let entries = &entries[..entries.len().min(MAX_ENTRIES)];
                out.extend([REPLY, entries.len() as u8]);
                entries.iter().for_each(|entry| entry.write(&mut out));
            }
            Self::Probe(look) => {
                out.push(PROBE);
                out.extend(look.reply_bytes.min(MAX_PROBE).to_be_bytes());
                out.resize(out.len() + usize::from(look.bytes.min(MAX_PROBE)), 0);
            }
        }
        out
    }

    /// Parses the plaintext of a record.
    ///
    /// # Errors
    /// [`WireError`] for bytes that are no report in its canonical form.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        if plaintext.len() > MAX_RECORD {
            return Err(WireError::TooLarge);
        }
        let report = read_all(plaintext, |cursor| match cursor.byte()? {
            QUERY => ReportQuery::parse_fields(cursor).map(Self::Query),
            REPLY => (0..read_count(cursor)?)
                .map(|_| SectionReport::parse_fields(cursor))
                .collect::<Result<_, _>>()
                .map(Self::Reply),
            PROBE => ProbeTrain::parse_fields(cursor, plaintext.len()).map(Self::Probe),
            _ => Err(WireError::Invalid("an unknown report")),
        })?;
        // The comparison refuses unknown flags, host bits in a prefix and other second encodings.
        if report.write() == plaintext { Ok(report) } else { Err(WireError::Invalid("a report in non-canonical form")) }
    }
}

impl ReportQuery {
    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let neighbours = cursor.byte()? != 0;
        let prefixes = (0..read_count(cursor)?).map(|_| {
            let family = cursor.byte()?;
            read_prefix(family, cursor)
        });
        Ok(Self { neighbours, prefixes: prefixes.collect::<Result<_, _>>()? })
    }
}

impl ProbeTrain {
    fn parse_fields(cursor: &mut Cursor, length: usize) -> Result<Self, WireError> {
        let back = u16::from_be_bytes(cursor.array()?);
        let bytes = length - cursor.position();
        cursor.take(bytes)?;
        let bytes = u16::try_from(bytes).map_err(|_| WireError::TooLarge)?;
        Ok(Self { bytes, reply_bytes: back })
    }
}

impl SectionReport {
    fn write(&self, out: &mut Vec<u8>) {
        match self.subject {
            Subject::Relay(key) | Subject::Caller(key) => {
                out.push(if matches!(self.subject, Subject::Relay(_)) { RELAY } else { CALLER });
                out.extend(key.0);
            }
            Subject::Targets(prefix) => write_prefix(prefix, out),
        }
        self.sending.write(out);
        self.receiving.write(out);
    }

    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let subject = match cursor.byte()? {
            RELAY => Subject::Relay(PublicKey(cursor.array()?)),
            CALLER => Subject::Caller(PublicKey(cursor.array()?)),
            family => Subject::Targets(read_prefix(family, cursor)?),
        };
        Ok(Self {
            subject,
            sending: DirectionEstimate::parse_fields(cursor)?,
            receiving: DirectionEstimate::parse_fields(cursor)?,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as intended")]
#[expect(clippy::cast_precision_loss, reason = "2^52 bytes in a second are out of range")]
impl DirectionEstimate {
    fn write(&self, out: &mut Vec<u8>) {
        let EstimateSnapshot { rtt, loss, rate, at_least, window, segments } = self.snapshot;
        let present = [rtt.is_some(), loss.is_some(), rate.is_some(), at_least.is_some(), window.is_some()];
        out.push(present.iter().enumerate().map(|(bit, is_there)| u8::from(*is_there) << bit).sum());
        out.extend(rtt.iter().flat_map(|rtt| (u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX)).to_be_bytes()));
        out.extend(loss.iter().flat_map(|loss| ((loss.clamp(0.0, 1.0) * BILLION).round() as u32).to_be_bytes()));
        for rate in [rate, at_least].into_iter().flatten() {
            out.extend((rate.round() as u64).min(1 << 52).to_be_bytes());
        }
        out.extend(window.iter().flat_map(|window| u32::try_from(*window).unwrap_or(u32::MAX).to_be_bytes()));
        out.extend((segments.round() as u32).to_be_bytes());
        out.extend(u32::try_from(self.age.as_millis()).unwrap_or(u32::MAX).to_be_bytes());
    }

    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let present = cursor.byte()?;
        let has = |bit: u8| present & 1 << bit != 0;
        let number = |cursor: &mut Cursor| cursor.array().map(u32::from_be_bytes);
        let rate = |cursor: &mut Cursor| cursor.array().map(|bytes| u64::from_be_bytes(bytes) as f64);
        let figures = EstimateSnapshot {
            rtt: read_optional(has(0), || number(cursor))?.map(|micros| Duration::from_micros(micros.into())),
            loss: read_optional(has(1), || number(cursor))?.map(|share| f64::from(share) / BILLION),
            rate: read_optional(has(2), || rate(cursor))?,
            at_least: read_optional(has(3), || rate(cursor))?,
            window: read_optional(has(4), || number(cursor))?.map(u64::from),
            segments: number(cursor)?.into(),
        };
        Ok(Self { snapshot: figures, age: Duration::from_millis(number(cursor)?.into()) })
    }
}

/// Reads a field if its flag `is_there` is set.
fn read_optional<T>(is_there: bool, read: impl FnOnce() -> Result<T, WireError>) -> Result<Option<T>, WireError> {
    if is_there { read().map(Some) } else { Ok(None) }
}

fn read_count(cursor: &mut Cursor) -> Result<usize, WireError> {
    let count = usize::from(cursor.byte()?);
    if count <= MAX_ENTRIES { Ok(count) } else { Err(WireError::Invalid("a number above its bound")) }
}

fn write_prefix(prefix: Prefix, out: &mut Vec<u8>) {
    match prefix.address() {
        IpAddr::V4(v4) => {
            out.push(IPV4);
            out.extend(&v4.octets()[..3]);
        }
        IpAddr::V6(v6) => {
            out.push(IPV6);
            out.extend(&v6.octets()[..6]);
        }
    }
}

fn read_prefix(family: u8, cursor: &mut Cursor) -> Result<Prefix, WireError> {
    let address: IpAddr = match family {
        IPV4 => {
            let [a, b, c] = cursor.array()?;
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IPV6 => {
            let [a, b, c, d, e, f] = cursor.array()?;
            Ipv6Addr::from([a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).into()
        }
        _ => return Err(WireError::Invalid("neither a relay nor a network")),
    };
    Ok(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn estimate() -> DirectionEstimate {
        let figures = EstimateSnapshot {
            rtt: Some(Duration::from_micros(38_600)),
            loss: Some(0.0015),
            rate: Some(1_250_000.0),
            at_least: Some(1_300_000.0),
            window: Some(65_536),
            segments: 1234.0,
        };
        DirectionEstimate { snapshot: figures, age: Duration::from_millis(2_500) }
    }

    fn examples() -> Vec<ReportMessage> {
        let relay = SectionReport {
            subject: Subject::Relay(PublicKey([7; 32])),
            sending: estimate(),
            receiving: DirectionEstimate::default(),
        };
        let caller = SectionReport { subject: Subject::Caller(PublicKey([8; 32])), ..relay };
        let only_rtt = DirectionEstimate {
            snapshot: EstimateSnapshot { loss: None, rate: None, at_least: None, ..estimate().snapshot },
            ..estimate()
        };
        let targets =
            |text| SectionReport { subject: Subject::Targets(prefix(text)), sending: only_rtt, receiving: estimate() };
        let both = vec![prefix("192.0.2.0/24"), prefix("2001:db8:1::/48")];
        vec![
            ReportMessage::Query(ReportQuery::default()),
            ReportMessage::Query(ReportQuery { neighbours: true, prefixes: both }),
            ReportMessage::Reply(Vec::new()),
            ReportMessage::Reply(vec![relay, caller, targets("192.0.2.0/24"), targets("2001:db8:1::/48")]),
            ReportMessage::Probe(ProbeTrain { bytes: 0, reply_bytes: 0 }),
            ReportMessage::Probe(ProbeTrain { bytes: MAX_PROBE, reply_bytes: MAX_PROBE }),
        ]
    }

    #[test]
    fn reports_round_trip() {
        for report in examples() {
            let bytes = report.write();
            assert!(bytes.len() <= MAX_RECORD);
            assert_eq!(ReportMessage::read(&bytes), Ok(report));
        }
    }

    #[test]
    fn truncated_and_oversized_reports_are_refused() {
        for report in examples().iter().filter(|report| !matches!(report, ReportMessage::Probe(_))) {
            let mut bytes = report.write();
            assert!((0..bytes.len()).all(|end| ReportMessage::read(&bytes[..end]).is_err()), "{report:?}");
            bytes.push(0);
            assert!(ReportMessage::read(&bytes).is_err(), "{report:?}");
        }
    }

    #[test]
    fn malformed_reports_are_refused() {
        for bytes in [
            &[9][..],
            &[QUERY, 2, 0],
            &[QUERY, 0, 65],
            &[QUERY, 0, 1, 5, 1, 2, 3],
            // An IPv4 network within IPv6.
            &[QUERY, 0, 1, IPV6, 0, 0, 0, 0, 0, 0, 0],
            &[REPLY, 1, RELAY],
            &[PROBE, 0xff, 0xff],
            &[PROBE, 0, 0, 1],
            &[PROBE, 0],
        ] {
            assert!(ReportMessage::read(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(ReportMessage::read(&vec![PROBE; MAX_RECORD + 1]), Err(WireError::TooLarge));
        let entry =
            SectionReport { subject: Subject::Relay(PublicKey([7; 32])), sending: estimate(), receiving: estimate() };
        let mut unknown_flag = ReportMessage::Reply(vec![entry]).write();
        unknown_flag[35] |= 0x20;
        assert!(ReportMessage::read(&unknown_flag).is_err());
    }

    #[test]
    fn excess_prefixes_are_dropped_and_figures_are_clamped() {
        let many = ReportQuery { neighbours: false, prefixes: vec![prefix("192.0.2.0/24"); MAX_ENTRIES + 1] };
        let Ok(ReportMessage::Query(read)) = ReportMessage::read(&ReportMessage::Query(many).write()) else {
            panic!("not a query")
        };
        assert_eq!(read.prefixes.len(), MAX_ENTRIES);
        let odd = EstimateSnapshot {
            loss: Some(f64::NAN),
            rate: Some(f64::INFINITY),
            segments: -1.0,
            ..EstimateSnapshot::default()
        };
        let estimate = DirectionEstimate { snapshot: odd, age: Duration::MAX };
        let entry =
            SectionReport { subject: Subject::Relay(PublicKey([7; 32])), sending: estimate, receiving: estimate };
        let Ok(ReportMessage::Reply(read)) = ReportMessage::read(&ReportMessage::Reply(vec![entry]).write()) else {
            panic!("not a reply")
        };
        assert_eq!((read[0].sending.snapshot.loss, read[0].sending.snapshot.segments), (Some(0.0), 0.0));
        assert!(read[0].sending.snapshot.rate.unwrap().is_finite());
    }
}
