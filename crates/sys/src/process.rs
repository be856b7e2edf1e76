//! What the kernel lets this process have: descriptors and identity (getrlimit(2), geteuid(2)).

use std::io;

/// Raises the soft limit of open files to the hard one and returns it.
///
/// # Errors
/// The kernel's, from getrlimit(2) or setrlimit(2).
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid, initialised rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

/// The effective user id.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns freed heap memory to the kernel (malloc_trim(3)); after a rush of sessions it would otherwise stay with the
/// process.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) touches only memory that the allocator itself holds free.
    unsafe {
        libc::malloc_trim(0);
    }
}
