//! User and password (RFC 1929), parsed by a server and encoded by a client.

use std::fmt;

use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// Version of the sub-negotiation, which differs from the version of SOCKS (RFC 1929, 2).
const VERSION: u8 = 1;

/// User and password; `Debug` does not print the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user, as bytes.
    pub user: Vec<u8>,
    /// The password, as bytes.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads `1, length, user, length, password`. An empty user or password is accepted here, although RFC 1929 does
    /// not permit it, so that the client receives a refusal instead of a closed connection.
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

    /// Encodes the message of a client (RFC 1929, 2).
    ///
    /// # Errors
    /// [`WireError::Invalid`] if the user or the password is not 1 to 255 bytes long.
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

/// Encodes the server's answer to user and password (RFC 1929, 2). After a refusal the server must close the
/// connection.
#[must_use]
pub const fn credentials_reply(ok: bool) -> [u8; 2] {
    [VERSION, if ok { 0 } else { 1 }]
}

/// The answer when user and password could not be checked. RFC 1929, 2, defines 0 as success and every other status as
/// a failure; this status differs from the one for a wrong password.
pub const CREDENTIALS_NOT_CHECKED: [u8; 2] = [VERSION, 2];

/// Reads a server's answer to user and password; `true` for success.
///
/// # Errors
/// [`WireError::Invalid`] for another version.
pub fn parse_credentials_reply(bytes: &[u8]) -> Parsed<bool> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(VERSION, "not a response of RFC 1929")?;
    let ok = cursor.byte()? == 0;
    Ok((ok, cursor.position()))
}
