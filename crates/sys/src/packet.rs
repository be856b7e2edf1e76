//! Reception and transmission of frames at an interface, including superpackets (packet(7), `PACKET_VNET_HDR`;
//! recvmmsg(2), sendmmsg(2)).
//!
//! Every frame is preceded by a `virtio_net_hdr` of [`VNET_HEADER`] bytes (linux/virtio_net.h), which describes the
//! outstanding segmentation and checksum computation.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

use crate::option::{get, set};
use crate::tc;
use crate::udp::datagram_info;

/// Length of the header before every frame, in bytes.
pub const VNET_HEADER: usize = 10;

/// Size of the buffer for one control message with a timestamp, in units of its alignment.
const CONTROL: usize = 8;

/// A socket that receives every frame that arrives at one interface, and no outgoing frame.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// The kernel's data about a received frame.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFrame {
    /// Length of the frame including the `virtio_net_hdr`, in bytes; larger than the buffer if the frame was truncated.
    pub length: usize,
    /// Time of reception by the kernel; `None` if not reported.
    pub timestamp: Option<SystemTime>,
}

/// A frame to send, in two consecutive pieces. The first piece begins with the `virtio_net_hdr`.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingFrame<'a> {
    /// The `virtio_net_hdr`, the headers, and the beginning of the payload.
    pub head: &'a [u8],
    /// The rest of the payload; may be empty.
    pub body: &'a [u8],
}

impl PacketSocket {
    /// Opens a socket on `interface`, with a receive buffer of `receive_buffer` bytes, or as many as the system allows.
    ///
    /// # Errors
    /// The kernel's error: the interface does not exist, or the process lacks `CAP_NET_RAW`.
    pub fn open(interface: &str, receive_buffer: usize) -> io::Result<Self> {
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let one: libc::c_int = 1;
        set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &one)?;
        set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one)?;
        set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &one)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        let size = libc::c_int::try_from(receive_buffer).unwrap_or(libc::c_int::MAX);
        if set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &size).is_err() {
            set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &size)?;
        }
        bind(&socket, interface)?;
        Ok(Self(socket))
    }

    /// Returns the number of frames that the kernel has dropped since the last call because the receive buffer was
    /// full.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take_drops(&self) -> io::Result<u64> {
        let statistics: [u32; 2] = get(self.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(u64::from(statistics[1]))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn bind(socket: &OwnedFd, interface: &str) -> io::Result<()> {
    let index = tc::index(interface)?;
    // SAFETY: sockaddr_ll is plain data, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = libc::c_int::try_from(index).map_err(io::Error::other)?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is a whole sockaddr_ll of the length given.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives the available frames into `buffers`, in order and without waiting. Describes the frames in `received`.
///
/// # Errors
/// The kernel's error: `WouldBlock` if there is no frame.
pub fn receive(socket: BorrowedFd<'_>, buffers: &mut [Box<[u8]>], received: &mut Vec<ReceivedFrame>) -> io::Result<()> {
    received.clear();
    let mut pieces: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
        .collect();
    let mut controls = vec![[0_u64; CONTROL]; pieces.len()];
    let mut messages: Vec<libc::mmsghdr> = pieces
        .iter_mut()
        .zip(&mut controls)
        .map(|(piece, control)| {
            // SAFETY: mmsghdr is plain data, for which zero is valid.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<[u64; CONTROL]>() as _;
            message
        })
        .collect();
    let capacity = libc::c_uint::try_from(messages.len()).unwrap_or(libc::c_uint::MAX);
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: every message points at a buffer and a control area that live until after the call.
    let count = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), capacity, flags as _, std::ptr::null_mut())
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    received.extend(
        messages[..count]
            .iter()
            .map(|message| ReceivedFrame { length: message.msg_len as usize, timestamp: timestamp(&message.msg_hdr) }),
    );
    Ok(())
}

/// Returns the time of reception in the control messages.
fn timestamp(header: &libc::msghdr) -> Option<SystemTime> {
    let at = datagram_info(header).at;
    (at > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(at))
}

/// Sends frames in order. Returns the number of sent frames.
///
/// # Errors
/// The kernel's error for the first frame: `EINVAL` for an unsupported superpacket, `ENOBUFS` if the queue of the
/// interface is full.
pub fn send(socket: BorrowedFd<'_>, frames: &[OutgoingFrame<'_>]) -> io::Result<usize> {
    let mut pieces: Vec<[libc::iovec; 2]> = frames
        .iter()
        .map(|frame| {
            [frame.head, frame.body]
                .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = pieces
        .iter_mut()
        .map(|pair| {
            // SAFETY: mmsghdr is plain data, for which zero is valid.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iov = pair.as_mut_ptr();
            message.msg_hdr.msg_iovlen = if pair[1].iov_len == 0 { 1 } else { 2 };
            message
        })
        .collect();
    let count = libc::c_uint::try_from(messages.len()).unwrap_or(libc::c_uint::MAX);
    // SAFETY: every message points at pieces that live until after the call; sendmmsg only reads them.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
