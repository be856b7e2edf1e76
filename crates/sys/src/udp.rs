//! Datagrams for measurements: the kernel's receive timestamps and drop counts (socket(7)), batches (recvmmsg(2)),
//! superpackets (udp(7)), congestion marks (ip(7)), and a precise sleep.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};

use crate::option::set;

/// Largest number of datagrams that one call receives.
const MAX_BATCH: usize = 64;

/// Bytes of each datagram that are kept: the head identifies the datagram, and the kernel reports the whole length.
const HEAD_SIZE: usize = 128;

/// Explicit congestion notification, `ECT(0)`: two bits of the type of service (RFC 3168 section 5).
const ECT_0: c_int = 0b10;

/// Not in every libc: linux/udp.h.
const UDP_SEGMENT: c_int = 103;

/// The kernel's data about a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramInfo {
    /// Time of arrival at this host's network stack, in nanoseconds since the epoch (`SO_TIMESTAMPNS`).
    pub at: u64,
    /// Length of the payload, in bytes.
    pub length: usize,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// Number of datagrams that the socket had dropped until then because its receive buffer was full (`SO_RXQ_OVFL`).
    pub overflow: u32,
}

/// Returns the nanoseconds since the epoch, by the clock of the receive timestamps.
#[must_use]
pub fn realtime_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Sleeps until `at`, in nanoseconds since the epoch. Returns at once if that time has passed.
pub fn sleep_until(at: u64) {
    let deadline = libc::timespec { tv_sec: (at / 1_000_000_000) as _, tv_nsec: (at % 1_000_000_000) as _ };
    loop {
        // SAFETY: `deadline` is a valid timespec that outlives the call; no remainder is asked for.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_REALTIME, libc::TIMER_ABSTIME, &raw const deadline, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Makes `socket` report times, marks and drops of received datagrams, with a receive buffer of about `room` bytes.
/// Without `CAP_NET_ADMIN` the buffer is limited to `net.core.rmem_max`.
///
/// # Errors
/// The kernel's error.
pub fn enable_receive_info(socket: BorrowedFd<'_>, room: usize) -> io::Result<()> {
    let room = c_int::try_from(room).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &room))?;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &1_i32)?;
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &1_i32)
}

/// Sends payloads longer than `bytes` as superpackets of datagrams of that length from now on (`UDP_SEGMENT`); 0
/// disables this.
///
/// # Errors
/// The kernel's error.
pub fn set_segment_size(socket: &UdpSocket, bytes: u16) -> io::Result<()> {
    set(borrowed(socket), libc::SOL_UDP, UDP_SEGMENT, &c_int::from(bytes))
}

/// Marks datagrams as ECN-capable from now on, so that routers may mark instead of drop them.
///
/// # Errors
/// The kernel's error.
pub fn set_ecn_capable(socket: &UdpSocket) -> io::Result<()> {
    set(borrowed(socket), libc::IPPROTO_IP, libc::IP_TOS, &ECT_0)
}

/// Opens a raw socket for ICMP, which requires `CAP_NET_RAW`. Received data begin with the IP header.
///
/// # Errors
/// The kernel's error.
pub fn open_icmp() -> io::Result<OwnedFd> {
    Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).map(OwnedFd::from)
}

fn borrowed(socket: &UdpSocket) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(socket)
}

/// Buffer for control messages, with the alignment of their headers.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct ControlBuffer([u8; 128]);

/// Receives datagrams in batches.
pub struct BatchReceiver {
    heads: Vec<[u8; HEAD_SIZE]>,
    controls: Vec<ControlBuffer>,
}

impl Default for BatchReceiver {
    fn default() -> Self {
        Self { heads: vec![[0; HEAD_SIZE]; MAX_BATCH], controls: vec![ControlBuffer([0; 128]); MAX_BATCH] }
    }
}

impl BatchReceiver {
    /// Waits for a datagram, up to the socket's read timeout, and passes all datagrams that have arrived to `each`: the
    /// first bytes of each datagram, and the kernel's data about it.
    ///
    /// # Errors
    /// The kernel's error: `WouldBlock` after the timeout.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, mut each: impl FnMut(&[u8], DatagramInfo)) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = self
            .heads
            .iter_mut()
            .map(|head| libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD_SIZE })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .zip(&mut self.controls)
            .map(|(part, control)| {
                // SAFETY: `msghdr` consists of pointers and numbers, and all zeroes is a valid empty header.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                message.msg_hdr.msg_controllen = control.0.len() as _;
                message
            })
            .collect();
        let count = receive_batch(socket.as_raw_fd(), &mut messages)?;
        for (message, head) in messages[..count].iter().zip(&self.heads) {
            let length = message.msg_len as usize;
            each(&head[..length.min(HEAD_SIZE)], DatagramInfo { length, ..datagram_info(&message.msg_hdr) });
        }
        Ok(count)
    }
}

fn receive_batch(socket: RawFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let count = messages.len() as libc::c_uint;
    // The type of the flags differs between C libraries.
    let flags = (libc::MSG_WAITFORONE | libc::MSG_TRUNC) as _;
    // SAFETY: every header points to one part and one control buffer of the lengths it says, and all outlive the call.
    let received = unsafe { libc::recvmmsg(socket, messages.as_mut_ptr(), count, flags, std::ptr::null_mut()) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Returns the data in the control messages of a received datagram or frame; zero for data that are not reported.
pub(crate) fn datagram_info(header: &libc::msghdr) -> DatagramInfo {
    let mut arrival = DatagramInfo::default();
    // SAFETY: the kernel has filled the control buffer of `header` and set its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a header inside the control buffer.
        let kind = unsafe { ((*next).cmsg_level, (*next).cmsg_type) };
        // SAFETY: the data of a control message follows its header in the control buffer, to all of which `next` is a
        // pointer; one derived from a reference to the header may only be used for the header.
        let data = unsafe { libc::CMSG_DATA(next) };
        match kind {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the data of this message is a timespec, which need not be aligned.
                let time: libc::timespec = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                arrival.at = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the data of this message is a 32-bit count, which need not be aligned.
                arrival.overflow = unsafe { data.cast::<u32>().read_unaligned() };
            }
            // SAFETY: the data of this message is one byte.
            (libc::IPPROTO_IP, libc::IP_TOS) => arrival.ecn = unsafe { *data } & 3,
            _ => {}
        }
        // SAFETY: `next` is a header of the control buffer of `header`.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    arrival
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        enable_receive_info(receiver.as_fd(), 1 << 20).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    fn receive(receiver: &UdpSocket, count: usize) -> Vec<(Vec<u8>, DatagramInfo)> {
        let (mut batch, mut got) = (BatchReceiver::default(), Vec::new());
        while got.len() < count {
            batch.receive(receiver.as_fd(), |head, arrival| got.push((head.to_vec(), arrival))).unwrap();
        }
        got
    }

    /// Makes no system call, so that Miri can run it. Regression: data was read through a reference to its header.
    #[test]
    fn consecutive_control_messages_are_read() {
        let mut control = ControlBuffer([0; 128]);
        // SAFETY: `msghdr` consists of pointers and numbers, and all zeroes is a valid empty header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let time = libc::timespec { tv_sec: 3, tv_nsec: 5 };
        // SAFETY: the buffer has room for the three messages and their data, and is aligned for their headers.
        unsafe {
            let at = libc::CMSG_FIRSTHDR(&raw const header);
            put(at, (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), time);
            let at = at.byte_add(libc::CMSG_SPACE(size_of_val(&time) as u32) as usize);
            put(at, (libc::SOL_SOCKET, libc::SO_RXQ_OVFL), 7_u32);
            let at = at.byte_add(libc::CMSG_SPACE(4) as usize);
            put(at, (libc::IPPROTO_IP, libc::IP_TOS), 2_u8);
            let end = at.byte_add(libc::CMSG_SPACE(1) as usize);
            header.msg_controllen = end.byte_offset_from(header.msg_control) as _;
        }
        assert_eq!(datagram_info(&header), DatagramInfo { at: 3_000_000_005, length: 0, ecn: 2, overflow: 7 });
    }

    /// Writes a control message.
    ///
    /// # Safety
    /// At `at` there is room for a header and `data`.
    unsafe fn put<T>(at: *mut libc::cmsghdr, kind: (c_int, c_int), data: T) {
        // SAFETY: the caller guarantees room for the header and `data` at `at`.
        unsafe {
            (*at).cmsg_level = kind.0;
            (*at).cmsg_type = kind.1;
            (*at).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
            libc::CMSG_DATA(at).cast::<T>().write_unaligned(data);
        }
    }

    #[test]
    fn superpacket_is_received_as_datagrams_with_timestamps_and_ecn() {
        let (sender, receiver) = pair();
        set_segment_size(&sender, 500).unwrap();
        set_ecn_capable(&sender).unwrap();
        let payload: Vec<u8> = [b'a', b'b', b'c'].iter().flat_map(|letter| [*letter; 500]).collect();
        let before = realtime_nanos();
        sender.send(&payload[..1200]).unwrap();
        let got = receive(&receiver, 3);
        let letters: Vec<u8> = got.iter().map(|(head, _)| head[0]).collect();
        let lengths: Vec<usize> = got.iter().map(|(_, arrival)| arrival.length).collect();
        assert_eq!((letters.as_slice(), lengths.as_slice()), (&b"abc"[..], &[500, 500, 200][..]));
        for (head, arrival) in got {
            assert!(head.len() <= HEAD_SIZE && arrival.at >= before && arrival.at <= realtime_nanos(), "{arrival:?}");
            assert_eq!((arrival.ecn, arrival.overflow), (2, 0));
        }
    }

    #[test]
    fn drops_of_a_full_socket_are_counted() {
        let (sender, receiver) = pair();
        set(receiver.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &1_i32).unwrap();
        for _ in 0..100 {
            sender.send(&[0; 1000]).unwrap();
        }
        assert_eq!(receive(&receiver, 1)[0].1.overflow, 0);
        // The drops are reported with the next datagram that is queued.
        sender.send(&[1; 10]).unwrap();
        let last = std::iter::repeat_with(|| receive(&receiver, 1)).find(|got| got[0].0[0] == 1).unwrap();
        assert!(last[0].1.overflow > 50, "{last:?}");
    }

    #[test]
    fn a_sleep_never_ends_before_its_time() {
        let at = realtime_nanos() + 2_000_000;
        sleep_until(at);
        assert!(realtime_nanos() >= at);
        sleep_until(at - 1_000_000_000);
    }
}
