//! The first frame each way: which versions its sender speaks, and a handshake message or a refusal.
//!
//! The header is the same in all versions, so that programs which have none in common can still tell each other so.

use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// How every hello begins. No text, no TLS record and no SOCKS message begins with such a byte; the end of a line makes
/// a server that reads lines say at once that it is none of ours, instead of waiting for more. (It spells 駅.)
const MAGIC: [u8; 5] = *b"\xe9\xa7\x85\r\n";

/// Longest handshake message, in bytes, in any version.
pub const MAX_MESSAGE: usize = 1024;

const HANDSHAKE: u8 = 0;
const VERSION: u8 = 1;
const WRONG_KEY: u8 = 2;
const UNKNOWN_PEER: u8 = 3;
const RESUMPTION: u8 = 4;
const UNKNOWN_TICKET: u8 = 5;

/// The protocol versions of a relay: all from the oldest to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest; a hello is in its format.
    pub oldest: u8,
    /// The newest supported version.
    pub newest: u8,
}

impl Versions {
    /// The versions of this program.
    pub const SUPPORTED: Self = Self { oldest: 1, newest: 3 };

    /// The newest that both speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    fn read(cursor: &mut Cursor) -> Result<Self, WireError> {
        let oldest = cursor.byte()?;
        if oldest == 0 {
            return Err(WireError::Invalid("version 0 of the section protocol"));
        }
        let newest = cursor.byte()?;
        if newest < oldest {
            return Err(WireError::Invalid("versions of the section protocol in the wrong order"));
        }
        Ok(Self { oldest, newest })
    }
}

/// Why a relay does not want a connection. It is not authenticated: a hint for the operator, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No version that both speak.
    #[error("it supports versions {} to {} of the section protocol", .0.oldest, .0.newest)]
    Version(Versions),
    /// The hello was not made for this relay's key.
    #[error("its key is not the configured key")]
    WrongKey,
    /// Our own key is not among its peers.
    #[error("it does not list the key of this relay among its peers")]
    UnknownPeer,
    /// The ticket says nothing to it: it has restarted, or the ticket is too old.
    #[error("it does not recognize the ticket")]
    UnknownTicket,
}

/// The first frame of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the sender supports.
    pub versions: Versions,
    /// Whether the message begins with a ticket, because both have met before.
    pub is_resumption: bool,
    /// A handshake message, or why there is none.
    pub message: Result<Vec<u8>, Refusal>,
}

impl Hello {
    /// Bytes of the part that has a fixed length.
    pub const HEADER_LENGTH: usize = MAGIC.len() + 5;

    /// Reads a whole hello.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for anything else.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        let (mut hello, length) = Self::read_header(&mut cursor)?;
        if let Ok(message) = &mut hello.message {
            message.extend_from_slice(cursor.take(length)?);
        }
        Ok((hello, cursor.position()))
    }

    /// The bytes of it. A refusal for its versions names those of this hello.
    ///
    /// # Panics
    /// The message is longer than [`MAX_MESSAGE`].
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let (kind, message) = match &self.message {
            Ok(message) => (if self.is_resumption { RESUMPTION } else { HANDSHAKE }, message.as_slice()),
            Err(Refusal::Version(_)) => (VERSION, [].as_slice()),
            Err(Refusal::WrongKey) => (WRONG_KEY, [].as_slice()),
            Err(Refusal::UnknownPeer) => (UNKNOWN_PEER, [].as_slice()),
            Err(Refusal::UnknownTicket) => (UNKNOWN_TICKET, [].as_slice()),
        };
        assert!(message.len() <= MAX_MESSAGE, "a handshake message of {} bytes", message.len());
        let length = message.len() as u16;
        let mut bytes = Self::encode_versions(self.versions).to_vec();
        bytes.push(kind);
        bytes.extend(length.to_be_bytes());
        bytes.extend(message);
        bytes
    }

    /// The beginning of a hello, up to its versions.
    pub(super) fn encode_versions(versions: Versions) -> [u8; MAGIC.len() + 2] {
        let [a, b, c, d, e] = MAGIC;
        [a, b, c, d, e, versions.oldest, versions.newest]
    }

    /// A hello without its message, and how long that is. Refused at the first byte that cannot be right.
    fn read_header(cursor: &mut Cursor) -> Result<(Self, usize), WireError> {
        for byte in MAGIC {
            cursor.expect(byte, "not the section protocol")?;
        }
        let versions = Versions::read(cursor)?;
        let kind = cursor.byte()?;
        let message = match kind {
            HANDSHAKE | RESUMPTION => Ok(Vec::new()),
            VERSION => Err(Refusal::Version(versions)),
            WRONG_KEY => Err(Refusal::WrongKey),
            UNKNOWN_PEER => Err(Refusal::UnknownPeer),
            UNKNOWN_TICKET => Err(Refusal::UnknownTicket),
            _ => return Err(WireError::Invalid("a hello of an unknown type")),
        };
        let length = usize::from(u16::from_be_bytes(cursor.array()?));
        match message {
            Ok(_) if length > MAX_MESSAGE => Err(WireError::TooLarge),
            Err(_) if length > 0 => Err(WireError::Invalid("a refusal with trailing bytes")),
            message => Ok((Self { versions, is_resumption: kind == RESUMPTION, message }, length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::feeding::feed;

    const FUTURE: Versions = Versions { oldest: 2, newest: 9 };

    #[test]
    fn hellos_round_trip() {
        for message in [
            Ok(vec![]),
            Ok(b"a message".to_vec()),
            Ok(vec![7; MAX_MESSAGE]),
            Err(Refusal::Version(FUTURE)),
            Err(Refusal::WrongKey),
            Err(Refusal::UnknownPeer),
            Err(Refusal::UnknownTicket),
        ] {
            let again = message.as_ref().is_ok_and(|message| message.len() == MAX_MESSAGE);
            let hello = Hello { versions: FUTURE, is_resumption: again, message };
            let bytes = hello.write();
            assert_eq!(feed(&bytes, Hello::parse), hello);
        }
        let hello =
            Hello { versions: Versions { oldest: 1, newest: 2 }, is_resumption: false, message: Ok(b"hi".to_vec()) };
        assert_eq!(hello.write(), b"\xe9\xa7\x85\r\n\x01\x02\x00\x00\x02hi");
    }

    #[test]
    fn malformed_hellos_are_refused_at_once() {
        for (bytes, error) in [
            (b"GET / HTTP/1.1\r\n\r\n".as_slice(), WireError::Invalid("not the section protocol")),
            (b"HTTP/1.1 400 Bad Request\r\n", WireError::Invalid("not the section protocol")),
            (b"SSH-2.0-OpenSSH_9.9\r\n", WireError::Invalid("not the section protocol")),
            (b"\x16\x03\x01\x02\x00", WireError::Invalid("not the section protocol")),
            (b"\x05", WireError::Invalid("not the section protocol")),
            (b"\xe9\xa7\x85\n", WireError::Invalid("not the section protocol")),
            (b"\xe9\xa7\x85\r\n\x00", WireError::Invalid("version 0 of the section protocol")),
            (b"\xe9\xa7\x85\r\n\x02\x01", WireError::Invalid("versions of the section protocol in the wrong order")),
            (b"\xe9\xa7\x85\r\n\x01\x01\x06", WireError::Invalid("a hello of an unknown type")),
            (b"\xe9\xa7\x85\r\n\x01\x01\x02\x00\x01", WireError::Invalid("a refusal with trailing bytes")),
            (b"\xe9\xa7\x85\r\n\x01\x01\x00\x04\x01", WireError::TooLarge),
        ] {
            assert_eq!(Hello::parse(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn highest_common_version_is_chosen() {
        for (one, other, common) in [
            ((1, 1), (1, 1), Some(1)),
            ((1, 2), (1, 1), Some(1)),
            ((1, 3), (2, 5), Some(3)),
            ((1, 5), (2, 3), Some(3)),
            ((2, 3), (1, 1), None),
            ((1, 255), (255, 255), Some(255)),
        ] {
            let [one, other] = [one, other].map(|(oldest, newest)| Versions { oldest, newest });
            assert_eq!(one.common(other), common, "{one:?} {other:?}");
            assert_eq!(other.common(one), common, "{one:?} {other:?}");
        }
    }
}
