//! Operations of bpf(2) on links that `libbpf_rs` lacks: update those of struct_ops, open them by number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Replaces the program of `link` by that of `map` (`BPF_LINK_UPDATE`, Linux 6.4). Connections under the old one keep
/// it.
///
/// # Errors
/// The kernel's: `EINVAL` when the names differ.
pub(crate) fn update(link: impl AsFd, map: impl AsFd) -> io::Result<()> {
    let (link, map) = (link.as_fd().as_raw_fd(), map.as_fd().as_raw_fd());
    // SAFETY: both descriptors are open for the length of the call, and a null pointer means no options.
    let result = unsafe { libbpf_sys::bpf_link_update(link, map, std::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
}

/// The link with this number (`BPF_LINK_GET_FD_BY_ID`): it lives as long as a process holds it.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` when it is gone.
pub(crate) fn by_id(number: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number, returns a descriptor or a negative errno.
    let result = unsafe { libbpf_sys::bpf_link_get_fd_by_id(number) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the kernel has just made this descriptor for this process, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
