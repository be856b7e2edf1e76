//! The first process of a virtual machine: mounts the file systems, runs one command, and turns the machine off.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use ekiden_sys::init::{self, ChildWaiter};
use ekiden_sys::{netns, process};

use super::machine::MachineCommand;
use crate::topology::ip;

/// Standard input, output and error of the process on the host. Virtual time stops during each read or write.
const HOST_STREAMS: [&str; 3] = ["/dev/host0", "/dev/host1", "/dev/host2"];
/// The directory in which the root file system is assembled. The mount hides no files of the host: an overlay does not
/// see mounts below its lower layer.
const WORK_DIRECTORY: &str = "/tmp";
/// The limit of open files of a process. A relay needs two for each connection. The limit is not larger, because Dante
/// and Squid close every descriptor up to it when they start, and a system call takes microseconds here.
const OPEN_FILES: u64 = 1 << 14;
/// Packets that may wait for the kernel's receive path (`net.core.netdev_max_backlog`). The emulator can send more than
/// the default of 1000 at one instant of virtual time. The kernel would refuse the others, and although the emulator
/// sends them again, they would count as drops of the receiving host and make the run invalid.
const MAX_RECEIVE_BACKLOG: u32 = 1_000_000;
const EXIT_FAILURE: u8 = 2;

/// Returns whether this process runs in a virtual machine, where processes take no time.
#[must_use]
pub fn is_in_machine() -> bool {
    Path::new(HOST_STREAMS[0]).exists()
}

/// Runs as the first process of the machine, and turns the machine off at the end. Returns only on failure.
///
/// # Errors
/// `/proc` cannot be mounted, the exit code cannot be set, or reboot(2) failed.
pub fn run() -> anyhow::Result<()> {
    mount_new("proc", "/proc", "")?;
    let code = run_command().unwrap_or_else(|error| {
        // If the stream cannot be opened either, there is no other way to report the error.
        let _ = File::options().write(true).open(HOST_STREAMS[2]).map(|mut file| writeln!(file, "guest: {error:#}"));
        EXIT_FAILURE
    });
    // The exit code of the kernel's process (arch/um/kernel/exitcode.c).
    fs::write("/proc/exitcode", code.to_string()).context("cannot set the exit code")?;
    init::power_off().context("cannot turn the machine off")
}

fn run_command() -> anyhow::Result<u8> {
    mount_root().context("cannot create the root file system")?;
    let command = receive_command().context("cannot receive the command")?;
    if let Some(directory) = &command.host_directory {
        let path = directory.to_str().context("the name of the directory is not UTF-8")?;
        mount_new("hostfs", path, path)?;
    }
    process::set_open_file_limits(OPEN_FILES).context("cannot set the limit of open files")?;
    fs::write("/proc/sys/net/core/netdev_max_backlog", MAX_RECEIVE_BACKLOG.to_string())
        .context("cannot set the limit of the receive backlog")?;
    ip::run_batch(None, &["link set dev lo up".to_owned()])?;
    let stream = |number: usize| File::options().read(number == 0).write(number > 0).open(HOST_STREAMS[number]);
    let waiter = ChildWaiter::new()?;
    let mut program = Command::new(&command.program);
    program
        .args(&command.arguments)
        .env_clear()
        .envs(&command.environment)
        .current_dir(&command.directory)
        .stdin(Stdio::from(stream(0)?))
        .stdout(Stdio::from(stream(1)?))
        .stderr(Stdio::from(stream(2)?));
    waiter.restore_signals_in(&mut program);
    let child = program.spawn().with_context(|| command.program.display().to_string())?;
    Ok(waiter.wait_for_child(i32::try_from(child.id())?)?)
}

/// Mounts the files of the host below a layer for changes in memory, and the file systems of the kernel.
fn mount_root() -> anyhow::Result<()> {
    let work = Path::new(WORK_DIRECTORY);
    mount_new("tmpfs", WORK_DIRECTORY, "mode=0755")?;
    for name in ["upper", "work", "root"] {
        fs::create_dir(work.join(name))?;
    }
    let root = work.join("root");
    netns::mount_kind("overlay", &root, "lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work").context("overlay")?;
    netns::switch_root(&root)?;
    for (kind, directory, options) in [
        ("proc", "/proc", ""),
        ("sysfs", "/sys", ""),
        ("cgroup2", "/sys/fs/cgroup", ""),
        ("devtmpfs", "/dev", ""),
        ("devpts", "/dev/pts", "ptmxmode=0666"),
        ("tmpfs", "/dev/shm", "mode=1777"),
        ("tmpfs", "/run", "mode=0755"),
    ] {
        fs::create_dir_all(directory)?;
        mount_new(kind, directory, options)?;
    }
    fs::create_dir("/run/lock")?;
    fs::set_permissions("/run/lock", Permissions::from_mode(0o1777))?;
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(target), Path::new("/dev").join(name))?;
    }
    Ok(())
}

fn mount_new(kind: &str, directory: &str, options: &str) -> anyhow::Result<()> {
    netns::mount_kind(kind, Path::new(directory), options)
        .with_context(|| format!("cannot mount {kind} on {directory}"))
}

/// Reads the command and not a byte more, because the rest of the stream is the command's standard input.
fn receive_command() -> anyhow::Result<MachineCommand> {
    let mut host = File::open(HOST_STREAMS[0])?;
    let mut length = [0; 8];
    host.read_exact(&mut length)?;
    let mut text = vec![0; usize::from_str_radix(std::str::from_utf8(&length)?, 16)?];
    host.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
