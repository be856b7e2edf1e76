//! Parses and segments frames of `AF_PACKET` sockets and TUN devices. A superpacket is many packets of the wire with
//! one header.
//!
//! Offsets count from the `virtio_net_hdr` in front of the frame. A *run* is a sequence of neighbouring segments of one
//! superpacket. It is sent as a smaller superpacket, whose header is built here as linux/net/ipv4/tcp_offload.c does
//! for segments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use ekiden_proto::aqm;
use ekiden_sys::packet::VNET_HEADER;
use serde::{Deserialize, Serialize};

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
        self.flow = aqm::connection_hash(addresses, ports.unwrap_or_default(), protocol);
        self.source = aqm::source_key(&addresses[..addresses.len() / 2]);
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
            let base = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
            let offset = u32::from(first) * u32::try_from(self.segment_size).unwrap_or(0);
            sequence.copy_from_slice(&base.wrapping_add(offset).to_be_bytes());
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpHeader {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub target: SocketAddr,
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
    /// directly behind the IP header, and no fragment other than the first.
    #[must_use]
    pub fn tcp_header(&self, bytes: &[u8], first: u16, count: u16) -> Option<TcpHeader> {
        let packet = bytes.get(self.ip_offset..self.end_offset)?;
        let header = bytes.get(self.transport_offset..self.transport_offset + 20)?;
        let (source, target, ip_length) = self.tcp_addresses(packet)?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = if self.segment_size > 0 {
            self.payload_range(first, count).len()
        } else {
            // The length is from the IP header, because a frame may be padded.
            let headers = self.transport_offset - self.ip_offset + usize::from(header[12] >> 4) * 4;
            ip_length.saturating_sub(headers)
        };
        let offset = u32::from(first).wrapping_mul(u32::try_from(self.segment_size).ok()?);
        Some(TcpHeader {
            source: SocketAddr::new(source, port(0)),
            target: SocketAddr::new(target, port(2)),
            sequence: number(4).wrapping_add(offset),
            acknowledgement: number(8),
            flags: header[13],
            length: u32::try_from(length).ok()?,
        })
    }

    /// Returns the addresses of a packet of TCP, and its length with the IP header.
    fn tcp_addresses(&self, packet: &[u8]) -> Option<(IpAddr, IpAddr, usize)> {
        match self.version {
            IpVersion::V4 if packet[9] == TCP && u16_be_at(packet, 6) & 0x1fff == 0 => {
                let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
                Some((address(12).into(), address(16).into(), u16_be_at(packet, 2)))
            }
            IpVersion::V6 if packet[6] == TCP => {
                let address = |at: usize| packet[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into());
                Some((address(8)?, address(24)?, 40 + u16_be_at(packet, 4)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1448;

    /// Returns a TCP superpacket over IPv4 with `payload` bytes, as a host emits it, with FIN, PSH, CWR and ACK set.
    fn superpacket(payload: usize) -> Vec<u8> {
        let mut bytes = vec![NEEDS_CHECKSUM, GSO_TCP4 | GSO_ECN, 0, 0, 0, 0, 0, 0, 0, 0];
        put_u16_ne(&mut bytes, 4, MSS);
        put_u16_ne(&mut bytes, 6, 34);
        put_u16_ne(&mut bytes, 8, 16);
        bytes.extend([2; 12]);
        bytes.extend([0x08, 0x00]);
        let total = u16::try_from(40 + payload).unwrap().to_be_bytes();
        bytes.extend([0x45, 0x02, total[0], total[1], 0xff, 0xfe, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([
            0x80,
            0,
            0,
            80,
            0xff,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
            1,
            0x50,
            TCP_FIN_PSH | TCP_CWR | 0x10,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        bytes.extend((0..payload).map(|i| (i % 251) as u8));
        bytes
    }

    /// Segments a run into packets with valid IP checksums, as the receiving stack does. Implements the RFCs
    /// independently of the module under test.
    fn wire_packets(frame: &[u8]) -> Vec<Vec<u8>> {
        let gso = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
        let ip = 24;
        let payload = &frame[ip + 40..];
        let size = if frame[1] == 0 { payload.len() } else { gso };
        let mut packets = Vec::new();
        for (index, chunk) in payload.chunks(size).enumerate() {
            let is_last = (index + 1) * size >= payload.len();
            let mut packet = frame[ip..ip + 40].to_vec();
            packet.extend_from_slice(chunk);
            let length = u16::try_from(packet.len()).unwrap();
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(u16::try_from(index).unwrap());
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].copy_from_slice(&[0, 0]);
            let checksum = !fold_checksum(checksum_sum(&packet[..20]));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
            let ahead = u32::try_from(index * size).unwrap();
            packet[24..28].copy_from_slice(&sequence.wrapping_add(ahead).to_be_bytes());
            if !is_last {
                packet[33] &= !0x09;
            }
            if index > 0 {
                packet[33] &= !0x80;
            }
            packets.push(packet);
        }
        packets
    }

    fn arp() -> Vec<u8> {
        [vec![0; 22], vec![0x08, 0x06], vec![0; 28]].concat()
    }

    fn segment_frame(frame: &Frame, bytes: &[u8], first: u16, count: u16, mark: bool) -> Vec<u8> {
        let mut head = Vec::new();
        let payload = frame.segment_run(bytes, SegmentRun { first, count, mark }, &mut head);
        head.extend_from_slice(&bytes[payload]);
        head
    }

    /// Returns whether the TCP checksum field contains the sum of the pseudo-header with the length of this run.
    fn has_valid_pseudo_checksum(run: &[u8]) -> bool {
        let length = (run.len() - 44) as u64;
        let wanted = fold_checksum(checksum_sum(&run[36..44]) + u64::from(TCP) + length);
        u16::from_be_bytes([run[60], run[61]]) == wanted
    }

    #[test]
    fn superpacket_has_the_packets_and_sizes_of_the_wire() {
        let bytes = superpacket(3 * MSS + 100);
        let frame = Frame::parse(&bytes, 14);
        assert_eq!((frame.packets, frame.ecn), (4, Ecn::Capable));
        let sizes: Vec<u32> = (0..4).map(|i| frame.wire_bytes(i, 1, 0)).collect();
        assert_eq!(sizes, [1488, 1488, 1488, 140]);
        assert_eq!(frame.wire_bytes(0, 4, 0), sizes.iter().sum::<u32>());
        assert_eq!(frame.wire_bytes(3, 1, 38), 178, "with the overhead of Ethernet");
    }

    #[test]
    fn segmentation_into_any_runs_gives_the_same_packets() {
        let bytes = superpacket(7 * MSS + 100);
        let frame = Frame::parse(&bytes, 14);
        let whole = wire_packets(&bytes);
        assert_eq!(whole.len(), 8);
        assert_eq!(segment_frame(&frame, &bytes, 0, 8, false), bytes, "the whole superpacket is unchanged");
        for cuts in [vec![1; 8], vec![2, 3, 3], vec![7, 1], vec![1, 7], vec![4, 4]] {
            let mut seen = Vec::new();
            let mut first = 0;
            for count in cuts {
                let run = segment_frame(&frame, &bytes, first, count, false);
                assert!(has_valid_pseudo_checksum(&run), "run of {count} at {first}");
                assert_eq!(run[1] & !GSO_ECN == 0, count == 1, "one packet is no superpacket");
                assert_eq!(run[1] & GSO_ECN != 0, first == 0 && count > 1, "CWR is in the first packet only");
                seen.extend(wire_packets(&run));
                first += count;
            }
            // The TCP checksum is excluded, because it includes the length of the run; `has_valid_pseudo_checksum`
            // checks it.
            let without_checksum =
                |packets: &[Vec<u8>]| packets.iter().map(|p| [&p[..36], &p[38..]].concat()).collect::<Vec<_>>();
            assert_eq!(without_checksum(&seen), without_checksum(&whole));
        }
    }

    #[test]
    fn marked_run_has_ce_and_a_valid_header_checksum() {
        let bytes = superpacket(3 * MSS);
        let frame = Frame::parse(&bytes, 14);
        let run = segment_frame(&frame, &bytes, 1, 1, true);
        assert_eq!(run[25] & 3, 3);
        assert_eq!(
            fold_checksum(checksum_sum(&run[24..44])),
            0xffff,
            "RFC 1071: the sum of a valid header is all ones"
        );
        let single = segment_frame(&frame, &bytes, 0, 3, true);
        assert_eq!(Frame::parse(&single, 14).ecn, Ecn::Marked);
    }

    #[test]
    fn marking_a_single_packet_changes_only_the_ip_header() {
        let mut bytes = superpacket(100);
        bytes[..10].fill(0);
        let frame = Frame::parse(&bytes, 14);
        assert_eq!(frame.packets, 1);
        assert_eq!(segment_frame(&frame, &bytes, 0, 1, false), bytes, "untouched");
        let marked = segment_frame(&frame, &bytes, 0, 1, true);
        assert_eq!(fold_checksum(checksum_sum(&marked[24..44])), 0xffff);
        assert_eq!((marked[25], &marked[44..]), (3, &bytes[44..]));
    }

    #[test]
    fn flow_depends_on_the_connection_only() {
        let one = superpacket(10);
        let flow = |bytes: &[u8]| Frame::parse(bytes, 14).flow;
        let of_other = |at: usize, value: u8| {
            let mut other = superpacket(2000);
            assert_ne!(std::mem::replace(&mut other[at], value), value, "byte {at} changes");
            flow(&other)
        };
        for (at, field) in [(25, "ECN"), (29, "identification"), (32, "TTL"), (51, "sequence number"), (57, "flags")] {
            assert_eq!(of_other(at, 3), flow(&one), "another {field}");
        }
        for (at, field) in [
            (33, "protocol"),
            (39, "source address"),
            (43, "destination address"),
            (45, "source port"),
            (47, "destination port"),
        ] {
            assert_ne!(of_other(at, UDP), flow(&one), "another {field}");
        }
    }

    #[test]
    fn the_source_is_the_address_of_the_sender() {
        assert_eq!(Frame::parse(&superpacket(10), 14).source, 0x0a00_0001);
        assert_eq!(Frame::parse(&arp(), 14).source, 0);
    }

    #[test]
    fn unknown_protocols_are_one_packet_and_malformed_frames_are_safe() {
        assert_eq!(Frame::parse(&arp(), 14).packets, 1);
        let whole = superpacket(3000);
        for length in 0..whole.len().min(200) {
            let frame = Frame::parse(&whole[..length], 14);
            assert!(frame.packets >= 1);
            assert!(segment_frame(&frame, &whole[..length], 0, frame.packets, false).len() <= length.max(1));
        }
        let mut wild = superpacket(3000);
        for at in 0..64 {
            for value in [0, 1, 0x7f, 0xff] {
                let old = std::mem::replace(&mut wild[at], value);
                let frame = Frame::parse(&wild, 14);
                for first in 0..frame.packets {
                    let run = segment_frame(&frame, &wild, first, 1, true);
                    assert!(run.len() <= wild.len(), "byte {at} = {value}");
                }
                wild[at] = old;
            }
        }
    }

    #[test]
    fn packets_of_a_superpacket_have_their_own_sequence_numbers() {
        let bytes = superpacket(2 * MSS + 100);
        let frame = Frame::parse(&bytes, 14);
        let headers: Vec<TcpHeader> = (0..3).map(|first| frame.tcp_header(&bytes, first, 1).unwrap()).collect();
        // The superpacket starts 256 bytes before the sequence number wraps.
        assert_eq!(headers.iter().map(|header| header.sequence).collect::<Vec<_>>(), [0xffff_ff00, 1192, 2640]);
        assert_eq!(headers.iter().map(|header| header.length).collect::<Vec<_>>(), [1448, 1448, 100]);
        assert_eq!(
            (headers[0].source.to_string(), headers[0].target.to_string()),
            ("10.0.0.1:32768".into(), "10.0.0.2:80".into())
        );
        assert_eq!((headers[1].acknowledgement, headers[1].flags & 0x10), (1, 0x10));
        assert_eq!(frame.tcp_header(&bytes, 0, 3).unwrap().length, 2996, "the whole superpacket");
    }

    #[test]
    fn tcp_headers_are_read_over_ipv6() {
        let mut bytes = vec![0; VNET_HEADER + 12];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 25, TCP, 64]);
        for last in [1, 2] {
            bytes.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets());
        }
        bytes.extend([0x80, 0, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.extend([1; 5]);
        let header = Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1).unwrap();
        assert_eq!(
            (header.source.to_string(), header.target.to_string()),
            ("[fd00::1]:32768".into(), "[fd00::2]:80".into())
        );
        assert_eq!((header.sequence, header.acknowledgement, header.flags, header.length), (7, 9, 0x18, 5));
        bytes[VNET_HEADER + 14 + 6] = UDP;
        assert_eq!(Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1), None);
    }

    #[test]
    fn tcp_length_excludes_padding_and_other_protocols_have_none() {
        let mut bytes = superpacket(5);
        (bytes[0], bytes[1]) = (0, 0);
        bytes.extend([0; 9]);
        assert_eq!(Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1).map(|header| header.length), Some(5));
        bytes[24 + 9] = UDP;
        assert_eq!(Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1), None);
        assert_eq!(Frame::parse(&bytes[..30], 14).tcp_header(&bytes[..30], 0, 1), None);
    }
}
