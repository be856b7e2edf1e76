//! User and password (RFC 1929), as read by a server and written by a client.

use std::fmt;

use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// Version of the sub-negotiation, which is not the version of SOCKS (RFC 1929, 2).
const VERSION: u8 = 1;

/// A user and a password; the password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user, as bytes.
    pub user: Vec<u8>,
    /// The password, as bytes.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads `1, length, user, length, password`. An empty user or password is read although RFC 1929 has none, so
    /// that such a client is told it was refused instead of being cut off.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for another version.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(VERSION, "not a user and password message of RFC 1929")?;
        let user = cursor.length_prefixed()?.to_vec();
        let password = cursor.length_prefixed()?.to_vec();
        Ok((Self { user, password }, cursor.position()))
    }

    /// The message a client sends (RFC 1929, 2).
    ///
    /// # Errors
    /// [`WireError::Invalid`] when user or password is not 1 to 255 bytes long.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        let mut out = vec![VERSION];
        for text in [&self.user, &self.password] {
            let length = u8::try_from(text.len()).ok().filter(|length| *length > 0);
            out.push(length.ok_or(WireError::Invalid("user and password must be 1 to 255 bytes long"))?);
            out.extend(text);
        }
        Ok(out)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &String::from_utf8_lossy(&self.user)).finish_non_exhaustive()
    }
}

/// A server's verdict on user and password (RFC 1929, 2); after a refusal it must close the connection.
#[must_use]
pub const fn credentials_reply(ok: bool) -> [u8; 2] {
    [VERSION, if ok { 0 } else { 1 }]
}

/// The answer when user and password could not be checked. RFC 1929, 2, knows success, 0, and calls every other status a
/// failure; this one is not that of a wrong password.
pub const CREDENTIALS_NOT_CHECKED: [u8; 2] = [VERSION, 2];

/// Reads a server's verdict on user and password.
///
/// # Errors
/// [`WireError::Invalid`] for another version.
pub fn parse_credentials_reply(bytes: &[u8]) -> Parsed<bool> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(VERSION, "not a response of RFC 1929")?;
    let ok = cursor.byte()? == 0;
    Ok((ok, cursor.position()))
}
