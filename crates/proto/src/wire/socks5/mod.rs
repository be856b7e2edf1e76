//! SOCKS5 (RFC 1928) with user and password (RFC 1929), for both sides.
//!
//! `server` has the messages between clients and the relay, `client` those between the relay and a hop, `datagram` the
//! header of UDP datagrams. Messages of fixed size are arrays. GSSAPI is not supported.

mod client;
mod credentials;
mod datagram;
mod server;
#[cfg(test)]
mod tests;

pub use client::{greeting, parse_method, parse_reply, reply_bytes_missing, request};
pub use credentials::{CREDENTIALS_NOT_CHECKED, Credentials, credentials_reply, parse_credentials_reply};
pub use datagram::DatagramHeader;
pub use server::{Greeting, Socks5Request, Socks5RequestError, method_reply, reply};

use crate::cause::Cause;

/// First byte of a greeting, a request and most answers.
pub const VERSION: u8 = 5;

/// The command of a client (RFC 1928, 4); SOCKS4 has only the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Connect to the target.
    Connect,
    /// Accept one connection from the target.
    Bind,
    /// UDP ASSOCIATE: relay datagrams.
    UdpAssociate,
}

/// The authentication method of a client (RFC 1928, 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// No authentication is required.
    NoAuth,
    /// User and password (RFC 1929).
    UserPass,
}

/// The answer to a request (RFC 1928, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The connection to the target is established.
    Succeeded,
    /// A failure that no other code describes; unassigned codes are read as this one.
    GeneralFailure,
    /// Forbidden by a rule.
    NotAllowed,
    /// No route to the network.
    NetworkUnreachable,
    /// No route to the host, or no such name.
    HostUnreachable,
    /// The target refused the connection.
    ConnectionRefused,
    /// No answer in time; dante and curl use this code for a timeout.
    TtlExpired,
    /// The server does not support the command.
    CommandNotSupported,
    /// The server does not support the address type.
    AddressTypeNotSupported,
}

impl Command {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Connect),
            2 => Some(Self::Bind),
            3 => Some(Self::UdpAssociate),
            _ => None,
        }
    }
}

impl Method {
    const fn byte(self) -> u8 {
        match self {
            Self::NoAuth => 0,
            Self::UserPass => 2,
        }
    }
}

impl Reply {
    const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::GeneralFailure,
        Self::NotAllowed,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::ConnectionRefused,
        Self::TtlExpired,
        Self::CommandNotSupported,
        Self::AddressTypeNotSupported,
    ];

    /// The code on the wire: the position in the list of RFC 1928, 6.
    const fn byte(self) -> u8 {
        self as u8
    }

    fn from_byte(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::GeneralFailure)
    }

    /// The cause that a hop's reply reports; `None` for success.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Succeeded => None,
            Self::GeneralFailure | Self::AddressTypeNotSupported => Some(Cause::HopFailed),
            Self::NotAllowed => Some(Cause::DeniedByHop),
            Self::NetworkUnreachable | Self::HostUnreachable => Some(Cause::Unreachable),
            Self::ConnectionRefused => Some(Cause::Refused),
            Self::TtlExpired => Some(Cause::TimedOut),
            Self::CommandNotSupported => Some(Cause::HopProtocol),
        }
    }
}

impl From<Cause> for Reply {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Refused => Self::ConnectionRefused,
            Cause::TimedOut => Self::TtlExpired,
            Cause::Unreachable | Cause::NameNotFound | Cause::NameServerFailed => Self::HostUnreachable,
            Cause::Denied | Cause::DeniedByHop | Cause::OverQuota | Cause::SessionLimit => Self::NotAllowed,
            Cause::HopProtocol
            | Cause::HopFailed
            | Cause::Reset
            | Cause::BadAnswer
            | Cause::Exhausted
            | Cause::Loop => Self::GeneralFailure,
        }
    }
}
