//! Parses and segments frames of `AF_PACKET` sockets and TUN devices. A superpacket is many packets of the wire with
//! one header.
//!
//! Offsets count from the `virtio_net_hdr` in front of the frame. A *run* is a sequence of neighbouring segments of one
//! superpacket. It is sent as a smaller superpacket, whose header is built here as linux/net/ipv4/tcp_offload.c does
//! for segments.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use ekiden_proto::aqm::flow;
use ekiden_sys::packet::VNET_HEADER;

use crate::packet::Ecn;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag of the GSO type: the first segment carries CWR (linux/virtio_net.h).
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;

const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Parsed headers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Start of the IP header.
    ip_offset: usize,
    /// Start of the transport header, if known.
    transport_offset: usize,
    /// Start of the payload that is divided into segments; the end of the IP header in a frame of one packet.
    payload_offset: usize,
    /// End of the frame.
    end_offset: usize,
    /// Payload of each segment but the last, in bytes; 0 in a frame of one packet.
    segment_size: usize,
    /// Number of packets on the wire.
    pub packets: u16,
    /// Hash of the connection, for [`Packet::flow`](crate::packet::Packet::flow).
    pub flow: u32,
    /// Key of the sender, for [`Packet::source`](crate::packet::Packet::source).
    pub source: u32,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    version: IpVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IpVersion {
    V4,
    V6,
    /// Another protocol, such as ARP, forwarded unchanged.
    Other,
}

fn u16_be_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
}

/// Fields of a `virtio_net_hdr` are in the byte order of the host.
fn u16_ne_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_ne_bytes([b[0], b[1]])))
}

impl Frame {
    /// Parses the headers of `bytes`: a `virtio_net_hdr`, a link header of `link_header` bytes (14 for Ethernet, 0 for
    /// TUN), and a packet. An unknown protocol counts as one packet.
    #[must_use]
    pub fn parse(bytes: &[u8], link_header: usize) -> Self {
        let ip = VNET_HEADER + link_header;
        let ether_type = if link_header == 0 { None } else { Some(u16_be_at(bytes, ip - 2)) };
        let version = match (bytes.get(ip).map(|byte| byte >> 4), ether_type) {
            (Some(4), None | Some(0x0800)) if bytes.len() >= ip + 20 => IpVersion::V4,
            (Some(6), None | Some(0x86dd)) if bytes.len() >= ip + 40 => IpVersion::V6,
            _ => IpVersion::Other,
        };
        let mut frame = Self {
            ip_offset: ip,
            transport_offset: ip,
            payload_offset: ip.min(bytes.len()),
            end_offset: bytes.len(),
            segment_size: 0,
            packets: 1,
            flow: 0,
            source: 0,
            ecn: Ecn::NotCapable,
            version,
        };
        if version != IpVersion::Other {
            frame.parse_packet(bytes);
        }
        frame
    }

    fn parse_packet(&mut self, bytes: &[u8]) {
        let packet = &bytes[self.ip_offset..];
        let (traffic_class, protocol, addresses, header) = match self.version {
            IpVersion::V4 => (packet[1], packet[9], 12..20, usize::from(packet[0] & 0x0f) * 4),
            _ => ((packet[0] << 4) | (packet[1] >> 4), packet[6], 8..40, 40),
        };
        self.ecn = match traffic_class & 3 {
            0 => Ecn::NotCapable,
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        };
        let is_fragment = self.version == IpVersion::V4 && u16_be_at(packet, 6) & 0x3fff != 0;
        let ports = if matches!(protocol, TCP | UDP) && !is_fragment { packet.get(header..header + 4) } else { None };
        let addresses = &packet[addresses];
        self.flow = flow::connection_hash(addresses, ports.unwrap_or_default(), protocol);
        self.source = flow::source_key(&addresses[..addresses.len() / 2]);
        self.transport_offset = (self.ip_offset + header).min(bytes.len());
        self.payload_offset = self.transport_offset;
        self.parse_offload(bytes);
    }

    /// Parses the offload fields. `hdr_len` is unreliable; the transport header starts at `csum_start`.
    fn parse_offload(&mut self, bytes: &[u8]) {
        let (kind, size) = (bytes[1] & !GSO_ECN, u16_ne_at(bytes, 4));
        let transport = VNET_HEADER + u16_ne_at(bytes, 6);
        let header = match kind {
            GSO_TCP4 | GSO_TCP6 => {
                bytes.get(transport + 12).map(|byte| usize::from(byte >> 4) * 4).filter(|header| *header >= 20)
            }
            GSO_UDP => Some(8),
            _ => None,
        };
        let Some(payload) = header.map(|header| transport + header) else { return };
        if size == 0 || transport < self.transport_offset || payload >= bytes.len() {
            return;
        }
        let packets = (bytes.len() - payload).div_ceil(size);
        let Ok(packets) = u16::try_from(packets) else { return };
        (self.transport_offset, self.payload_offset, self.segment_size, self.packets) =
            (transport, payload, size, packets);
    }

    /// Returns the size of the segments `first..first + count` as IP packets on the wire, each with its own headers and
    /// `overhead`, in bytes.
    #[must_use]
    pub fn wire_bytes(&self, first: u16, count: u16, overhead: u32) -> u32 {
        if self.segment_size == 0 {
            return u32::try_from(self.end_offset.saturating_sub(self.ip_offset)).unwrap_or(u32::MAX) + overhead;
        }
        let headers = u32::try_from(self.payload_offset - self.ip_offset).unwrap_or(u32::MAX) + overhead;
        headers * u32::from(count) + u32::try_from(self.payload_range(first, count).len()).unwrap_or(u32::MAX)
    }

    /// Returns the range of the payload of these segments.
    fn payload_range(&self, first: u16, count: u16) -> Range<usize> {
        let start = self.payload_offset + usize::from(first) * self.segment_size;
        start..(start + usize::from(count) * self.segment_size).min(self.end_offset)
    }

    /// Writes the headers of a run into `head`, and returns the range of its payload. `mark` sets "congestion
    /// experienced".
    pub fn segment_run(&self, bytes: &[u8], run: SegmentRun, head: &mut Vec<u8>) -> Range<usize> {
        head.clear();
        if run.count == self.packets && !run.mark {
            head.extend_from_slice(&bytes[..self.payload_offset]);
            return self.payload_offset..self.end_offset;
        }
        head.extend_from_slice(&bytes[..self.payload_offset]);
        if run.mark {
            self.set_ce(head);
        }
        if self.segment_size == 0 {
            self.update_ip_checksum(head);
            return self.payload_offset..self.end_offset;
        }
        let payload = self.payload_range(run.first, run.count);
        let is_last = run.first + run.count == self.packets;
        self.write_ip_header(head, run.first, payload.len());
        self.write_transport_header(head, run.first, is_last, payload.len());
        self.write_vnet_header(head, run);
        payload
    }

    fn set_ce(&self, head: &mut [u8]) {
        match self.version {
            IpVersion::V4 => head[self.ip_offset + 1] |= 3,
            IpVersion::V6 => head[self.ip_offset + 1] |= 0x30,
            IpVersion::Other => {}
        }
    }

    fn write_ip_header(&self, head: &mut [u8], first: u16, payload: usize) {
        let length = head.len() - self.ip_offset + payload;
        if self.version == IpVersion::V4 {
            put_u16_be(head, self.ip_offset + 2, length);
            let id = u16_be_at(head, self.ip_offset + 4) + usize::from(first);
            put_u16_be(head, self.ip_offset + 4, id & 0xffff);
        } else {
            put_u16_be(head, self.ip_offset + 4, length - 40);
        }
        self.update_ip_checksum(head);
    }

    fn update_ip_checksum(&self, head: &mut [u8]) {
        if self.version != IpVersion::V4 {
            return;
        }
        put_u16_be(head, self.ip_offset + 10, 0);
        let header = self.ip_offset..self.transport_offset.min(head.len());
        let checksum = !fold_checksum(checksum_sum(&head[header]));
        put_u16_be(head, self.ip_offset + 10, usize::from(checksum));
    }

    /// Writes sequence number, flags and lengths. The checksum field gets the sum of the pseudo-header, as checksum
    /// offload requires (RFC 9293 section 3.1, RFC 768).
    fn write_transport_header(&self, head: &mut [u8], first: u16, is_last: bool, payload: usize) {
        let transport = self.transport_offset;
        let length = head.len() - transport + payload;
        let (protocol, checksum) = if self.is_tcp(head) {
            let sequence = &mut head[transport + 4..transport + 8];
            let old = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
            let ahead = u32::from(first) * u32::try_from(self.segment_size).unwrap_or(0);
            sequence.copy_from_slice(&old.wrapping_add(ahead).to_be_bytes());
            let flags = &mut head[transport + 13];
            if !is_last {
                *flags &= !TCP_FIN_PSH;
            }
            if first > 0 {
                *flags &= !TCP_CWR;
            }
            (TCP, transport + 16)
        } else {
            put_u16_be(head, transport + 4, length);
            (UDP, transport + 6)
        };
        let addresses = if self.version == IpVersion::V4 {
            self.ip_offset + 12..self.ip_offset + 20
        } else {
            self.ip_offset + 8..self.ip_offset + 40
        };
        let pseudo = checksum_sum(&head[addresses]) + u64::from(protocol) + length as u64;
        put_u16_be(head, checksum, usize::from(fold_checksum(pseudo)));
    }

    fn is_tcp(&self, bytes: &[u8]) -> bool {
        bytes[1] & !GSO_ECN != GSO_UDP
    }

    fn write_vnet_header(&self, head: &mut [u8], run: SegmentRun) {
        let checksum_offset: u16 = if self.is_tcp(head) { 16 } else { 6 };
        let mut kind = head[1];
        if run.first > 0 {
            kind &= !GSO_ECN;
        }
        let (kind, size) = if run.count > 1 { (kind, self.segment_size) } else { (0, 0) };
        head[0] = NEEDS_CHECKSUM;
        head[1] = kind;
        put_u16_ne(head, 2, self.payload_offset - VNET_HEADER);
        put_u16_ne(head, 4, size);
        put_u16_ne(head, 6, self.transport_offset - VNET_HEADER);
        put_u16_ne(head, 8, usize::from(checksum_offset));
    }
}

/// Neighbouring segments of one superpacket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRun {
    /// Index of the first segment.
    pub first: u16,
    /// Number of segments in the run.
    pub count: u16,
    /// Whether to mark the segments "congestion experienced".
    pub mark: bool,
}

fn put_u16_be(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put_u16_ne(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}

/// Returns the unfolded sum of the Internet checksum (RFC 1071).
fn checksum_sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
}

fn fold_checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Fields of a TCP header in a packet log (RFC 9293 section 3.1), with the addresses. It describes one packet or a run
/// of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader {
    /// Address and port of the sender.
    pub source: SocketAddrV4,
    /// Address and port of the receiver.
    pub target: SocketAddrV4,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Next sequence number that the sender expects.
    pub acknowledgement: u32,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit.
    pub flags: u8,
    /// Length of the payload, in bytes.
    pub length: u32,
}

impl Frame {
    /// Returns the header of `count` segments from `first` on, as of one packet. Returns `None` unless the frame is TCP
    /// over IPv4.
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
            // The length is from the IP header, because a frame may be padded.
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

#[cfg(test)]
mod tests;
