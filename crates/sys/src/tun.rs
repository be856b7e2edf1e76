//! TUN devices: IP packets of an interface as reads and writes of a descriptor (Documentation/networking/tuntap.rst).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_short, c_uint, c_ulong};

use crate::ethtool::request;

// Newer than the headers of Debian 12; from linux/if_tun.h of Linux 6.2.
const TUN_F_USO4: c_uint = 0x20;
const TUN_F_USO6: c_uint = 0x40;

/// Makes a TUN device called `interface` in the calling thread's network namespace. Every packet read or written begins
/// with a `virtio_net_hdr` of 10 bytes. With `offload` the kernel hands over TCP superpackets, and UDP ones if it can.
///
/// # Errors
/// The kernel's: `EACCES` or `ENOENT` from open(2) of `/dev/net/tun`, `EBUSY` if the name is taken.
pub fn create(interface: &str, offload: bool) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = request(interface)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: `request` is a valid ifreq with a name and flags, which is what TUNSETIFF reads.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    if offload {
        set_offload(&device, tcp | TUN_F_USO4 | TUN_F_USO6).or_else(|_| set_offload(&device, tcp))?;
    } else {
        set_offload(&device, 0)?;
    }
    Ok(device.into())
}

fn set_offload(device: &File, flags: c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    let result: c_int = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(flags)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
