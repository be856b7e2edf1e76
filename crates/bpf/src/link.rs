//! What bpf(2) does with links of struct_ops, and `libbpf_rs` does not.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has `link` run what is in `map` from now on (`BPF_LINK_UPDATE`, Linux 6.4). Who uses the old one goes on with it.
///
/// # Errors
/// The kernel's: `EINVAL` when the names differ.
pub(crate) fn update(link: impl AsFd, map: impl AsFd) -> io::Result<()> {
    let (link, map) = (link.as_fd().as_raw_fd(), map.as_fd().as_raw_fd());
    // SAFETY: both descriptors are open for the length of the call, and no options is what the null says.
    let result = unsafe { libbpf_sys::bpf_link_update(link, map, std::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
}
