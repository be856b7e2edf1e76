//! Switches of an interface's segmentation offload (ethtool(8), `SIOCETHTOOL` of netdevice(7)).

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use libc::c_char;

// From linux/ethtool.h.
const ETHTOOL_STSO: u32 = 0x0000_001f;
const ETHTOOL_SGSO: u32 = 0x0000_0024;
const ETHTOOL_SGRO: u32 = 0x0000_002c;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Disables segmentation offload (TSO, GSO) and receive offload (GRO) of an interface of the calling thread's network
/// namespace.
///
/// # Errors
/// The kernel's error: `ENODEV` if there is no such interface, `EOPNOTSUPP` if the interface does not support the
/// change.
pub fn disable_segmentation(interface: &str) -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO].into_iter().try_for_each(|command| set(&socket, interface, command, 0))
}

fn set(socket: &UdpSocket, interface: &str, command: u32, data: u32) -> io::Result<()> {
    let mut value = EthtoolValue { command, data };
    let mut request = interface_request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast::<c_char>();
    // SAFETY: `request` names an interface and points to the structure these commands want; both outlive the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns a request with the name of an interface and all other fields zero.
pub(crate) fn interface_request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if interface.is_empty() || interface.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface has a name of 1 to 15 bytes"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disable_segmentation_of_a_missing_interface_is_enodev() {
        let error = disable_segmentation("no-such-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn interface_name_of_16_bytes_is_refused() {
        assert_eq!(disable_segmentation("sixteen-bytes-xx").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
