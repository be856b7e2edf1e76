//! OPEN and its answer: the plaintext of the first record in each direction.
//!
//! Every value has one encoding, and any other is refused: a parsed value encodes to the bytes it was read from. (An
//! unknown cause, from a later version, is the exception: it is read as [`Cause::HopFailed`].)

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::addr::{ClientAddr, Host, MAX_NAME, Target};
use crate::cause::Cause;
use crate::key::{self, PublicKey};
use crate::wire::WireError;
use crate::wire::address::{self, WireAddress};
use crate::wire::cursor::Cursor;

/// Maximum of [`Open::hops_left`], and of the number of relays in [`Open::path`].
pub const MAX_HOPS: u8 = 16;

/// Maximum number of times in an answer: one of the relay that answers, and one of each relay after it.
const MAX_TIMES: usize = MAX_HOPS as usize + 1;

/// Maximum of the time of one relay; a longer time is written as this one, and refused when it is read.
const MAX_TIME: Duration = Duration::from_secs(60 * 60);

const EARLY: u8 = 1;
const ENCRYPT: u8 = 2;
const DATAGRAMS: u8 = 4;
const REPORT: u8 = 8;
const REUSABLE: u8 = 16;
const ASSOCIATION: u8 = 32;

/// Flags of the purposes without a target, of which an OPEN has at most one.
const NO_STREAM: u8 = DATAGRAMS | REPORT | ASSOCIATION;

/// The encoding of a missing target.
const NO_TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(super) const UNKNOWN_ADDRESS: WireError = WireError::Invalid("unknown address type");

/// Identifier of one session, the same on all its relays.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The request that begins a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Whether the client has already received the reply that it is connected.
    pub early: bool,
    /// Whether the session's bytes are in records, on this section and on the sections after it.
    pub encrypt: bool,
    /// Whether the connection carries another session after this one. Only from version 2 on.
    pub reusable: bool,
    /// Number of further relays that the session may cross.
    pub hops_left: u8,
    /// Identifier of the session, the same on all its relays.
    pub trace: TraceId,
    /// The address of the session's client.
    pub client: ClientAddr,
    /// The relays after this one, in the order of dialling.
    pub path: Vec<PublicKey>,
    /// The purpose of the connection at the last relay.
    pub purpose: Purpose,
}

/// The purpose of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// The bytes of one connection to this target.
    Stream(Target),
    /// A lane: packets to and from the tunnel of the last relay, one in each record.
    Datagrams,
    /// Datagrams of one client, one in each record, after its address ([`super::datagram`]). Only from version 3 on.
    Association,
    /// Reports about sections, between the two relays of the connection ([`super::report`]).
    Report,
}

impl Purpose {
    /// The target; `None` for a purpose without one.
    #[must_use]
    pub const fn target(&self) -> Option<&Target> {
        match self {
            Self::Stream(target) => Some(target),
            Self::Datagrams | Self::Association | Self::Report => None,
        }
    }

    fn read(cursor: &mut Cursor, flags: u8) -> Result<Self, WireError> {
        let address = WireAddress::read(cursor)?.ok_or(UNKNOWN_ADDRESS)?;
        match (flags & NO_STREAM, address.to_socket_addr()) {
            (0, _) => address.to_target().map(Self::Stream),
            (DATAGRAMS, Some(NO_TARGET)) => Ok(Self::Datagrams),
            (ASSOCIATION, Some(NO_TARGET)) => Ok(Self::Association),
            (REPORT, Some(NO_TARGET)) => Ok(Self::Report),
            _ => Err(WireError::Invalid("datagrams or reports with a target")),
        }
    }

    const fn flag(&self) -> u8 {
        match self {
            Self::Stream(_) => 0,
            Self::Datagrams => DATAGRAMS,
            Self::Association => ASSOCIATION,
            Self::Report => REPORT,
        }
    }
}

/// The result of an OPEN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAnswer {
    /// Success once the target is connected, else the failure.
    pub outcome: Result<(), OpenFailure>,
    /// Time from OPEN to answer at each relay, the nearest first; whole microseconds, at most an hour.
    pub relay_times: Vec<Duration>,
}

/// The cause of a failure, and the relay that reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFailure {
    /// The cause, as determined by the relay that failed.
    pub cause: Cause,
    /// The relay that failed: 0 for the relay that answers, 1 for the next one, ...
    pub relay: u8,
    /// Whether the cause concerns the next hop, not the target.
    pub is_about_hop: bool,
}

impl Open {
    /// Length of the longest OPEN, in bytes.
    pub const MAX_LENGTH: usize = 1 + 1 + 16 + 19 + 1 + MAX_HOPS as usize * key::KEY_LENGTH + 4 + MAX_NAME;

    /// Encodes the plaintext of the OPEN record.
    ///
    /// # Panics
    /// The path has more than 255 relays; the other side refuses more than [`MAX_HOPS`].
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(self.early, EARLY) | flag(self.encrypt, ENCRYPT);
        let flags = flags | flag(self.reusable, REUSABLE) | self.purpose.flag();
        let relays = u8::try_from(self.path.len()).expect("invariant: a path has at most 16 relays");
        let mut out = vec![flags, self.hops_left];
        out.extend(self.trace.0);
        address::write(&Host::from(self.client.0.ip()), self.client.0.port(), &mut out);
        out.push(relays);
        out.extend(self.path.iter().flat_map(|key| key.0));
        match &self.purpose {
            Purpose::Stream(target) => address::write(&target.host, target.port, &mut out),
            Purpose::Datagrams | Purpose::Association | Purpose::Report => {
                address::write(&Host::from(NO_TARGET.ip()), NO_TARGET.port(), &mut out)
            }
        }
        out
    }

    /// Parses the plaintext of an OPEN record.
    ///
    /// # Errors
    /// [`WireError`] for bytes that are no OPEN in its canonical form.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        let open = read_all(plaintext, Self::parse_fields)?;
        // The comparison refuses unknown flags, capital letters in names, IPv4-mapped addresses and other second
        // encodings.
        if open.write() == plaintext { Ok(open) } else { Err(WireError::Invalid("an OPEN in non-canonical form")) }
    }

    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let flags = cursor.byte()?;
        if flags & NO_STREAM != 0 && flags & ENCRYPT == 0 {
            return Err(WireError::Invalid("datagrams or reports that are not in records"));
        }
        if flags & NO_STREAM != 0 && flags & REUSABLE != 0 {
            return Err(WireError::Invalid("datagrams or reports with a following session"));
        }
        let open = Self {
            early: flags & EARLY != 0,
            encrypt: flags & ENCRYPT != 0,
            reusable: flags & REUSABLE != 0,
            hops_left: check_max(cursor.byte()?, MAX_HOPS)?,
            trace: TraceId(cursor.array()?),
            client: WireAddress::read(cursor)?
                .and_then(|client| client.to_socket_addr())
                .map(ClientAddr)
                .ok_or(UNKNOWN_ADDRESS)?,
            path: (0..check_max(cursor.byte()?, MAX_HOPS)?)
                .map(|_| cursor.array().map(PublicKey))
                .collect::<Result<_, _>>()?,
            purpose: Purpose::read(cursor, flags)?,
        };
        if open.purpose == Purpose::Report && !open.path.is_empty() {
            return Err(WireError::Invalid("reports with further relays"));
        }
        Ok(open)
    }
}

impl OpenAnswer {
    /// Length of the longest answer, in bytes.
    pub const MAX_LENGTH: usize = 4 + 4 * MAX_TIMES;

    /// Encodes the plaintext of the answer. Times after the seventeenth are omitted; a time above one hour is written
    /// as one hour.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let times = &self.relay_times[..self.relay_times.len().min(MAX_TIMES)];
        let mut out = match self.outcome {
            Ok(()) => vec![0, 0, 0],
            Err(failure) => vec![failure.cause.code(), failure.relay.min(MAX_HOPS), u8::from(failure.is_about_hop)],
        };
        out.push(times.len() as u8);
        // An hour in microseconds fits in 32 bits.
        out.extend(times.iter().flat_map(|time| ((*time).min(MAX_TIME).as_micros() as u32).to_be_bytes()));
        out
    }

    /// Parses the plaintext of an answer. An unknown cause, from a later version, is read as [`Cause::HopFailed`].
    ///
    /// # Errors
    /// [`WireError`] for bytes that are no answer.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        read_all(plaintext, Self::parse_fields)
    }

    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let outcome = match cursor.array()? {
            [0, 0, 0] => Ok(()),
            [0, ..] => return Err(WireError::Invalid("a success with a cause")),
            [code, relay, of_hop] => Err(OpenFailure {
                cause: Cause::from_code(code),
                relay: check_max(relay, MAX_HOPS)?,
                is_about_hop: check_max(of_hop, 1)? == 1,
            }),
        };
        let times = (0..check_max(cursor.byte()?, MAX_TIMES as u8)?)
            .map(|_| {
                let time = Duration::from_micros(u32::from_be_bytes(cursor.array()?).into());
                if time <= MAX_TIME { Ok(time) } else { Err(WireError::Invalid("a time of more than an hour")) }
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { outcome, relay_times: times })
    }
}

/// Reads a plaintext to its end. The plaintext is complete, so missing bytes are an error and not
/// [`WireError::Incomplete`].
pub(super) fn read_all<T>(
    plaintext: &[u8],
    read: impl FnOnce(&mut Cursor) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let mut cursor = Cursor::new(plaintext);
    match read(&mut cursor) {
        Ok(value) if cursor.position() == plaintext.len() => Ok(value),
        Ok(_) => Err(WireError::Invalid("bytes after the last field")),
        Err(WireError::Incomplete) => Err(WireError::Invalid("cut short")),
        Err(error) => Err(error),
    }
}

fn check_max(number: u8, most: u8) -> Result<u8, WireError> {
    if number <= most { Ok(number) } else { Err(WireError::Invalid("a number above its bound")) }
}

impl TraceId {
    /// Generates a random identifier.
    ///
    /// # Panics
    /// The system's random number generator fails.
    #[must_use]
    pub fn generate() -> Self {
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).expect("the system has no randomness");
        Self(id)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serialize_as_text!(TraceId);

#[cfg(test)]
mod tests {
    use super::*;

    /// An OPEN with mandatory fields only.
    fn smallest() -> Open {
        Open {
            early: false,
            encrypt: false,
            reusable: false,
            hops_left: 0,
            trace: TraceId([9; 16]),
            client: ClientAddr("192.0.2.7:4000".parse().unwrap()),
            path: vec![],
            purpose: Purpose::Stream("a:1".parse().unwrap()),
        }
    }

    /// A lane with mandatory fields only.
    fn lane() -> Open {
        Open { encrypt: true, purpose: Purpose::Datagrams, ..smallest() }
    }

    fn association() -> Open {
        Open { purpose: Purpose::Association, ..lane() }
    }

    fn largest() -> Open {
        let name = ["a"; 127].join(".");
        Open {
            early: true,
            encrypt: true,
            hops_left: MAX_HOPS,
            client: ClientAddr("[2001:db8::7]:65535".parse().unwrap()),
            path: (0..MAX_HOPS).map(|n| PublicKey([n; key::KEY_LENGTH])).collect(),
            purpose: Purpose::Stream(Target::new(Host::parse(&name).unwrap(), 65_535).unwrap()),
            ..smallest()
        }
    }

    fn failed(cause: Cause, relay: u8, of_hop: bool) -> OpenAnswer {
        OpenAnswer {
            outcome: Err(OpenFailure { cause, relay, is_about_hop: of_hop }),
            relay_times: vec![Duration::from_micros(7)],
        }
    }

    #[test]
    fn opens_round_trip() {
        let to = |target: &str| Open { purpose: Purpose::Stream(target.parse().unwrap()), ..smallest() };
        for open in [
            smallest(),
            largest(),
            to("192.0.2.1:443"),
            to("[2001:db8::1]:443"),
            Open { early: true, ..smallest() },
            Open { encrypt: true, ..smallest() },
            Open { reusable: true, ..smallest() },
            Open { reusable: true, encrypt: true, ..smallest() },
            lane(),
            Open { early: true, path: vec![PublicKey([1; 32])], ..lane() },
            association(),
            Open { path: vec![PublicKey([1; 32])], ..association() },
            Open { client: ClientAddr("[fe80::1]:0".parse().unwrap()), ..smallest() },
        ] {
            assert_eq!(Open::read(&open.write()), Ok(open));
        }
        assert_eq!(largest().write().len(), Open::MAX_LENGTH);
        let mapped = Open { client: ClientAddr("[::ffff:192.0.2.7]:4000".parse().unwrap()), ..smallest() };
        assert_eq!(mapped.write(), smallest().write());
    }

    #[test]
    fn opens_have_the_specified_encoding() {
        let open = Open { early: true, hops_left: 3, path: vec![PublicKey([0xab; 32])], ..smallest() };
        let expected = [
            b"\x01\x03".as_slice(),
            &[9; 16],
            b"\x01\xc0\x00\x02\x07\x0f\xa0",
            b"\x01",
            &[0xab; 32],
            b"\x03\x01a\x00\x01",
        ];
        assert_eq!(open.write(), expected.concat());
        let expected = [b"\x06\0".as_slice(), &[9; 16], b"\x01\xc0\x00\x02\x07\x0f\xa0", b"\0", b"\x01\0\0\0\0\0\0"];
        assert_eq!(lane().write(), expected.concat());
        let expected = [b"\x22\0".as_slice(), &[9; 16], b"\x01\xc0\x00\x02\x07\x0f\xa0", b"\0", b"\x01\0\0\0\0\0\0"];
        assert_eq!(association().write(), expected.concat());
    }

    #[test]
    fn truncated_messages_and_trailing_bytes_are_refused() {
        for whole in [smallest().write(), largest().write(), lane().write(), association().write()] {
            for end in 0..whole.len() {
                assert!(matches!(Open::read(&whole[..end]), Err(WireError::Invalid(_))), "{end} bytes");
            }
            assert!(matches!(Open::read(&[whole.as_slice(), b"\0"].concat()), Err(WireError::Invalid(_))));
        }
        for whole in
            [OpenAnswer { outcome: Ok(()), relay_times: vec![] }.write(), failed(Cause::Refused, 1, true).write()]
        {
            for end in 0..whole.len() {
                assert!(matches!(OpenAnswer::read(&whole[..end]), Err(WireError::Invalid(_))), "{end} bytes");
            }
            assert!(matches!(OpenAnswer::read(&[whole.as_slice(), b"\0"].concat()), Err(WireError::Invalid(_))));
        }
    }

    #[test]
    fn opens_out_of_bounds_or_not_canonical_are_refused() {
        // All fields before the client, the path and the target.
        let head = [b"\0\0".as_slice(), &[9; 16]].concat();
        let client = b"\x01\xc0\x00\x02\x07\x0f\xa0".as_slice();
        let no_path = b"\0".as_slice();
        for (defect, bytes) in [
            ("an unknown flag", [b"\x40\0", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
            ("a lane with a target", [b"\x06\0", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
            ("a lane with a port", [b"\x06\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\x01"].concat()),
            ("a lane to a host", [b"\x06\0", &head[2..], client, no_path, b"\x01\xc0\0\x02\x01\0\0"].concat()),
            ("a lane of the other family", [b"\x06\0", &head[2..], client, no_path, b"\x04", &[0; 18]].concat()),
            ("a lane that ends", [b"\x16\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("a lane without records", [b"\x04\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("an association with a target", [b"\x22\0", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
            ("an association in clear", [b"\x20\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("an association that ends", [b"\x32\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("a lane and an association", [b"\x26\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("no lane, and no target", [&head, client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
            ("17 hops left", [b"\0\x11", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
            ("a client by name", [&head, b"\x03\x01a\x0f\xa0".as_slice(), no_path, b"\x03\x01a\0\x01"].concat()),
            ("an unknown client", [&head, b"\x02".as_slice(), no_path, b"\x03\x01a\0\x01"].concat()),
            ("17 relays", [&head, client, b"\x11", &[1; 17 * 32], b"\x03\x01a\0\x01"].concat()),
            ("an unknown target", [&head, client, no_path, b"\x02a\0\x01"].concat()),
            ("port 0", [&head, client, no_path, b"\x03\x01a\0\0"].concat()),
            ("an empty name", [&head, client, no_path, b"\x03\x00\0\x01"].concat()),
            ("capital letters", [&head, client, no_path, b"\x03\x01A\0\x01"].concat()),
            ("a dot at the end", [&head, client, no_path, b"\x03\x02a.\0\x01"].concat()),
            ("an address as a name", [&head, client, no_path, b"\x03\x07192.0.2\0\x01"].concat()),
            ("an address as a name", [&head, client, no_path, b"\x03\x09192.0.2.1\0\x01"].concat()),
            (
                "IPv4 in IPv6",
                [&head, client, no_path, b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\x01"].concat(),
            ),
        ] {
            assert!(matches!(Open::read(&bytes), Err(WireError::Invalid(_))), "{defect}");
        }
        let good = [&head, client, no_path, b"\x03\x01a\0\x01"].concat();
        assert_eq!(Open::read(&good), Ok(smallest()));
    }

    #[test]
    fn answers_round_trip() {
        let times = vec![Duration::from_micros(1_500), Duration::ZERO, MAX_TIME];
        let success = OpenAnswer { outcome: Ok(()), relay_times: times };
        assert_eq!(success.write(), b"\0\0\0\x03\0\0\x05\xdc\0\0\0\0\xd6\x93\xa4\0");
        assert_eq!(OpenAnswer::read(&success.write()), Ok(success));
        for cause in Cause::ALL {
            for (relay, of_hop) in [(0, false), (MAX_HOPS, true)] {
                let answer = failed(cause, relay, of_hop);
                assert_eq!(OpenAnswer::read(&answer.write()), Ok(answer));
            }
        }
    }

    #[test]
    fn answers_are_written_within_their_bounds() {
        let endless = OpenAnswer {
            outcome: Err(OpenFailure { cause: Cause::Loop, relay: 200, is_about_hop: false }),
            relay_times: vec![Duration::MAX; 300],
        };
        let bounded = OpenAnswer {
            outcome: Err(OpenFailure { cause: Cause::Loop, relay: MAX_HOPS, is_about_hop: false }),
            relay_times: vec![MAX_TIME; MAX_TIMES],
        };
        assert_eq!(endless.write().len(), OpenAnswer::MAX_LENGTH);
        assert_eq!(OpenAnswer::read(&endless.write()), Ok(bounded));
    }

    #[test]
    fn unknown_cause_codes_are_read_as_hop_failed() {
        for of_hop in [false, true] {
            let mut bytes = failed(Cause::Refused, 2, of_hop).write();
            bytes[0] = 200;
            assert_eq!(OpenAnswer::read(&bytes), Ok(failed(Cause::HopFailed, 2, of_hop)));
        }
    }

    #[test]
    fn answers_out_of_bounds_are_refused() {
        for bytes in [
            b"\x00\x01\x00\x00".as_slice(),
            b"\x00\x00\x01\x00",
            b"\x01\x11\x00\x00",
            b"\x01\x00\x02\x00",
            b"\x00\x00\x00\x01\xd6\x93\xa4\x01",
            &[b"\x00\x00\x00\x12".as_slice(), &[0; 18 * 4]].concat(),
        ] {
            assert!(matches!(OpenAnswer::read(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
        }
    }

    #[test]
    fn trace_ids_differ_and_show_as_hex() {
        assert_ne!(TraceId::generate(), TraceId::generate());
        assert_eq!(TraceId([0x0a; 16]).to_string(), "0a".repeat(16));
    }
}
