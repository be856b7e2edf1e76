//! Namespaces of a lab, created by unshare(2), kept by a descriptor and entered by setns(2), and the mounts inside them
//! (namespaces(7), `user_namespaces(7)`, `mount_namespaces(7)`).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use libc::{c_int, c_ulong};

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves this process into new mount and network namespaces, and its future children into a new pid namespace; with
/// `user`, into a new user namespace too, which owns the others and needs no privilege.
///
/// # Errors
/// The kernel's error: `EPERM` without the privilege, `ENOSPC` beyond a limit in `user.max_*_namespaces`, `EINVAL` with
/// `user` and more than one thread.
pub fn unshare_all(user: bool) -> io::Result<()> {
    let user = if user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: these flags take no pointers and leave the descriptors shared.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET | user) })
}

/// Creates a network namespace without a name and with only a loopback interface. The namespace exists while a
/// descriptor is open or a process is inside.
///
/// # Errors
/// The error of unshare(2) or open(2) of `/proc/thread-self/ns/net`.
pub fn new_network_namespace() -> io::Result<OwnedFd> {
    let make = || {
        // SAFETY: the flag takes no pointers; only this thread, which ends at once, changes namespaces.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
    };
    std::thread::scope(|scope| scope.spawn(make).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Moves the calling thread, and no other, into a network namespace.
///
/// # Errors
/// The error of setns(2).
pub fn enter_network_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as the borrow lasts.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Makes `command` start its program in a network namespace. An error of setns(2) is then the error of `spawn`.
pub fn start_in_network_namespace(command: &mut Command, namespace: Arc<OwnedFd>) {
    let enter = move || {
        // SAFETY: the closure owns a share of the descriptor, so it is open; setns(2) is only a system call.
        check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
    };
    // SAFETY: between fork(2) and exec(3) the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

/// Returns the effective group id.
#[must_use]
pub fn effective_gid() -> u32 {
    // SAFETY: getegid(2) takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

fn mount(source: &Path, target: &Path, kind: &str, flags: c_ulong, options: &str) -> io::Result<()> {
    let source = CString::new(source.as_os_str().as_bytes())?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    let kind = CString::new(kind)?;
    let options = CString::new(options)?;
    // SAFETY: all four are strings that end in NUL and outlive the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast::<libc::c_void>())
    })
}

/// Makes every mount of this namespace private: mounts made here are not visible in other namespaces.
///
/// # Errors
/// The error of mount(2).
pub fn make_mounts_private() -> io::Result<()> {
    // SAFETY: a change of propagation ignores source, type and options, which may be null (mount(2)).
    check(unsafe { libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null()) })
}

/// Mounts a `/proc` that shows the pid namespace of the caller.
///
/// # Errors
/// The kernel's error: `EPERM` in a user namespace whose visible `/proc` has hidden parts, as in containers.
pub fn mount_proc() -> io::Result<()> {
    mount(Path::new("proc"), Path::new("/proc"), "proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, "")
}

/// Mounts an empty file system in memory over `directory`.
///
/// # Errors
/// The error of mount(2).
pub fn mount_tmpfs(directory: &Path) -> io::Result<()> {
    mount(Path::new("tmpfs"), directory, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "mode=0755")
}

/// Moves this process into a new mount namespace, which begins with the mounts of the old one.
///
/// # Errors
/// The error of unshare(2): `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` beyond `user.max_mnt_namespaces`.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: the flag takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })
}

/// Mounts a new, empty BPF file system on `directory`.
///
/// # Errors
/// The error of mount(2): `ENODEV` for a kernel without BPF, `ENOENT` without the directory.
pub fn mount_bpf(directory: &Path) -> io::Result<()> {
    mount(Path::new("bpf"), directory, "bpf", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, "mode=0700")
}

/// Returns whether `directory` is in a BPF file system.
///
/// # Errors
/// The error of statfs(2).
pub fn is_bpf_file_system(directory: &Path) -> io::Result<bool> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mut file_system = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends in NUL, and the kernel fills in the structure that it is handed.
    check(unsafe { libc::statfs(path.as_ptr(), file_system.as_mut_ptr()) })?;
    // SAFETY: statfs(2) succeeded, so it is filled in.
    let kind = unsafe { file_system.assume_init() }.f_type;
    // The type of `f_type` differs between C libraries.
    Ok(i128::from(kind) == i128::from(libc::BPF_FS_MAGIC))
}

/// Mounts a new file system of a kind such as `sysfs`, with the options of that kind, on `directory`.
///
/// # Errors
/// The error of mount(2): `ENODEV` for a kind that this kernel lacks.
pub fn mount_kind(kind: &str, directory: &Path, options: &str) -> io::Result<()> {
    mount(Path::new(kind), directory, kind, 0, options)
}

/// Makes a mounted file system the root directory of this process and its future children (`switch_root(8)`).
///
/// # Errors
/// The error of chdir(2), mount(2) or chroot(2).
pub fn switch_root(directory: &Path) -> io::Result<()> {
    std::env::set_current_dir(directory)?;
    // SAFETY: source and target are strings that end in NUL; a moved mount has no type and no options, which may be
    // null (mount(2)).
    check(unsafe { libc::mount(c".".as_ptr(), c"/".as_ptr(), ptr::null(), libc::MS_MOVE, ptr::null()) })?;
    // SAFETY: the path ends in NUL.
    check(unsafe { libc::chroot(c".".as_ptr()) })?;
    std::env::set_current_dir("/")
}

/// Bind-mounts the file `source` over the file `target`.
///
/// # Errors
/// The error of mount(2).
pub fn bind_mount(source: &Path, target: &Path) -> io::Result<()> {
    mount(source, target, "none", libc::MS_BIND, "")
}
