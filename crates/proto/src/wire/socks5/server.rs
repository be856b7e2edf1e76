//! SOCKS5, the server's side: parses greetings and requests, and encodes the answers (RFC 1928, 3 to 6).

use std::net::{Ipv4Addr, SocketAddr};

use super::{Command, Method, Reply, VERSION};
use crate::addr::{Host, Target};
use crate::wire::address::{self, WireAddress};
use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// The first message of a client: its authentication methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The codes of the methods, as sent.
    pub methods: Vec<u8>,
}

impl Greeting {
    /// Reads `5, count, methods`.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for another version, or a client that offers no method.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(VERSION, "not SOCKS5")?;
        let methods = cursor.length_prefixed()?.to_vec();
        if methods.is_empty() {
            return Err(WireError::Invalid("greeting without methods"));
        }
        Ok((Self { methods }, cursor.position()))
    }

    /// Whether the client offers `method`.
    #[must_use]
    pub fn offers(&self, method: Method) -> bool {
        self.methods.contains(&method.byte())
    }
}

/// Encodes the method that the server has chosen. After `None`, no acceptable method, the client must close the
/// connection (RFC 1928, 3).
#[must_use]
pub fn method_reply(method: Option<Method>) -> [u8; 2] {
    [VERSION, method.map_or(0xff, Method::byte)]
}

/// The request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Socks5Request {
    /// Connect to the target.
    Connect(Target),
    /// Relay UDP datagrams. The address is the one from which the client will send them; `None` if the client does not
    /// know it yet.
    UdpAssociate(Option<SocketAddr>),
    /// Accept one connection from the host with this address.
    Bind(SocketAddr),
}

/// The reason why bytes are no request. All but [`Self::Wire`] have a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Socks5RequestError {
    /// The request is incomplete or malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The command is not assigned by any RFC.
    #[error("command not supported")]
    CommandNotSupported,
    /// The target is not a host name, or its port is 0.
    #[error("not a host name, or port 0")]
    InvalidTarget,
    /// The address type is not assigned by any RFC, or the peer of BIND is a name.
    #[error("address type not supported")]
    AddressTypeNotSupported,
}

impl Socks5Request {
    /// Reads `5, command, 0, address`. An unknown command is reported only at the end of the request, so that no byte
    /// stays unread: closing a socket with unread bytes sends RST, which can overtake the reply.
    ///
    /// # Errors
    /// [`Socks5RequestError`]; each of its variants has a different answer.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Socks5RequestError> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(VERSION, "not SOCKS5")?;
        let command = Command::from_byte(cursor.byte()?);
        let _reserved = cursor.byte()?;
        let address = WireAddress::read(&mut cursor)?.ok_or(Socks5RequestError::AddressTypeNotSupported)?;
        let request = match command {
            Some(Command::Connect) => {
                Self::Connect(address.to_target().map_err(|_| Socks5RequestError::InvalidTarget)?)
            }
            // RFC 1928, 6: a client that does not know its address yet sends zeros.
            Some(Command::UdpAssociate) => Self::UdpAssociate(
                address.to_socket_addr().filter(|address| !address.ip().is_unspecified() && address.port() != 0),
            ),
            Some(Command::Bind) => {
                Self::Bind(address.to_socket_addr().ok_or(Socks5RequestError::AddressTypeNotSupported)?)
            }
            None => return Err(Socks5RequestError::CommandNotSupported),
        };
        Ok((request, cursor.position()))
    }
}

/// Encodes the answer to a request, with the bound address of the server's own socket (RFC 1928, 6); `None` is encoded
/// as 0.0.0.0:0.
#[must_use]
pub fn reply(reply: Reply, bound_address: Option<SocketAddr>) -> Vec<u8> {
    let bound_address = bound_address.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let mut out = vec![VERSION, reply.byte(), 0];
    address::write(&Host::from(bound_address.ip()), bound_address.port(), &mut out);
    out
}
