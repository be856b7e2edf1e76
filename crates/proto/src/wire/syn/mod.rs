//! The first packet of a connection, as delivered by the kernel: the addresses of client and server, before any answer
//! (RFC 9293 section 3.1 over RFC 791 or RFC 8200).
//!
//! A relay dials from the client address in this packet, so an address that cannot be that of a host is refused.
//! Checksums are not verified.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::WireError;
use super::cursor::Cursor;
use super::headers::{AUTHENTICATION, IPV4_OFFSET, TCP, extension, options, options_length};
use crate::addr::{ClientAddr, ServerAddr};

/// Length of the fixed header, in bytes.
const TCP_HEADER: u8 = 20;

const FRAGMENT_WITHOUT_TCP: WireError = WireError::Invalid("a fragment without the TCP header");

/// Flags in the TCP header.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The SYN of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syn {
    /// The address of the client.
    pub client: ClientAddr,
    /// The address of the server.
    pub server: ServerAddr,
    /// The initial sequence number, which is the same in a retransmission.
    pub sequence: u32,
}

impl Syn {
    /// Reads a packet from its IP header on. The packet may be truncated after the flags of the TCP header; nothing
    /// after them is read.
    ///
    /// # Errors
    /// [`WireError::Incomplete`] for a packet that ends before, [`WireError::Invalid`] for a packet that is no SYN.
    pub fn parse(packet: &[u8]) -> Result<Self, WireError> {
        let mut cursor = Cursor::new(packet);
        let first = cursor.byte()?;
        let (client, server) = match first >> 4 {
            4 => ipv4(&mut cursor, usize::from(first & 0xf) * 4)?,
            6 => ipv6(&mut cursor)?,
            _ => return Err(WireError::Invalid("neither IPv4 nor IPv6")),
        };
        let (client_port, server_port) = (port(&mut cursor)?, port(&mut cursor)?);
        let sequence = cursor.array().map(u32::from_be_bytes)?;
        let _acknowledgement: [u8; 4] = cursor.array()?;
        let [offset, flags] = cursor.array()?;
        if (offset >> 4) * 4 < TCP_HEADER {
            return Err(WireError::Invalid("a TCP header shorter than 20 bytes"));
        }
        if flags & (SYN | ACK | RST | FIN) != SYN {
            return Err(WireError::Invalid("not a SYN"));
        }
        Ok(Self {
            client: ClientAddr(SocketAddr::new(client, client_port)),
            server: ServerAddr(SocketAddr::new(server, server_port)),
            sequence,
        })
    }
}

fn port(cursor: &mut Cursor<'_>) -> Result<u16, WireError> {
    match cursor.port()? {
        0 => Err(WireError::Invalid("port 0")),
        port => Ok(port),
    }
}

/// Reads the rest of an IPv4 header of `length` bytes after its first byte, and returns the addresses.
fn ipv4(cursor: &mut Cursor<'_>, length: usize) -> Result<(IpAddr, IpAddr), WireError> {
    let length_of_options = options_length(length)?;
    let _service_length_and_id: [u8; 5] = cursor.array()?;
    if u16::from_be_bytes(cursor.array()?) & IPV4_OFFSET != 0 {
        return Err(FRAGMENT_WITHOUT_TCP);
    }
    let _lifetime = cursor.byte()?;
    cursor.expect(TCP, "not TCP")?;
    let _checksum: [u8; 2] = cursor.array()?;
    let addresses = (host_v4(cursor)?, host_v4(cursor)?);
    options(cursor, length_of_options)?;
    Ok(addresses)
}

/// Reads the rest of an IPv6 header after its first byte, and the extension headers, and returns the addresses.
fn ipv6(cursor: &mut Cursor<'_>) -> Result<(IpAddr, IpAddr), WireError> {
    let _class_label_and_length: [u8; 5] = cursor.array()?;
    let mut next = cursor.byte()?;
    let _lifetime = cursor.byte()?;
    let addresses = (host_v6(cursor)?, host_v6(cursor)?);
    while next != TCP {
        // A packet with an authentication header is refused: a relay cannot authenticate packets for the client (RFC
        // 4302).
        let header = if next == AUTHENTICATION { None } else { extension(cursor, next)? };
        let header = header.ok_or(WireError::Invalid("not TCP"))?;
        if header.is_later_fragment {
            return Err(FRAGMENT_WITHOUT_TCP);
        }
        next = header.next;
    }
    Ok(addresses)
}

fn host_v4(cursor: &mut Cursor<'_>) -> Result<IpAddr, WireError> {
    let ip = Ipv4Addr::from(cursor.array::<4>()?);
    if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
        return Err(WireError::Invalid("not the address of one host"));
    }
    Ok(IpAddr::V4(ip))
}

fn host_v6(cursor: &mut Cursor<'_>) -> Result<IpAddr, WireError> {
    let ip = Ipv6Addr::from(cursor.array::<16>()?);
    // A socket treats an IPv4-mapped address as IPv4; such an address must not occur in an IPv6 packet.
    if ip.is_unspecified() || ip.is_multicast() || ip.to_ipv4_mapped().is_some() {
        return Err(WireError::Invalid("not the address of one host"));
    }
    Ok(IpAddr::V6(ip))
}

#[cfg(test)]
mod tests;
