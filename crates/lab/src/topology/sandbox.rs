//! Namespaces of a lab, and the init process whose end removes all of them.
//!
//! There are three processes: the original process waits outside; pid 1 of a new pid namespace reaps children; the lab
//! is pid 2. The kernel kills pid 1 when the original process ends, and with pid 1 every process in its namespace.
//! Network namespaces are held only by descriptors, so they vanish however a lab ends.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use ekiden_sys::init::{self, ChildWaiter};
use ekiden_sys::{netns, process};

use crate::topology::ip;

/// Side of the sandbox on which [`enter`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxEntry {
    /// Inside the sandbox. The process is in the emulator's network namespace, which has the emulator's ends of all
    /// links.
    Inside,
    /// Outside the sandbox, or in its init process, after the process inside has ended. The caller must exit with this
    /// exit code (128 plus the signal number after a signal).
    Exited(u8),
}

static RUN_DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Returns the directory for files of a running lab: a tmpfs, initially empty, invisible outside.
///
/// # Errors
/// [`enter`] has not been called.
pub fn run_directory() -> anyhow::Result<&'static Path> {
    RUN_DIRECTORY.get().map(PathBuf::as_path).context("a lab runs only inside its sandbox")
}

/// Moves the lab into its own namespaces. Must be called once, at the start, while the process has one thread.
///
/// # Errors
/// The system refused a step. The error names the remedy.
pub fn enter() -> anyhow::Result<SandboxEntry> {
    let rootless = unshare_namespaces()?;
    io::stdout().flush()?;
    let waiter = ChildWaiter::new().context("cannot block signals")?;
    let (parent_lives, held_by_parent) = io::pipe()?;
    if let Some(head) = init::fork().context("cannot fork")? {
        return Ok(SandboxEntry::Exited(waiter.wait_for_child(head)?));
    }
    drop(held_by_parent);
    if !init::kill_on_parent_exit(&parent_lives)? {
        return Ok(SandboxEntry::Exited(1));
    }
    if let Some(lab) = init::fork().context("cannot fork")? {
        return Ok(SandboxEntry::Exited(waiter.wait_for_child(lab)?));
    }
    drop(parent_lives);
    waiter.restore_signals()?;
    prepare_namespaces().map_err(|error| if rootless { error.context(APPARMOR_HINT) } else { error })?;
    Ok(SandboxEntry::Inside)
}

const APPARMOR_HINT: &str = "the user namespace was created, but an operation in it was refused: on Ubuntu 23.10 and \
     later, set `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or add an AppArmor profile with `userns,` for \
     this program; on other systems, run as root";

/// Creates the namespaces. Returns whether a user namespace was needed.
fn unshare_namespaces() -> anyhow::Result<bool> {
    let (user, group) = (process::effective_uid(), netns::effective_gid());
    if user == 0 {
        match netns::unshare_all(false) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            done => return done.context("cannot create namespaces as root").map(|()| false),
        }
    }
    netns::unshare_all(true).map_err(|error| unshare_error(&error))?;
    // Without CAP_SETGID a process must deny setgroups(2) before it maps its group (user_namespaces(7)).
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("0 {user} 1")), ("gid_map", format!("0 {group} 1"))]
    {
        fs::write(format!("/proc/self/{file}"), text)
            .with_context(|| format!("cannot write {file}"))
            .context(APPARMOR_HINT)?;
    }
    Ok(true)
}

fn unshare_error(error: &io::Error) -> anyhow::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "unprivileged users may not create namespaces: set `sysctl kernel.unprivileged_userns_clone=1` (Debian), \
             allow unshare(2) in the seccomp profile of the container, or run as root"
        }
        Some(libc::ENOSPC | libc::EUSERS) => {
            "the limit is reached: raise `user.max_user_namespaces`, `user.max_net_namespaces`, \
             `user.max_pid_namespaces` and `user.max_mnt_namespaces`, or run as root"
        }
        Some(libc::EINVAL) => "this kernel has no user namespaces (CONFIG_USER_NS): run as root",
        _ => "run as root",
    };
    anyhow::anyhow!("cannot create a user namespace: {error}; {remedy}")
}

/// Prepares mounts, files and the loopback interface, and verifies that links can be created.
fn prepare_namespaces() -> anyhow::Result<()> {
    netns::make_mounts_private().context("cannot make mounts private")?;
    // Containers that mask parts of /proc refuse this. The old /proc suffices, with pids of the outer namespace.
    let _ = netns::mount_proc();
    let directory = mount_point()?;
    netns::mount_tmpfs(&directory).with_context(|| format!("cannot mount a tmpfs on {}", directory.display()))?;
    mount_over_etc(&directory, "hosts", "127.0.0.1 localhost\n")?;
    mount_over_etc(&directory, "resolv.conf", "")?;
    let _ = RUN_DIRECTORY.set(directory);
    for conf in ["default", "all"] {
        // The file does not exist in a kernel without IPv6. IPv6 is off, so that the emulator's network namespace sends
        // no packets onto a link.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{conf}/disable_ipv6"), "1");
    }
    ip::run_batch(
        None,
        &[
            "link set dev lo up".to_owned(),
            "link add name probe type veth peer name probe-peer".to_owned(),
            "link del dev probe".to_owned(),
        ],
    )
    .context("cannot create network interfaces in a network namespace")
}

/// Returns an empty directory of this user as mount point. The directory stays, because other labs may mount on it in
/// their own namespaces.
fn mount_point() -> anyhow::Result<PathBuf> {
    let me = fs::metadata("/proc/self")?.uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|directory| PathBuf::from(directory).join("ekiden-lab"));
    let temporary = std::env::temp_dir().join(format!("ekiden-lab-{}", outer_uid()?));
    for candidate in [Some(PathBuf::from("/run/ekiden-lab")), runtime, Some(temporary)].into_iter().flatten() {
        let _ = fs::create_dir(&candidate);
        if fs::symlink_metadata(&candidate).is_ok_and(|found| found.is_dir() && found.uid() == me) {
            return Ok(candidate);
        }
    }
    bail!("no directory for the lab's files: cannot use /run, XDG_RUNTIME_DIR or {}", std::env::temp_dir().display())
}

/// Returns the uid outside of the user namespace. Inside it is 0 for every user.
fn outer_uid() -> anyhow::Result<String> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(1).unwrap_or("0").to_owned())
}

/// Mounts a file over `/etc/NAME`, so that names resolve inside the lab and no DNS query leaves it.
fn mount_over_etc(directory: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let ours = directory.join(name);
    fs::write(&ours, text).with_context(|| format!("cannot write {}", ours.display()))?;
    // A symbolic link in /etc may dangle, and a missing file needs no mount.
    let Ok(covered) = fs::canonicalize(Path::new("/etc").join(name)) else { return Ok(()) };
    netns::bind_mount(&ours, &covered).with_context(|| format!("cannot mount over {}", covered.display()))
}
