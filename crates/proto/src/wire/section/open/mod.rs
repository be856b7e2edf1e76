//! OPEN and its answer: the plaintext of the first record each way.
//!
//! Every value has one form, and any other is refused: what reads writes back to the same bytes. (A cause of a later
//! version is the exception, since we do not know it.)

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

/// Most relays that a path may still have.
pub const MAX_HOPS: u8 = 16;

/// Most times in an answer: of the relay that answers, and of those behind it.
const MAX_TIMES: usize = MAX_HOPS as usize + 1;

/// Longest time of one relay.
const MAX_TIME: Duration = Duration::from_secs(60 * 60);

const EARLY: u8 = 1;
const ENCRYPT: u8 = 2;
const DATAGRAMS: u8 = 4;
const REPORT: u8 = 8;

/// What stands in place of a target where there is none.
const NO_TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

const UNKNOWN_ADDRESS: WireError = WireError::Invalid("unknown address type");

/// Names one session on all relays it goes through.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The beginning of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Whether the client was told "connected" already.
    pub early: bool,
    /// Whether the session's bytes are in records, here and on the sections that follow.
    pub encrypt: bool,
    /// Through how many relays more it may go.
    pub hops_left: u8,
    /// Its name on all relays.
    pub trace: TraceId,
    /// Whose session it is.
    pub client: ClientAddr,
    /// The relays that follow, in order.
    pub path: Vec<PublicKey>,
    /// What the last of them is to do.
    pub purpose: Purpose,
}

/// What a session is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// The bytes of one connection to this target.
    Stream(Target),
    /// A lane: packets for the tunnel of the last relay, and packets from there, each of them a record.
    Datagrams,
    /// What relays tell each other of their sections, between the two that have a connection ([`super::report`]).
    Report,
}

impl Purpose {
    /// The target, where there is one.
    #[must_use]
    pub const fn target(&self) -> Option<&Target> {
        match self {
            Self::Stream(target) => Some(target),
            Self::Datagrams | Self::Report => None,
        }
    }

    fn read(cursor: &mut Cursor, flags: u8) -> Result<Self, WireError> {
        let address = WireAddress::read(cursor)?.ok_or(UNKNOWN_ADDRESS)?;
        match (flags & (DATAGRAMS | REPORT), address.to_socket_addr()) {
            (0, _) => address.to_target().map(Self::Stream),
            (DATAGRAMS, Some(NO_TARGET)) => Ok(Self::Datagrams),
            (REPORT, Some(NO_TARGET)) => Ok(Self::Report),
            _ => Err(WireError::Invalid("datagrams or reports with a target")),
        }
    }

    const fn flag(&self) -> u8 {
        match self {
            Self::Stream(_) => 0,
            Self::Datagrams => DATAGRAMS,
            Self::Report => REPORT,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAnswer {
    /// The way to the target stands, or why not.
    pub outcome: Result<(), OpenFailure>,
    /// From OPEN to answer at each relay, the nearest first; whole microseconds, at most an hour.
    pub relay_times: Vec<Duration>,
}

/// Why not, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFailure {
    /// The true cause.
    pub cause: Cause,
    /// The relay that found out: 0 for the one that answers, 1 for the next, ...
    pub relay: u8,
    /// Whether it speaks of the next hop rather than of the target.
    pub is_about_hop: bool,
}

impl Open {
    /// Most bytes it takes.
    pub const MAX_LENGTH: usize = 1 + 1 + 16 + 19 + 1 + MAX_HOPS as usize * key::KEY_LENGTH + 4 + MAX_NAME;

    /// The plaintext.
    ///
    /// # Panics
    /// The path has more than 255 relays; the other side refuses more than [`MAX_HOPS`].
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(self.early, EARLY) | flag(self.encrypt, ENCRYPT) | self.purpose.flag();
        let relays = u8::try_from(self.path.len()).expect("invariant: a path has at most 16 relays");
        let mut out = vec![flags, self.hops_left];
        out.extend(self.trace.0);
        address::write(&Host::from(self.client.0.ip()), self.client.0.port(), &mut out);
        out.push(relays);
        out.extend(self.path.iter().flat_map(|key| key.0));
        match &self.purpose {
            Purpose::Stream(target) => address::write(&target.host, target.port, &mut out),
            Purpose::Datagrams | Purpose::Report => {
                address::write(&Host::from(NO_TARGET.ip()), NO_TARGET.port(), &mut out)
            }
        }
        out
    }

    /// Reads the plaintext.
    ///
    /// # Errors
    /// It is none.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        let open = read_all(plaintext, Self::parse_fields)?;
        // So nothing is left to judge of unknown flags, capital letters, IPv4 within IPv6 and the like.
        if open.write() == plaintext {
            Ok(open)
        } else {
            Err(WireError::Invalid("an OPEN in another form than its own"))
        }
    }

    fn parse_fields(cursor: &mut Cursor) -> Result<Self, WireError> {
        let flags = cursor.byte()?;
        if flags & (DATAGRAMS | REPORT) != 0 && flags & ENCRYPT == 0 {
            return Err(WireError::Invalid("datagrams or reports that are not in records"));
        }
        let open = Self {
            early: flags & EARLY != 0,
            encrypt: flags & ENCRYPT != 0,
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
            return Err(WireError::Invalid("reports that go on to other relays"));
        }
        Ok(open)
    }
}

impl OpenAnswer {
    /// Most bytes it takes.
    pub const MAX_LENGTH: usize = 4 + 4 * MAX_TIMES;

    /// The plaintext. Times beyond the seventeenth are left out, and none is written as more than an hour.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let times = &self.relay_times[..self.relay_times.len().min(MAX_TIMES)];
        let mut out = match self.outcome {
            Ok(()) => vec![0, 0, 0],
            Err(failure) => vec![failure.cause.code(), failure.relay.min(MAX_HOPS), u8::from(failure.is_about_hop)],
        };
        out.push(times.len() as u8);
        // An hour is fewer than 2^32 microseconds.
        out.extend(times.iter().flat_map(|time| ((*time).min(MAX_TIME).as_micros() as u32).to_be_bytes()));
        out
    }

    /// Reads the plaintext. A cause of a later version is [`Cause::HopFailed`].
    ///
    /// # Errors
    /// It is none.
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

/// Reads a plaintext to its end. Nothing can follow it, so what is missing will never come.
pub(super) fn read_all<T>(
    plaintext: &[u8],
    read: impl FnOnce(&mut Cursor) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let mut cursor = Cursor::new(plaintext);
    match read(&mut cursor) {
        Ok(value) if cursor.position() == plaintext.len() => Ok(value),
        Ok(_) => Err(WireError::Invalid("bytes behind the last field")),
        Err(WireError::Incomplete) => Err(WireError::Invalid("cut short")),
        Err(error) => Err(error),
    }
}

fn check_max(number: u8, most: u8) -> Result<u8, WireError> {
    if number <= most { Ok(number) } else { Err(WireError::Invalid("a number above its bound")) }
}

impl TraceId {
    /// A new one, by chance.
    ///
    /// # Panics
    /// The system has no randomness.
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
mod tests;
