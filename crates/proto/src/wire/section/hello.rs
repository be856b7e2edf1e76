//! The first frame in each direction: the versions that its sender supports, and a handshake message or a refusal.
//!
//! The header is the same in all versions, so that relays without a common version can still report this to each other.

use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// The first bytes of every hello. No text, TLS record or SOCKS message begins with the byte 0xe9. After the line end,
/// a server of a line-based protocol replies with an error at once instead of waiting for more bytes. (The first three
/// bytes are 駅 in UTF-8.)
const MAGIC: [u8; 5] = *b"\xe9\xa7\x85\r\n";

/// Maximum length of a handshake message in any version, in bytes.
pub const MAX_MESSAGE: usize = 1024;

const HANDSHAKE: u8 = 0;
const VERSION: u8 = 1;
const WRONG_KEY: u8 = 2;
const UNKNOWN_PEER: u8 = 3;
const RESUMPTION: u8 = 4;
const UNKNOWN_TICKET: u8 = 5;

/// The protocol versions of a relay: all versions from the oldest to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest supported version; a hello has the format of this version.
    pub oldest: u8,
    /// The newest supported version.
    pub newest: u8,
}

impl Versions {
    /// The versions of this program.
    pub const SUPPORTED: Self = Self { oldest: 1, newest: 3 };

    /// The newest version in both ranges; `None` if there is none.
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

/// The reason why a relay refuses a connection. It is not authenticated, so it is only a hint for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No version is supported by both sides. Contains the versions of the side that refuses.
    #[error("it supports versions {} to {} of the section protocol", .0.oldest, .0.newest)]
    Version(Versions),
    /// The hello was made for another key than the relay's.
    #[error("its key is not the configured key")]
    WrongKey,
    /// The key of the dialling relay is not among the relay's peers.
    #[error("it does not list the key of this relay among its peers")]
    UnknownPeer,
    /// The relay cannot open the ticket, because the relay has restarted or the ticket has expired.
    #[error("it does not recognize the ticket")]
    UnknownTicket,
}

/// The first frame of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the sender supports.
    pub versions: Versions,
    /// Whether the message begins with a ticket, from an earlier handshake of both relays.
    pub is_resumption: bool,
    /// A handshake message, or the reason for a refusal.
    pub message: Result<Vec<u8>, Refusal>,
}

impl Hello {
    /// Length of the fixed part of a hello, in bytes.
    pub const HEADER_LENGTH: usize = MAGIC.len() + 5;

    /// Reads a whole hello.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for bytes that are no hello, [`WireError::TooLarge`] for a message above [`MAX_MESSAGE`].
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        let (mut hello, length) = Self::read_header(&mut cursor)?;
        if let Ok(message) = &mut hello.message {
            message.extend_from_slice(cursor.take(length)?);
        }
        Ok((hello, cursor.position()))
    }

    /// Encodes the hello. A refusal for the versions is encoded with the versions of this hello.
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

    /// Encodes the beginning of a hello, up to its versions.
    pub(super) fn encode_versions(versions: Versions) -> [u8; MAGIC.len() + 2] {
        let [a, b, c, d, e] = MAGIC;
        [a, b, c, d, e, versions.oldest, versions.newest]
    }

    /// Reads a hello without its message, and the message's length. Fails at the first invalid byte.
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
