//! Address type, address and port, in the format of SOCKS5 (RFC 1928, 5), which the section protocol also uses.

use std::net::{IpAddr, SocketAddr};

use crate::addr::{Host, Target};
use crate::wire::WireError;
use crate::wire::cursor::Cursor;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// An address on the wire, not yet validated as a target.
pub(super) struct WireAddress<'a> {
    host: RawHost<'a>,
    port: u16,
}

enum RawHost<'a> {
    Ip(IpAddr),
    Name(&'a [u8]),
}

impl<'a> WireAddress<'a> {
    /// Reads an address; `None` if its type, and so its length, is unknown.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Option<Self>, WireError> {
        let host = match cursor.byte()? {
            IPV4 => RawHost::Ip(IpAddr::from(cursor.array::<4>()?)),
            IPV6 => RawHost::Ip(IpAddr::from(cursor.array::<16>()?)),
            NAME => RawHost::Name(cursor.length_prefixed()?),
            _ => return Ok(None),
        };
        Ok(Some(Self { host, port: cursor.port()? }))
    }

    /// The address as a socket address; `None` for a name.
    pub(super) fn to_socket_addr(&self) -> Option<SocketAddr> {
        match self.host {
            RawHost::Ip(ip) => Some(SocketAddr::new(ip.to_canonical(), self.port)),
            RawHost::Name(_) => None,
        }
    }

    /// Whether [`write`] encodes `host`, which was parsed from this address, to the same bytes.
    pub(super) fn is_canonical(&self, host: &Host) -> bool {
        match (&self.host, host) {
            (RawHost::Ip(raw), Host::Ip(ip)) => raw == ip,
            (RawHost::Name(raw), Host::Name(name)) => *raw == name.as_bytes(),
            _ => false,
        }
    }

    /// Validates the address as a target.
    pub(super) fn to_target(&self) -> Result<Target, WireError> {
        let host = match self.host {
            RawHost::Ip(ip) => Some(Host::from(ip)),
            RawHost::Name(name) => std::str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok()),
        };
        let host = host.ok_or(WireError::Invalid("not a host name"))?;
        Target::new(host, self.port).map_err(|_| WireError::Invalid("port 0"))
    }
}

/// The minimum length of an address that begins with `bytes`, its type included; `None` for an unknown type.
pub(super) fn min_length(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [IPV4, ..] => Some(1 + 4 + 2),
        [IPV6, ..] => Some(1 + 16 + 2),
        [NAME, length, ..] => Some(1 + 1 + usize::from(length) + 2),
        // A name may be empty, which is the shortest address.
        [] | [NAME] => Some(1 + 1 + 2),
        [..] => None,
    }
}

/// Appends type, address and port.
pub(super) fn write(host: &Host, port: u16, out: &mut Vec<u8>) {
    match host {
        Host::Ip(IpAddr::V4(v4)) => {
            out.push(IPV4);
            out.extend(v4.octets());
        }
        Host::Ip(IpAddr::V6(v6)) => {
            out.push(IPV6);
            out.extend(v6.octets());
        }
        Host::Name(name) => {
            let length = u8::try_from(name.len()).expect("invariant: a host name has at most 253 bytes");
            out.extend([NAME, length]);
            out.extend(name.as_bytes());
        }
    }
    out.extend(port.to_be_bytes());
}
