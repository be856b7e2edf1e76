//! SOCKS4 and SOCKS4a, the server's side: one request, and one answer of eight bytes.
//!
//! There is no RFC: SOCKS4 is specified in Ying-Da Lee's "SOCKS: A protocol for TCP proxy across firewalls", SOCKS4a is
//! his extension for names. The user id is an unverified claim and does not authenticate a user. The replies about
//! identd (92, 93) are not sent.

use super::cursor::Cursor;
pub use super::socks5::Command;
use super::{Parsed, WireError};
use crate::addr::{Host, MAX_NAME, Target};

/// First byte of a request.
pub const VERSION: u8 = 4;

/// Maximum length of a user id in bytes; the protocol has no limit.
const MAX_USER: usize = 255;

/// The request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socks4Request {
    /// CONNECT or BIND; SOCKS4 has no other command.
    pub command: Command,
    /// An IPv4 address, or in SOCKS4a a name.
    pub target: Target,
    /// The user id that the client claims.
    pub user: Vec<u8>,
}

impl Socks4Request {
    /// Reads `4, command, port, address, user, 0` and in SOCKS4a `name, 0`.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for any other version or command, for port 0, and for a user or name that is too long.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(VERSION, "not SOCKS4")?;
        let command = match cursor.byte()? {
            1 => Command::Connect,
            2 => Command::Bind,
            _ => return Err(WireError::Invalid("unknown SOCKS4 command")),
        };
        let port = cursor.port()?;
        let address: [u8; 4] = cursor.array()?;
        let user = cursor.until_nul(MAX_USER, "user id longer than 255 bytes")?.to_vec();
        let host = match address {
            // "IP address 0.0.0.x, with x nonzero" announces a name (SOCKS4a).
            [0, 0, 0, 1..=255] => read_name(&mut cursor)?,
            address => Host::from(address),
        };
        let target = Target::new(host, port).map_err(|_| WireError::Invalid("port 0"))?;
        Ok((Self { command, target, user }, cursor.position()))
    }
}

fn read_name(cursor: &mut Cursor<'_>) -> Result<Host, WireError> {
    // One byte more than the longest name, for a dot at its end.
    let name = cursor.until_nul(MAX_NAME + 1, "name longer than 253 bytes")?;
    let name = std::str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok());
    name.ok_or(WireError::Invalid("not a host name"))
}

/// The answer to a request: granted (90), or rejected or failed (91). The address after the code is zero, as clients
/// ignore it.
#[must_use]
pub const fn reply(granted: bool) -> [u8; 8] {
    [0, if granted { 90 } else { 91 }, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::feeding::feed;

    #[test]
    fn requests_are_read() {
        for (bytes, command, target, user) in [
            (b"\x04\x01\x00\x50\xc0\x00\x02\x01\x00".as_slice(), Command::Connect, "192.0.2.1:80", b"".as_slice()),
            (b"\x04\x02\x01\xbb\xc0\x00\x02\x01me\x00", Command::Bind, "192.0.2.1:443", b"me"),
            (b"\x04\x01\x00\x50\x00\x00\x00\x01\x00Example.com\x00", Command::Connect, "example.com:80", b""),
            (b"\x04\x01\x00\x50\x00\x00\x00\xffme\x00a.b\x00", Command::Connect, "a.b:80", b"me"),
            (b"\x04\x01\x00\x50\x00\x00\x00\x09\x00192.0.2.7\x00", Command::Connect, "192.0.2.7:80", b""),
            (b"\x04\x01\x00\x50\x00\x00\x00\x00\x00", Command::Connect, "0.0.0.0:80", b""),
        ] {
            let request = feed(bytes, Socks4Request::parse);
            assert_eq!((request.command, request.target.to_string().as_str()), (command, target));
            assert_eq!(request.user, user);
        }
    }

    #[test]
    fn bad_requests_are_refused_at_the_first_wrong_byte() {
        let long_user = [b"\x04\x01\x00\x50\xc0\x00\x02\x01".as_slice(), &[b'u'; 256]].concat();
        let long_name = [b"\x04\x01\x00\x50\x00\x00\x00\x01\x00".as_slice(), &b"a.".repeat(128)].concat();
        for bytes in [
            b"\x05".as_slice(),
            b"G",
            b"\x04\x03",
            b"\x04\x00",
            b"\x04\x01\x00\x00\xc0\x00\x02\x01\x00",
            b"\x04\x01\x00\x50\x00\x00\x00\x01\x00\x00",
            b"\x04\x01\x00\x50\x00\x00\x00\x01\x00a b\x00",
            b"\x04\x01\x00\x50\x00\x00\x00\x01\x00\xff\xfe\x00",
            &long_user,
            &long_name,
        ] {
            assert!(matches!(Socks4Request::parse(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
        }
    }

    #[test]
    fn longest_user_and_name_are_accepted() {
        let name = format!("{}abc", "a.".repeat(125));
        assert_eq!(name.len(), MAX_NAME);
        let bytes =
            [b"\x04\x01\x00\x50\x00\x00\x00\x01".as_slice(), &[b'u'; 255], b"\0", name.as_bytes(), b".\0"].concat();
        let request = feed(&bytes, Socks4Request::parse);
        assert_eq!((request.user.len(), request.target.host), (255, Host::Name(name)));
    }

    #[test]
    fn replies_have_a_zero_version() {
        assert_eq!(reply(true), [0, 90, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply(false), [0, 91, 0, 0, 0, 0, 0, 0]);
    }
}
