//! Flows: which packets answer which.

use std::net::IpAddr;

use super::{NetworkHeader, ports};
use crate::wire::WireError;
use crate::wire::cursor::Cursor;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Length of the header of an ICMP error, in bytes; the packet that caused the error follows.
const ICMP_ERROR_HEADER: usize = 8;

/// In place of a port, the end of an echo that sends the requests. Not the value of a port or an identifier.
const PING: u32 = 1 << 16;

/// The packets from one host to another with the same protocol and ports, or with the same identifier of ICMP echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketFlow {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// The source port and the destination port; [`PING`] and the identifier of an echo request, or the reverse of an
    /// echo reply. `None` for other protocols, and for fragments other than the first.
    ports: Option<[u32; 2]>,
}

impl PacketFlow {
    /// Returns the flow of a packet, which may be truncated after its first 8 bytes of payload. `None` for a malformed
    /// packet, and for ICMP other than echo.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(packet);
        let NetworkHeader { source, destination, protocol, is_later_fragment, .. } =
            NetworkHeader::read(&mut cursor).ok()?;
        let ports = if is_later_fragment { None } else { flow_ports(&mut cursor, protocol).ok()? };
        Some(Self { source, destination, protocol, ports })
    }

    /// Returns the flow that a packet answers: its own flow in the other direction. An ICMP error to the source of the
    /// packet that caused it answers the flow of that packet. `None` if there is no such flow.
    #[must_use]
    pub fn answered_by(packet: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(packet);
        let header = NetworkHeader::read(&mut cursor).ok()?;
        let payload = &packet[cursor.position()..];
        // RFC 792: destination unreachable, time exceeded, parameter problem. RFC 4443: also packet too big.
        let is_error = match (header.protocol, payload.first()) {
            (ICMP, Some(3 | 11 | 12)) | (ICMPV6, Some(1..=4)) => !header.is_later_fragment,
            _ => false,
        };
        if is_error {
            return Self::of(payload.get(ICMP_ERROR_HEADER..)?).filter(|flow| flow.source == header.destination);
        }
        let Self { source, destination, protocol, ports } = Self::of(packet)?;
        let ports = ports.map(|[source, destination]| [destination, source]);
        Some(Self { source: destination, destination: source, protocol, ports })
    }

    /// Returns the flow of the later fragments of this flow's packets.
    #[must_use]
    pub const fn of_later_fragments(self) -> Self {
        Self { ports: None, ..self }
    }
}

fn flow_ports(cursor: &mut Cursor<'_>, protocol: u8) -> Result<Option<[u32; 2]>, WireError> {
    if !matches!(protocol, ICMP | ICMPV6) {
        return Ok(ports(cursor, protocol)?.map(|ports| ports.map(u32::from)));
    }
    let [kind, _code] = cursor.array()?;
    let _checksum: [u8; 2] = cursor.array()?;
    let id = u32::from(u16::from_be_bytes(cursor.array()?));
    match (protocol, kind) {
        (ICMP, 8) | (ICMPV6, 128) => Ok(Some([PING, id])),
        (ICMP, 0) | (ICMPV6, 129) => Ok(Some([id, PING])),
        _ => Err(WireError::Invalid("ICMP other than echo")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;
    const ESP: u8 = 50;
    const NEAR: [u8; 4] = [192, 168, 1, 7];
    const FAR: [u8; 4] = [192, 168, 2, 9];

    /// A packet with the fragment offset `offset`, in units of 8 bytes.
    fn fragment(protocol: u8, from: [u8; 4], to: [u8; 4], offset: u8, payload: &[u8]) -> Vec<u8> {
        let length = 20 + u8::try_from(payload.len()).unwrap();
        [&[0x45, 0, 0, length, 0, 1, 0, offset, 64, protocol, 0, 0][..], &from, &to, payload].concat()
    }

    fn packet(protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
        fragment(protocol, from, to, 0, payload)
    }

    fn packet_v6(from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
        let address = |last: u8| [&[0xfd][..], &[0; 14], &[last]].concat();
        let header = [0x60, 0, 0, 0, 0, u8::try_from(payload.len()).unwrap(), ICMPV6, 64];
        [&header[..], &address(from), &address(to), payload].concat()
    }

    fn is_answer(request: &[u8], answer: &[u8]) -> bool {
        PacketFlow::of(request).is_some() && PacketFlow::of(request) == PacketFlow::answered_by(answer)
    }

    #[test]
    fn answers_have_the_reversed_addresses_and_ports() {
        let request = packet(UDP, NEAR, FAR, &[0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
        let answers = |protocol, from, to, payload: &[u8]| is_answer(&request, &packet(protocol, from, to, payload));
        assert!(answers(UDP, FAR, NEAR, &[0, 53, 0x0f, 0xa0, 0, 8, 0, 0]));
        assert!(!answers(UDP, FAR, NEAR, &[0, 54, 0x0f, 0xa0, 0, 8, 0, 0]), "from another port");
        assert!(!answers(UDP, FAR, NEAR, &[0, 53, 0x0f, 0xa1, 0, 8, 0, 0]), "to another port");
        assert!(!answers(UDP, [192, 168, 2, 8], NEAR, &[0, 53, 0x0f, 0xa0, 0, 8, 0, 0]), "from another host");
        assert!(!answers(136, FAR, NEAR, &[0, 53, 0x0f, 0xa0, 0, 8, 0, 0]), "another protocol");
        assert!(!answers(UDP, NEAR, FAR, &[0x0f, 0xa0, 0, 53, 0, 8, 0, 0]), "the request itself");
        assert!(is_answer(&packet(ESP, NEAR, FAR, b"a"), &packet(ESP, FAR, NEAR, b"b")), "without ports");
    }

    #[test]
    fn later_fragments_answer_the_flows_of_their_hosts() {
        let request = PacketFlow::of(&packet(UDP, NEAR, FAR, &[0x0f, 0xa0, 0, 53, 0, 8, 0, 0])).unwrap();
        let answer = PacketFlow::answered_by(&fragment(UDP, FAR, NEAR, 1, &[0, 53, 0x0f, 0xa0, 0, 8, 0, 0])).unwrap();
        assert!(answer != request && answer == request.of_later_fragments());
    }

    #[test]
    fn echo_reply_answers_the_request_with_its_identifier() {
        let (request, reply) = ([8, 0, 0, 0, 7, 7, 0, 1], [0, 0, 0, 0, 7, 7, 0, 1]);
        let answers = |payload: &[u8]| is_answer(&packet(ICMP, NEAR, FAR, &request), &packet(ICMP, FAR, NEAR, payload));
        assert!(answers(&reply));
        assert!(!answers(&request), "a request of the other host");
        assert!(!answers(&[0, 0, 0, 0, 7, 8, 0, 1]), "another identifier");
        assert!(is_answer(&packet_v6(1, 2, &[128, 0, 0, 0, 7, 7]), &packet_v6(2, 1, &[129, 0, 0, 0, 7, 7])));
        assert_eq!(PacketFlow::of(&packet(ICMP, NEAR, FAR, &[13, 0, 0, 0, 7, 7, 0, 1])), None, "a timestamp request");
    }

    #[test]
    fn icmp_error_answers_the_packet_that_it_contains() {
        let request = packet(UDP, NEAR, FAR, &[0x0f, 0xa0, 0, 53, 0, 99, 0, 0, 1, 2, 3]);
        let error = |kind: u8, to, about: &[u8]| packet(ICMP, [192, 168, 2, 1], to, &[&[kind; 8], about].concat());
        for kind in [3, 11, 12] {
            assert!(is_answer(&request, &error(kind, NEAR, &request[..28])), "{kind}");
            assert!(!is_answer(&request, &error(kind, [192, 168, 1, 8], &request)), "{kind} to another host");
            assert_eq!(PacketFlow::answered_by(&error(kind, NEAR, &request[..22])), None, "{kind}, truncated");
        }
        assert_eq!(PacketFlow::of(&error(3, NEAR, &request)), None, "an error begins no flow");
        assert_eq!(PacketFlow::answered_by(&error(5, NEAR, &request)), None, "a redirect");
        let request = packet_v6(1, 2, &[128, 0, 0, 0, 7, 7, 0, 1]);
        assert!(is_answer(&request, &packet_v6(3, 1, &[&[2; 8], &request[..]].concat())), "too big");
    }
}
