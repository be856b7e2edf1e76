//! What a log of packets says of TCP: the header of one packet of the wire (RFC 9293 section 3.1), or of a run of them.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::emulator::frame::{Frame, IpVersion, TCP, u16_be_at};

/// The part of a TCP header that a log has, and between whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader {
    /// Who sent it.
    pub source: SocketAddrV4,
    /// To whom.
    pub target: SocketAddrV4,
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// The next byte that its sender expects.
    pub acknowledgement: u32,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit.
    pub flags: u8,
    /// Bytes of payload.
    pub length: u32,
}

impl Frame {
    /// The header of `count` segments from `first` on, as if they were one; `None` of what is not TCP over IPv4.
    #[must_use]
    pub fn tcp_header(&self, bytes: &[u8], first: u16, count: u16) -> Option<TcpHeader> {
        let packet = bytes.get(self.ip_offset..self.end_offset)?;
        let header = bytes.get(self.transport_offset..self.transport_offset + 20)?;
        let is_first_fragment = self.version == IpVersion::V4 && u16_be_at(packet, 6) & 0x1fff == 0;
        if !is_first_fragment || packet[9] != TCP {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = if self.segment_size > 0 {
            self.payload_range(first, count).len()
        } else {
            // The length is IP's: a frame may be padded.
            let headers = self.transport_offset - self.ip_offset + usize::from(header[12] >> 4) * 4;
            u16_be_at(packet, 2).saturating_sub(headers)
        };
        let ahead = u32::from(first).wrapping_mul(u32::try_from(self.segment_size).ok()?);
        Some(TcpHeader {
            source: SocketAddrV4::new(address(12), port(0)),
            target: SocketAddrV4::new(address(16), port(2)),
            sequence: number(4).wrapping_add(ahead),
            acknowledgement: number(8),
            flags: header[13],
            length: u32::try_from(length).ok()?,
        })
    }
}
