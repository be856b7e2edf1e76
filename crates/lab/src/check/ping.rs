//! Pings. The kernel of the target host answers, so that no process has to run there, and the kernel of the sending
//! host timestamps the answer.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_sys::udp::{self, BatchReceiver};

use crate::topology::network::HostHandle;
use ekiden_emulator::Nanos;

/// Length of a message, in bytes: type, code, checksum, identifier, sequence number (RFC 792), and the send time.
const MESSAGE_LEN: usize = 16;
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
const IP_HEADER: usize = 20;

/// Size of a ping as an IP packet, in bytes.
pub const PACKET_BYTES: u32 = (IP_HEADER + MESSAGE_LEN) as u32;

/// Time without an answer after which the remaining pings count as lost.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(1000);

/// Sends `count` pings, one every `gap`, and returns the round-trip times of the answered pings, in microseconds.
///
/// # Errors
/// A system call failed. Without `CAP_NET_RAW`, the socket cannot be opened.
pub fn ping(from: &HostHandle, to: &HostHandle, count: u16, gap: Nanos) -> io::Result<Vec<f64>> {
    let socket = UdpSocket::from(from.enter(udp::open_icmp)??);
    udp::enable_receive_info(socket.as_fd(), 1 << 20)?;
    socket.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    let target = to.ipv4();
    // Several checks may ping the same host at once; the low bits of the clock make distinct identifiers likely.
    let identifier = (udp::realtime_nanos() >> 4) as u16;
    std::thread::scope(|scope| {
        let send_thread = scope.spawn(|| send_all(&socket, target, identifier, count, gap));
        let mut trips = Vec::new();
        let mut batch = BatchReceiver::default();
        while trips.len() < usize::from(count) {
            let received = batch.receive(socket.as_fd(), |packet, arrival| {
                trips.extend(
                    echo_send_time(packet, identifier).map(|sent| arrival.at.saturating_sub(sent) as f64 / 1e3),
                );
            });
            match received {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        send_thread.join().map_err(|_| io::Error::other("the sender panicked"))??;
        Ok(trips)
    })
}

fn send_all(socket: &UdpSocket, target: Ipv4Addr, identifier: u16, count: u16, gap: Nanos) -> io::Result<()> {
    // Errors are ignored: with the default timer slack the gaps are only less regular.
    let _ = ekiden_sys::thread::set_min_timer_slack();
    let start = udp::realtime_nanos();
    for sequence in 0..count {
        udp::sleep_until(start + u64::from(sequence) * gap);
        socket.send_to(&echo_request(identifier, sequence, udp::realtime_nanos()), (target, 0))?;
    }
    Ok(())
}

fn echo_request(identifier: u16, sequence: u16, now: Nanos) -> [u8; MESSAGE_LEN] {
    let mut packet = [0; MESSAGE_LEN];
    packet[0] = ECHO;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[8..].copy_from_slice(&now.to_be_bytes());
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Returns the send time of the ping that this IP packet answers; `None` if the packet is no answer to `identifier`.
fn echo_send_time(packet: &[u8], identifier: u16) -> Option<Nanos> {
    let reply = packet.get(IP_HEADER..IP_HEADER + MESSAGE_LEN)?;
    let ours = reply[0] == ECHO_REPLY && reply[4..6] == identifier.to_be_bytes();
    ours.then(|| reply[8..].first_chunk().map(|time| Nanos::from_be_bytes(*time)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_to_own_requests_have_a_send_time() {
        let mut packet = [[0; IP_HEADER].as_slice(), &echo_request(7, 3, 123_456_789)].concat();
        assert_eq!(checksum(&packet[IP_HEADER..]), 0, "the sum over data with a correct checksum is all ones");
        assert_eq!(echo_send_time(&packet, 7), None, "a request is no reply");
        packet[IP_HEADER] = ECHO_REPLY;
        assert_eq!((echo_send_time(&packet, 7), echo_send_time(&packet, 8)), (Some(123_456_789), None));
        assert_eq!(echo_send_time(&packet[..30], 7), None);
    }

    /// The example of RFC 1071 section 3.
    #[test]
    fn checksum_matches_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
