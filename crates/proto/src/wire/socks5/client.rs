//! SOCKS5, the client's side: messages between a relay and a hop (RFC 1928, 3 to 6).
//!
//! The first byte after a reply belongs to the session, so a client must not read beyond the reply: the earlier answers
//! have two bytes each, and [`reply_bytes_missing`] returns how many bytes of the reply can be read without risk.

use super::{Method, Reply, VERSION};
use crate::addr::Target;
use crate::wire::address::{self, WireAddress};
use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// Version, reply code and a reserved byte: the number of bytes before the address.
const BEFORE_ADDRESS: usize = 3;

/// Encodes the first message: it offers no authentication, and user and password if `with_credentials`.
#[must_use]
pub fn greeting(with_credentials: bool) -> Vec<u8> {
    let none = Method::NoAuth.byte();
    if with_credentials { vec![VERSION, 2, none, Method::UserPass.byte()] } else { vec![VERSION, 1, none] }
}

/// Reads the method that the server has chosen, two bytes; `None` if the server accepts no offered method.
///
/// # Errors
/// [`WireError::Invalid`] for another version, or a method that this client never offers.
pub fn parse_method(bytes: &[u8]) -> Parsed<Option<Method>> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(VERSION, "not SOCKS5")?;
    let method = match cursor.byte()? {
        0 => Some(Method::NoAuth),
        2 => Some(Method::UserPass),
        0xff => None,
        _ => return Err(WireError::Invalid("a method that was not offered")),
    };
    Ok((method, cursor.position()))
}

/// Encodes a request to connect to `target`.
#[must_use]
pub fn request(target: &Target) -> Vec<u8> {
    let mut out = vec![VERSION, 1, 0];
    address::write(&target.host, target.port, &mut out);
    out
}

/// Reads the server's answer. The number of bytes read includes the bound address, which is discarded.
///
/// # Errors
/// [`WireError::Invalid`] for another version or an unknown address type.
pub fn parse_reply(bytes: &[u8]) -> Parsed<Reply> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(VERSION, "not SOCKS5")?;
    let reply = Reply::from_byte(cursor.byte()?);
    let _reserved = cursor.byte()?;
    WireAddress::read(&mut cursor)?.ok_or(WireError::Invalid("unknown address type"))?;
    Ok((reply, cursor.position()))
}

/// Returns the minimum number of bytes that are missing from a reply that begins with `bytes`: reading that many never
/// reads beyond the reply. 0 when [`parse_reply`] returns a reply or an error.
#[must_use]
pub fn reply_bytes_missing(bytes: &[u8]) -> usize {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return 0;
    }
    let address = address::min_length(bytes.get(BEFORE_ADDRESS..).unwrap_or_default());
    address.map_or(0, |fewest| (BEFORE_ADDRESS + fewest).saturating_sub(bytes.len()))
}
