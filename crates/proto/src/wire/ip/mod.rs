//! The header of an IP packet that crosses a tunnel: source, destination and protocol (RFC 791, RFC 8200).
//!
//! The packet is complete, so the length in its header must match. Checksums are not verified: the receiver does that,
//! and the relay does not change the packet. Fragments are not reassembled, so only the first fragment has a port. A
//! packet with a source route is refused.

mod flow;

use std::net::IpAddr;

pub use flow::PacketFlow;

use super::WireError;
use super::cursor::Cursor;
use super::headers::{self, IPV4_OFFSET, extension, options, options_length};

/// Protocol number of TCP.
pub const TCP: u8 = headers::TCP;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Length of the fixed header, in bytes.
const IPV6_HEADER: usize = 40;

/// The fields of an IP packet that routing and rules use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpHeader {
    /// The source address of the packet.
    pub source: IpAddr,
    /// The destination address of the packet.
    pub destination: IpAddr,
    /// Protocol number of the payload: [`TCP`], 17 for UDP, ... (IANA's list of protocol numbers).
    pub protocol: u8,
    /// The destination port; `None` for a protocol without ports, and for a fragment other than the first.
    pub port: Option<u16>,
}

impl IpHeader {
    /// Reads a whole packet, from its IP header to its last byte.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for a malformed or truncated packet, or one with a source route.
    pub fn parse(packet: &[u8]) -> Result<Self, WireError> {
        // A packet is complete, so missing bytes are an error.
        Self::read(packet).map_err(|error| match error {
            WireError::Incomplete => WireError::Invalid("a truncated packet"),
            error => error,
        })
    }

    fn read(packet: &[u8]) -> Result<Self, WireError> {
        let mut cursor = Cursor::new(packet);
        let NetworkHeader { source, destination, protocol, is_later_fragment, length } =
            NetworkHeader::read(&mut cursor)?;
        if length != packet.len() {
            return Err(WireError::Invalid("a packet whose length differs from its length field"));
        }
        let ports = if is_later_fragment { None } else { ports(&mut cursor, protocol)? };
        Ok(Self { source, destination, protocol, port: ports.map(|[_, destination]| destination) })
    }
}

/// Whether a router may forward packets from or to this address: the address must belong to one host, and must not be
/// limited to one link or host (RFC 1122 section 3.2.1.3, RFC 3927 section 7, RFC 4291 section 2.5).
#[must_use]
pub fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let this_network_or_none = ip.octets()[0] == 0 || ip.octets()[0] >= 240;
            !(this_network_or_none || ip.is_multicast() || ip.is_loopback() || ip.is_link_local())
        }
        IpAddr::V6(ip) => {
            let none = ip.is_unspecified() || ip.to_ipv4_mapped().is_some();
            !(none || ip.is_multicast() || ip.is_loopback() || ip.is_unicast_link_local())
        }
    }
}

/// The headers of a packet before its transport header.
struct NetworkHeader {
    source: IpAddr,
    destination: IpAddr,
    /// The protocol after the extension headers.
    protocol: u8,
    /// Whether the packet is a fragment other than the first, which has no transport header.
    is_later_fragment: bool,
    /// Length of the packet in its header, in bytes.
    length: usize,
}

impl NetworkHeader {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        let first = cursor.byte()?;
        match first >> 4 {
            4 => Self::ipv4(cursor, usize::from(first & 0xf) * 4),
            6 => Self::ipv6(cursor),
            _ => Err(WireError::Invalid("neither IPv4 nor IPv6")),
        }
    }

    /// Reads an IPv4 packet after its first byte; `header` is the length of its IP header.
    fn ipv4(cursor: &mut Cursor<'_>, header: usize) -> Result<Self, WireError> {
        let length_of_options = options_length(header)?;
        let _service = cursor.byte()?;
        let length = usize::from(u16::from_be_bytes(cursor.array()?));
        let _id: [u8; 2] = cursor.array()?;
        let is_later_fragment = u16::from_be_bytes(cursor.array()?) & IPV4_OFFSET != 0;
        let [_lifetime, protocol] = cursor.array()?;
        let _checksum: [u8; 2] = cursor.array()?;
        let (source, destination) = (cursor.array::<4>()?.into(), cursor.array::<4>()?.into());
        options(cursor, length_of_options)?;
        Ok(Self { source, destination, protocol, is_later_fragment, length })
    }

    /// Reads an IPv6 packet after its first byte.
    fn ipv6(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        let _class_and_label: [u8; 3] = cursor.array()?;
        // A jumbogram has the length 0 (RFC 2675). A record has no space for a jumbogram.
        let length = usize::from(u16::from_be_bytes(cursor.array()?)) + IPV6_HEADER;
        let [first, _lifetime] = cursor.array()?;
        let (source, destination) = (cursor.array::<16>()?.into(), cursor.array::<16>()?.into());
        let (protocol, is_later_fragment) = skip_extensions(cursor, first)?;
        Ok(Self { source, destination, protocol, is_later_fragment, length })
    }
}

/// Skips the extension headers from `first` on. Returns the protocol after them, and whether the packet is a fragment
/// other than the first (RFC 8200 section 4, RFC 4302 section 2).
fn skip_extensions(cursor: &mut Cursor<'_>, first: u8) -> Result<(u8, bool), WireError> {
    let mut kind = first;
    while let Some(header) = extension(cursor, kind)? {
        if header.is_later_fragment {
            return Ok((header.next, true));
        }
        kind = header.next;
    }
    Ok((kind, false))
}

/// Reads the source port and the destination port if `protocol` has ports; all such protocols begin with them.
fn ports(cursor: &mut Cursor<'_>, protocol: u8) -> Result<Option<[u16; 2]>, WireError> {
    if !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return Ok(None);
    }
    Ok(Some([cursor.port()?, cursor.port()?]))
}

#[cfg(test)]
mod tests;
