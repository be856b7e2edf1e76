//! Probes: numbered datagrams, sent on a schedule from one host to another and stamped by the kernel where they arrive.
//!
//! The receiver's own scheduling does not matter, since the kernel stamps. The sender's does: it stamps a datagram right
//! before the call that sends it and notes how long the call took. A long one means that the sender was interrupted
//! somewhere between the two, so that its stamp tells nothing, and the datagram counts for no figure of time.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ekiden_sys::udp::{self, Arrival, Inbox};

use crate::Nanos;
use crate::topology::network::HostHandle;

/// IP and UDP headers, in bytes.
pub const HEADERS: u32 = 28;

/// The smallest probe, as an IP packet in bytes.
pub const SMALLEST: u32 = HEADERS + PAYLOAD as u32;

const PAYLOAD: usize = 20;
const MAGIC: u32 = 0x656b_6964;

/// Room for about a second of a fast link.
const ROOM: usize = 64 << 20;

/// The last stretch before a probe is due is spent awake.
const AWAKE: Nanos = 30_000;

/// A call that took longer was interrupted.
const INTERRUPTED: Nanos = 100_000;

/// One call of the sender: one packet, or a superpacket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shot {
    /// When, since the start.
    pub at: Nanos,
    /// The size of each packet: of the IP packet, in bytes.
    pub bytes: u32,
    /// Of how many packets the superpacket is made.
    pub packets: u16,
    /// By which of the senders, from 0; those with odd numbers are capable of congestion marks.
    pub flow: u16,
}

/// A probe that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Right before the call that sent it.
    pub at: Nanos,
    /// How long that call took.
    pub took: Nanos,
    /// The size of the IP packet, in bytes.
    pub bytes: u32,
    /// Which packet of its superpacket it is, from 0, and of how many.
    pub segment: (u16, u16),
}

impl Sent {
    /// Whether `at` tells when it was sent.
    pub const fn is_timely(&self) -> bool {
        self.took <= INTERRUPTED
    }
}

/// A probe that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// Which it is: its index in the list of those sent.
    pub number: usize,
    /// When it arrived.
    pub at: Nanos,
    /// Whether it was marked "congestion experienced".
    pub marked: bool,
}

/// What a series of probes came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Series {
    /// All that were sent, in order.
    pub sent: Vec<Sent>,
    /// All that arrived, in order of arrival.
    pub got: Vec<Got>,
    /// How many the measuring socket itself dropped.
    pub overflow: u32,
}

impl Series {
    /// When each probe first arrived, if it did.
    pub fn arrivals(&self) -> Vec<Option<Nanos>> {
        let mut arrivals = vec![None; self.sent.len()];
        for got in &self.got {
            arrivals[got.number].get_or_insert(got.at);
        }
        arrivals
    }

    /// Whether each probe was lost.
    pub fn losses(&self) -> Vec<bool> {
        self.arrivals().iter().map(Option::is_none).collect()
    }

    /// How many arrived after one that was sent later.
    pub fn overtaken(&self) -> usize {
        let latest = self.got.iter().scan(0, |latest, got| {
            *latest = got.number.max(*latest);
            Some(*latest)
        });
        self.got.iter().zip(latest).filter(|(got, latest)| got.number < *latest).count()
    }

    /// How many arrived more than once.
    pub fn doubled(&self) -> usize {
        self.got.len() - self.arrivals().iter().flatten().count()
    }
}

/// Sends `shots` from one host to the other and waits until nothing has arrived for `silence`.
///
/// # Errors
/// What the kernel refused.
pub fn fire(from: &HostHandle, to: &HostHandle, shots: &[Shot], silence: Duration) -> io::Result<Series> {
    let receiver = to.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    udp::observe(receiver.as_fd(), ROOM)?;
    let target = SocketAddrV4::new(to.address(), receiver.local_addr()?.port());
    let flows = shots.iter().map(|shot| shot.flow + 1).max().unwrap_or(1);
    let senders = from.enter(|| (0..flows).map(|flow| sender(flow, target)).collect::<io::Result<Vec<_>>>())??;
    let ended = AtomicU64::new(0);
    // All at once: the emulator shares this process's memory, and would have to wait while some of it is moved.
    let room = Vec::with_capacity(2 * shots.iter().map(|shot| usize::from(shot.packets)).sum::<usize>());
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let sent = send_all(&senders, shots);
            ended.store(udp::realtime(), Ordering::Release);
            sent
        });
        let (got, overflow) = receive_all(&receiver, room, &ended, silence)?;
        let sent = sending.join().map_err(|_| io::Error::other("the sender panicked"))??;
        let got = got.into_iter().filter(|got| got.number < sent.len()).collect();
        Ok(Series { sent, got, overflow })
    })
}

fn sender(flow: u16, target: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    if flow % 2 == 1 {
        udp::ecn_capable(&socket)?;
    }
    socket.connect(target)?;
    Ok(socket)
}

fn send_all(senders: &[UdpSocket], shots: &[Shot]) -> io::Result<Vec<Sent>> {
    // Without it sleeps end up to 50 us late, and more of the time before a probe would be spent awake.
    let _ = ekiden_sys::thread::tight_timers();
    let mut sent = Vec::with_capacity(shots.iter().map(|shot| usize::from(shot.packets)).sum());
    let mut segments = vec![0; senders.len()];
    let mut payload = Vec::new();
    let start = udp::realtime() + 1_000_000;
    for shot in shots {
        let length = (shot.bytes - HEADERS) as usize;
        let sender = &senders[usize::from(shot.flow)];
        let segment = if shot.packets > 1 { u16::try_from(length).map_err(io::Error::other)? } else { 0 };
        if std::mem::replace(&mut segments[usize::from(shot.flow)], segment) != segment {
            udp::segment(sender, segment)?;
        }
        payload.clear();
        payload.resize(length * usize::from(shot.packets), 0);
        for (i, probe) in payload.chunks_exact_mut(length).enumerate() {
            write(probe, sent.len() + i);
        }
        wait_until(start + shot.at);
        let at = udp::realtime();
        sender.send(&payload)?;
        let took = udp::realtime() - at;
        let packet = |i| Sent { at, took, bytes: shot.bytes, segment: (i, shot.packets) };
        sent.extend((0..shot.packets).map(packet));
    }
    Ok(sent)
}

fn wait_until(at: Nanos) {
    if at > udp::realtime() + AWAKE {
        udp::sleep_until(at - AWAKE);
    }
    while udp::realtime() < at {
        std::hint::spin_loop();
    }
}

fn receive_all(
    receiver: &UdpSocket,
    mut got: Vec<Got>,
    ended: &AtomicU64,
    silence: Duration,
) -> io::Result<(Vec<Got>, u32)> {
    receiver.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (mut inbox, mut overflow) = (Inbox::default(), 0);
    let mut heard = 0;
    loop {
        let received = inbox.receive(receiver.as_fd(), |head, arrival: Arrival| {
            overflow = arrival.overflow;
            heard = arrival.at;
            let marked = arrival.ecn == 0b11;
            got.extend(read(head).map(|number| Got { number, at: arrival.at, marked }));
        });
        match received {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let ended = ended.load(Ordering::Acquire);
                let quiet_since = heard.max(ended);
                let patience = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
                if ended > 0 && udp::realtime() > quiet_since.saturating_add(patience) {
                    return Ok((got, overflow));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn write(probe: &mut [u8], number: usize) {
    probe[..4].copy_from_slice(&MAGIC.to_be_bytes());
    probe[4..12].copy_from_slice(&(number as u64).to_be_bytes());
}

fn read(head: &[u8]) -> Option<usize> {
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let number = rest.first_chunk::<8>()?;
    (*magic == MAGIC.to_be_bytes()).then(|| usize::try_from(u64::from_be_bytes(*number)).ok())?
}

/// Packets of `bytes` each, one every `gap`.
pub fn regular(count: usize, gap: Nanos, bytes: u32) -> Vec<Shot> {
    (0..count as u64).map(|i| Shot { at: i * gap, bytes, packets: 1, flow: 0 }).collect()
}

/// Superpackets of `packets` packets of `bytes` each, one every `gap`.
pub fn bursts(count: usize, gap: Nanos, bytes: u32, packets: u16) -> Vec<Shot> {
    regular(count, gap, bytes).into_iter().map(|shot| Shot { packets, ..shot }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_which_it_is_and_nothing_else_does() {
        let mut probe = [0; PAYLOAD];
        write(&mut probe, 70_000);
        assert_eq!(read(&probe), Some(70_000));
        assert_eq!((read(&probe[..11]), read(&[0; 20])), (None, None));
    }

    #[test]
    fn a_series_counts_what_is_lost_doubled_and_overtaken() {
        let sent = |at| Sent { at, took: 1, bytes: 100, segment: (0, 1) };
        let got = |number, at| Got { number, at, marked: false };
        let series = Series {
            sent: (0..5).map(sent).collect(),
            got: vec![got(0, 10), got(3, 11), got(1, 12), got(1, 13), got(4, 14)],
            overflow: 0,
        };
        assert_eq!(series.losses(), [false, false, true, false, false]);
        assert_eq!(series.arrivals()[1], Some(12));
        assert_eq!((series.overtaken(), series.doubled()), (2, 1));
        assert_eq!(Series::default().overtaken(), 0);
    }

    #[test]
    fn an_interrupted_call_tells_no_time() {
        let sent = Sent { at: 0, took: INTERRUPTED, bytes: 100, segment: (0, 1) };
        assert!(sent.is_timely());
        assert!(!Sent { took: INTERRUPTED + 1, ..sent }.is_timely());
    }
}
