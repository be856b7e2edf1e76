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

/// Segments a run into packets with complete checksums, as the receiving stack sees them. Written from the RFCs,
/// independent of the module.
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

fn segment_frame(frame: &Frame, bytes: &[u8], first: u16, count: u16, mark: bool) -> Vec<u8> {
    let mut head = Vec::new();
    let payload = frame.segment_run(bytes, SegmentRun { first, count, mark }, &mut head);
    head.extend_from_slice(&bytes[payload]);
    head
}

/// Returns whether the checksum field has the sum of the pseudo-header of this run.
fn has_valid_pseudo_checksum(run: &[u8]) -> bool {
    let length = (run.len() - 44) as u64;
    let wanted = fold_checksum(checksum_sum(&run[36..44]) + u64::from(TCP) + length);
    u16::from_be_bytes([run[60], run[61]]) == wanted
}

#[test]
fn a_superpacket_is_as_many_packets_as_the_wire_would_carry() {
    let bytes = superpacket(3 * MSS + 100);
    let frame = Frame::parse(&bytes, 14);
    assert_eq!((frame.packets, frame.ecn), (4, Ecn::Capable));
    let sizes: Vec<u32> = (0..4).map(|i| frame.wire_bytes(i, 1, 0)).collect();
    assert_eq!(sizes, [1488, 1488, 1488, 140]);
    assert_eq!(frame.wire_bytes(0, 4, 0), sizes.iter().sum::<u32>());
    assert_eq!(frame.wire_bytes(3, 1, 38), 178, "with the overhead of Ethernet");
}

#[test]
fn however_it_is_cut_the_receiver_sees_the_same_packets() {
    let bytes = superpacket(7 * MSS + 100);
    let frame = Frame::parse(&bytes, 14);
    let whole = wire_packets(&segment_frame(&frame, &bytes, 0, 8, false));
    assert_eq!(whole.len(), 8);
    for cuts in [vec![1; 8], vec![2, 3, 3], vec![7, 1], vec![1, 7], vec![4, 4]] {
        let mut seen = Vec::new();
        let mut first = 0;
        for count in cuts {
            let run = segment_frame(&frame, &bytes, first, count, false);
            assert!(has_valid_pseudo_checksum(&run) || count == 8, "run of {count} at {first}");
            assert_eq!(run[1] & !GSO_ECN == 0, count == 1, "one packet is no superpacket");
            assert_eq!(run[1] & GSO_ECN != 0, first == 0 && count > 1, "CWR is in the first packet only");
            seen.extend(wire_packets(&run));
            first += count;
        }
        // Excludes the TCP checksum, which covers different lengths here; `has_valid_pseudo_checksum` tests it.
        let without_checksum =
            |packets: &[Vec<u8>]| packets.iter().map(|p| [&p[..36], &p[38..]].concat()).collect::<Vec<_>>();
        assert_eq!(without_checksum(&seen), without_checksum(&whole));
    }
}

#[test]
fn a_marked_run_says_so_and_its_header_is_right() {
    let bytes = superpacket(3 * MSS);
    let frame = Frame::parse(&bytes, 14);
    let run = segment_frame(&frame, &bytes, 1, 1, true);
    assert_eq!(run[25] & 3, 3);
    assert_eq!(fold_checksum(checksum_sum(&run[24..44])), 0xffff, "RFC 1071: a right header sums up to ones");
    let single = segment_frame(&frame, &bytes, 0, 3, true);
    assert_eq!(Frame::parse(&single, 14).ecn, Ecn::Marked);
}

#[test]
fn a_single_packet_is_marked_without_touching_anything_else() {
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
fn the_flow_is_the_connection_and_not_the_packet() {
    let one = superpacket(10);
    let mut same = superpacket(2000);
    same[45] = 9;
    let flow = |bytes: &[u8]| Frame::parse(bytes, 14).flow;
    same[45] = one[45];
    assert_eq!(flow(&one), flow(&same));
    same[45] ^= 1;
    assert_ne!(flow(&one), flow(&same), "another port");
}

#[test]
fn the_source_is_the_address_of_the_sender() {
    assert_eq!(Frame::parse(&superpacket(10), 14).source, 0x0a00_0001);
    let arp = [vec![0; 22], vec![0x08, 0x06], vec![0; 28]].concat();
    assert_eq!(Frame::parse(&arp, 14).source, 0);
}

#[test]
fn what_is_broken_or_unknown_is_one_packet() {
    let arp = [vec![0; 22], vec![0x08, 0x06], vec![0; 28]].concat();
    assert_eq!(Frame::parse(&arp, 14).packets, 1);
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
fn a_log_sees_each_packet_of_a_superpacket_with_its_own_sequence_number() {
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
    assert_eq!(frame.tcp_header(&bytes, 0, 3).unwrap().length, 2996, "whole");
}

#[test]
fn a_log_takes_the_length_of_a_padded_packet_from_its_header_and_nothing_from_other_protocols() {
    let mut bytes = superpacket(5);
    (bytes[0], bytes[1]) = (0, 0);
    bytes.extend([0; 9]);
    assert_eq!(Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1).map(|header| header.length), Some(5));
    bytes[24 + 9] = UDP;
    assert_eq!(Frame::parse(&bytes, 14).tcp_header(&bytes, 0, 1), None);
    assert_eq!(Frame::parse(&bytes[..30], 14).tcp_header(&bytes[..30], 0, 1), None);
}
