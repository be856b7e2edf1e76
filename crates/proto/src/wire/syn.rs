//! The first packet of a connection, as the kernel hands it over: who wants to connect to whom, before anybody has
//! answered (RFC 9293 section 3.1 over RFC 791 or RFC 8200).
//!
//! A relay dials as the client whose address it reads here. So what no host could have sent, or could be reached at, is
//! refused; checksums are not looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::WireError;
use super::cursor::Cursor;
use crate::addr::{ClientAddr, ServerAddr};

/// Protocol numbers of IP.
const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Lengths of the fixed headers, in bytes.
const IPV4_HEADER: usize = 20;
const TCP_HEADER: u8 = 20;

/// Where a fragment lies in its packet: in the last 13 bits of IPv4's field, in the first 13 of IPv6's.
const IPV4_OFFSET: u16 = 0x1fff;
const IPV6_OFFSET: u16 = 0xfff8;

/// Flags of TCP.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syn {
    /// Who asks.
    pub client: ClientAddr,
    /// Who is asked.
    pub server: ServerAddr,
    /// The initial sequence number; the same when the client asks again.
    pub sequence: u32,
}

impl Syn {
    /// Reads a packet from its IP header on. What follows the ports, the sequence number and the flags is not read, and
    /// may be cut off.
    ///
    /// # Errors
    /// [`WireError::Incomplete`] when it is cut off before, [`WireError::Invalid`] when it asks for no connection.
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

/// The addresses of an IPv4 packet of whose header the first of `length` bytes was read; reads the rest of it.
fn ipv4(cursor: &mut Cursor<'_>, length: usize) -> Result<(IpAddr, IpAddr), WireError> {
    let options = length.checked_sub(IPV4_HEADER).ok_or(WireError::Invalid("an IPv4 header shorter than 20 bytes"))?;
    let _service_length_and_id: [u8; 5] = cursor.array()?;
    if u16::from_be_bytes(cursor.array()?) & IPV4_OFFSET != 0 {
        return Err(WireError::Invalid("a fragment without the TCP header"));
    }
    let _lifetime = cursor.byte()?;
    cursor.expect(TCP, "not TCP")?;
    let _checksum: [u8; 2] = cursor.array()?;
    let addresses = (host_v4(cursor)?, host_v4(cursor)?);
    cursor.take(options)?;
    Ok(addresses)
}

/// The addresses of an IPv6 packet of whose header the first byte was read; reads the rest of it, and its extensions.
fn ipv6(cursor: &mut Cursor<'_>) -> Result<(IpAddr, IpAddr), WireError> {
    let _class_label_and_length: [u8; 5] = cursor.array()?;
    let mut next = cursor.byte()?;
    let _lifetime = cursor.byte()?;
    let addresses = (host_v6(cursor)?, host_v6(cursor)?);
    while next != TCP {
        next = extension(cursor, next)?;
    }
    Ok(addresses)
}

/// Reads the extension header `kind`; what comes behind it (RFC 8200 section 4).
fn extension(cursor: &mut Cursor<'_>, kind: u8) -> Result<u8, WireError> {
    let [next, length] = cursor.array()?;
    let [a, b, _, _, _, _] = cursor.array()?;
    match kind {
        FRAGMENT if u16::from_be_bytes([a, b]) & IPV6_OFFSET != 0 => {
            return Err(WireError::Invalid("a fragment without the TCP header"));
        }
        FRAGMENT => return Ok(next),
        // It is on its way to the next of a list of hosts, and the server is the last of them.
        ROUTING if b != 0 => return Err(WireError::Invalid("not yet at the end of its source route")),
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {}
        _ => return Err(WireError::Invalid("not TCP")),
    }
    cursor.take(usize::from(length) * 8)?;
    Ok(next)
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
    // A mapped address is IPv4 to a socket, and must not be on the wire.
    if ip.is_unspecified() || ip.is_multicast() || ip.to_ipv4_mapped().is_some() {
        return Err(WireError::Invalid("not the address of one host"));
    }
    Ok(IpAddr::V6(ip))
}

#[cfg(test)]
mod tests;
