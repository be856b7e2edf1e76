//! TUN devices: a process reads and writes the IP packets of an interface through a descriptor
//! (Documentation/networking/tuntap.rst).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_short, c_uint, c_ulong};

use crate::ethtool::interface_request;
use crate::packet::{OutgoingFrame, ReceivedFrame};

// Newer than the headers of Debian 12; from linux/if_tun.h of Linux 6.2.
const TUN_F_USO4: c_uint = 0x20;
const TUN_F_USO6: c_uint = 0x40;

/// The device file that creates TUN devices.
pub const PATH: &str = "/dev/net/tun";

/// Creates a TUN device called `interface` in the calling thread's network namespace. Every packet read or written
/// begins with a `virtio_net_hdr` of 10 bytes. With `offload` the kernel passes TCP superpackets, and UDP superpackets
/// if it supports them.
///
/// # Errors
/// The kernel's error: `EACCES` or `ENOENT` from open(2) of `/dev/net/tun`, `EBUSY` if the name is taken.
pub fn create(interface: &str, offload: bool) -> io::Result<OwnedFd> {
    let device = attach(interface, libc::IFF_VNET_HDR)?;
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    if offload {
        set_offload(&device, tcp | TUN_F_USO4 | TUN_F_USO6).or_else(|_| set_offload(&device, tcp))?;
    } else {
        set_offload(&device, 0)?;
    }
    Ok(device.into())
}

/// Creates a TUN device called `interface` in the calling thread's network namespace, where the name must be unused. A
/// read or write transfers one packet without an additional header, at most as long as the MTU, and does not block. The
/// device exists until the descriptor is closed.
///
/// # Errors
/// The kernel's error: `EACCES` or `ENOENT` from open(2) of `/dev/net/tun`, `EBUSY` if the name is taken, `EPERM`
/// without `CAP_NET_ADMIN`.
pub fn create_plain(interface: &str) -> io::Result<File> {
    attach(interface, libc::IFF_TUN_EXCL)
}

/// Creates a device without the protocol information header before packets (`IFF_NO_PI`).
fn attach(interface: &str, flags: c_int) -> io::Result<File> {
    let options = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).clone();
    let device = options.open(PATH)?;
    let mut request = interface_request(interface)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | flags) as c_short;
    // SAFETY: `request` is a valid ifreq with a name and flags, the fields that TUNSETIFF reads.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device)
}

fn set_offload(device: &File, flags: c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    let result: c_int = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(flags)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads the available packets into `buffers`, without waiting. Describes the packets in `received`, without
/// timestamps.
///
/// # Errors
/// The kernel's error: `WouldBlock` if there is no packet.
pub fn receive(device: BorrowedFd<'_>, buffers: &mut [Box<[u8]>], received: &mut Vec<ReceivedFrame>) -> io::Result<()> {
    received.clear();
    for buffer in buffers {
        // SAFETY: the buffer has the length that is given, and outlives the call.
        let length = unsafe { libc::read(device.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(length) {
            Ok(length) => received.push(ReceivedFrame { length, timestamp: None }),
            Err(_) if received.is_empty() => return Err(io::Error::last_os_error()),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Writes packets in order. Returns the number of written packets.
///
/// # Errors
/// The kernel's error for the first packet.
pub fn send(device: BorrowedFd<'_>, packets: &[OutgoingFrame<'_>]) -> io::Result<usize> {
    for (index, packet) in packets.iter().enumerate() {
        let pieces = [packet.head, packet.body]
            .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
        // SAFETY: both pieces outlive the call, and writev only reads them.
        if unsafe { libc::writev(device.as_raw_fd(), pieces.as_ptr(), 2) } < 0 {
            return if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) };
        }
    }
    Ok(packets.len())
}
