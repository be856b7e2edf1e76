//! Probes: numbered datagrams, sent on a schedule from one host to another and timestamped by the kernel on arrival.
//!
//! Scheduling delays of the receiver do not matter, because the kernel takes the timestamps. Scheduling delays of the
//! sender do: the sender takes a timestamp right before it sends a datagram, and records the duration of the call. A
//! long call means that the sender was interrupted between timestamp and transmission. Such a datagram is excluded from
//! all measurements of time.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ekiden_sys::udp::{self, BatchReceiver, DatagramInfo};

use crate::topology::network::HostHandle;
use ekiden_emulator::Nanos;

/// IP and UDP headers, in bytes.
pub const HEADER_BYTES: u32 = 28;

/// Size of the smallest probe as an IP packet, in bytes.
pub const MIN_PROBE_BYTES: u32 = HEADER_BYTES + PAYLOAD_BYTES as u32;

const PAYLOAD_BYTES: usize = 20;
const MAGIC: u32 = 0x656b_6964;

/// Size of the receive buffer, in bytes: about one second of a fast link.
const RECEIVE_BUFFER: usize = 64 << 20;

/// Time before a probe is due, in nanoseconds, in which the sender busy-waits, because sleeping is less precise.
const SPIN_BEFORE: Nanos = 30_000;

/// Duration of a send call above which the call counts as interrupted, in nanoseconds.
const MAX_CALL_TIME: Nanos = 100_000;

/// One send call: one packet, or a superpacket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeSend {
    /// Send time, in nanoseconds since the start.
    pub at: Nanos,
    /// The size of each IP packet, in bytes.
    pub bytes: u32,
    /// The number of packets in the superpacket.
    pub packets: u16,
    /// The index of the sender; odd senders are ECN-capable.
    pub sender: u16,
}

/// A probe that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentProbe {
    /// Time right before the send call, in nanoseconds of the real-time clock.
    pub at: Nanos,
    /// Duration of the send call, in nanoseconds.
    pub call_time: Nanos,
    /// The size of the IP packet, in bytes.
    pub bytes: u32,
    /// Index in the superpacket, from 0, and number of packets in the superpacket.
    pub segment: (u16, u16),
}

impl SentProbe {
    /// Returns whether `at` is a reliable send time.
    pub const fn is_timely(&self) -> bool {
        self.call_time <= MAX_CALL_TIME
    }
}

/// A probe that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedProbe {
    /// Index in the list of sent probes.
    pub number: usize,
    /// Kernel timestamp of the arrival, in nanoseconds of the real-time clock.
    pub at: Nanos,
    /// Whether the packet was marked "congestion experienced" (RFC 3168).
    pub marked: bool,
}

/// The sent and received probes of a series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeSeries {
    /// All sent probes, in order.
    pub sent: Vec<SentProbe>,
    /// All received probes, in order of arrival.
    pub received: Vec<ReceivedProbe>,
    /// Number of probes that the receiving socket dropped.
    pub overflow: u32,
}

impl ProbeSeries {
    /// Returns the first arrival of each sent probe; `None` for a lost probe.
    pub fn arrival_times(&self) -> Vec<Option<Nanos>> {
        let mut arrivals = vec![None; self.sent.len()];
        for probe in &self.received {
            arrivals[probe.number].get_or_insert(probe.at);
        }
        arrivals
    }

    /// Returns for each sent probe whether it was lost.
    pub fn loss_flags(&self) -> Vec<bool> {
        self.arrival_times().iter().map(Option::is_none).collect()
    }

    /// Returns the number of probes that arrived after a probe that was sent later.
    pub fn reordered_count(&self) -> usize {
        let latest = self.received.iter().scan(0, |latest, probe| {
            *latest = probe.number.max(*latest);
            Some(*latest)
        });
        self.received.iter().zip(latest).filter(|(probe, latest)| probe.number < *latest).count()
    }

    /// Returns the number of duplicates that arrived.
    pub fn duplicate_count(&self) -> usize {
        self.received.len() - self.arrival_times().iter().flatten().count()
    }
}

/// Sends `sends` from one host to the other, and waits until no datagram has arrived for `silence`.
///
/// # Errors
/// A socket call failed.
pub fn send_probes(
    from: &HostHandle,
    to: &HostHandle,
    sends: &[ProbeSend],
    silence: Duration,
) -> io::Result<ProbeSeries> {
    let receiver = to.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    udp::enable_receive_info(receiver.as_fd(), RECEIVE_BUFFER)?;
    let target = SocketAddrV4::new(to.ipv4(), receiver.local_addr()?.port());
    let flows = sends.iter().map(|send| send.sender + 1).max().unwrap_or(1);
    let senders = from.enter(|| (0..flows).map(|flow| open_sender(flow, target)).collect::<io::Result<Vec<_>>>())??;
    let send_end = AtomicU64::new(0);
    // Allocated in advance: a reallocation would delay the emulator, which shares the memory of this process.
    let buffer = Vec::with_capacity(2 * sends.iter().map(|send| usize::from(send.packets)).sum::<usize>());
    std::thread::scope(|scope| {
        let send_thread = scope.spawn(|| {
            let sent = send_all(&senders, sends);
            send_end.store(udp::realtime_nanos(), Ordering::Release);
            sent
        });
        let (probes, overflow) = receive_all(&receiver, buffer, &send_end, silence)?;
        let sent = send_thread.join().map_err(|_| io::Error::other("the sender panicked"))??;
        let probes = probes.into_iter().filter(|probe| probe.number < sent.len()).collect();
        Ok(ProbeSeries { sent, received: probes, overflow })
    })
}

fn open_sender(flow: u16, target: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    if flow % 2 == 1 {
        udp::set_ecn_capable(&socket)?;
    }
    socket.connect(target)?;
    Ok(socket)
}

fn send_all(senders: &[UdpSocket], sends: &[ProbeSend]) -> io::Result<Vec<SentProbe>> {
    // With the default timer slack, sleeps end up to 50 us late. Errors are ignored: probes are then only less
    // punctual.
    let _ = ekiden_sys::thread::set_min_timer_slack();
    let mut sent = Vec::with_capacity(sends.iter().map(|send| usize::from(send.packets)).sum());
    let mut segments = vec![0; senders.len()];
    let mut payload = Vec::new();
    let start = udp::realtime_nanos() + 1_000_000;
    for send in sends {
        let length = (send.bytes - HEADER_BYTES) as usize;
        let sender = &senders[usize::from(send.sender)];
        let segment = if send.packets > 1 { u16::try_from(length).map_err(io::Error::other)? } else { 0 };
        if std::mem::replace(&mut segments[usize::from(send.sender)], segment) != segment {
            udp::set_segment_size(sender, segment)?;
        }
        payload.clear();
        payload.resize(length * usize::from(send.packets), 0);
        for (i, probe) in payload.chunks_exact_mut(length).enumerate() {
            encode_probe(probe, sent.len() + i);
        }
        wait_until(start + send.at);
        let at = udp::realtime_nanos();
        sender.send(&payload)?;
        let duration = udp::realtime_nanos() - at;
        let packet = |i| SentProbe { at, call_time: duration, bytes: send.bytes, segment: (i, send.packets) };
        sent.extend((0..send.packets).map(packet));
    }
    Ok(sent)
}

fn wait_until(at: Nanos) {
    if at > udp::realtime_nanos() + SPIN_BEFORE {
        udp::sleep_until(at - SPIN_BEFORE);
    }
    while udp::realtime_nanos() < at {
        std::hint::spin_loop();
    }
}

fn receive_all(
    receiver: &UdpSocket,
    mut probes: Vec<ReceivedProbe>,
    send_end: &AtomicU64,
    silence: Duration,
) -> io::Result<(Vec<ReceivedProbe>, u32)> {
    receiver.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (mut batch, mut overflow) = (BatchReceiver::default(), 0);
    let mut last_arrival = 0;
    loop {
        let received = batch.receive(receiver.as_fd(), |head, arrival: DatagramInfo| {
            overflow = arrival.overflow;
            last_arrival = arrival.at;
            let marked = arrival.ecn == 0b11;
            probes.extend(decode_probe(head).map(|number| ReceivedProbe { number, at: arrival.at, marked }));
        });
        match received {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let send_end = send_end.load(Ordering::Acquire);
                let quiet_since = last_arrival.max(send_end);
                let timeout = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
                if send_end > 0 && udp::realtime_nanos() > quiet_since.saturating_add(timeout) {
                    return Ok((probes, overflow));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn encode_probe(probe: &mut [u8], number: usize) {
    probe[..4].copy_from_slice(&MAGIC.to_be_bytes());
    probe[4..12].copy_from_slice(&(number as u64).to_be_bytes());
}

fn decode_probe(head: &[u8]) -> Option<usize> {
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let number = rest.first_chunk::<8>()?;
    (*magic == MAGIC.to_be_bytes()).then(|| usize::try_from(u64::from_be_bytes(*number)).ok())?
}

/// Returns `count` packets of `bytes` each, one every `gap`.
pub fn regular_probes(count: usize, gap: Nanos, bytes: u32) -> Vec<ProbeSend> {
    (0..count as u64).map(|i| ProbeSend { at: i * gap, bytes, packets: 1, sender: 0 }).collect()
}

/// Returns `count` superpackets of `packets` packets of `bytes` each, one every `gap`.
pub fn burst_probes(count: usize, gap: Nanos, bytes: u32, packets: u16) -> Vec<ProbeSend> {
    regular_probes(count, gap, bytes).into_iter().map(|shot| ProbeSend { packets, ..shot }).collect()
}

#[cfg(test)]
impl SentProbe {
    /// A single packet with a reliable send time.
    pub const fn for_test(at: Nanos, bytes: u32) -> Self {
        Self { at, call_time: 1, bytes, segment: (0, 1) }
    }
}

#[cfg(test)]
impl ProbeSeries {
    /// A series in which no probe was marked or dropped by the socket. `received` has the number and the time of arrival
    /// of each received probe.
    pub fn for_test(
        sent: impl IntoIterator<Item = SentProbe>,
        received: impl IntoIterator<Item = (usize, Nanos)>,
    ) -> Self {
        let received = received.into_iter().map(|(number, at)| ReceivedProbe { number, at, marked: false });
        Self { sent: sent.into_iter().collect(), received: received.collect(), overflow: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_numbers_are_decoded_and_other_data_is_rejected() {
        let mut probe = [0; PAYLOAD_BYTES];
        encode_probe(&mut probe, 70_000);
        assert_eq!(decode_probe(&probe), Some(70_000));
        assert_eq!((decode_probe(&probe[..11]), decode_probe(&[0; 20])), (None, None));
    }

    #[test]
    fn series_counts_lost_duplicate_and_reordered_probes() {
        let sent = (0..5).map(|at| SentProbe::for_test(at, 100));
        let series = ProbeSeries::for_test(sent, [(0, 10), (3, 11), (1, 12), (1, 13), (4, 14)]);
        assert_eq!(series.loss_flags(), [false, false, true, false, false]);
        assert_eq!(series.arrival_times()[1], Some(12));
        assert_eq!((series.reordered_count(), series.duplicate_count()), (2, 1));
        assert_eq!(ProbeSeries::default().reordered_count(), 0);
    }

    #[test]
    fn long_send_call_makes_a_probe_untimely() {
        let sent = SentProbe { call_time: MAX_CALL_TIME, ..SentProbe::for_test(0, 100) };
        assert!(sent.is_timely());
        assert!(!SentProbe { call_time: MAX_CALL_TIME + 1, ..sent }.is_timely());
    }
}
