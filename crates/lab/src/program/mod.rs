//! The real programs: servers, proxies and clients, how each is configured, started and found ready.

use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use ekiden_sys::netns;

pub mod agent;
pub mod apache;
pub mod chain;
pub mod command;
pub mod congestion;
pub mod content;
pub mod curl;
pub mod dante;
pub mod ekiden;
pub mod haproxy;
pub mod iperf3;
pub mod mesh;
pub mod nginx;
pub mod openvpn;
pub mod receiver;
pub mod section;
pub mod server;
pub mod service;
pub mod sink;
pub mod softether;
pub mod squid;
pub mod ssh;
pub mod transparent;
pub mod tunnel;
pub mod vsftpd;
pub mod vtun;
pub mod wget;
pub mod writer;

/// A program that somebody has to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// What people call it.
    pub name: &'static str,
    /// The Debian package it is in.
    pub package: &'static str,
    /// The name of its executable.
    pub executable: &'static str,
    /// The arguments that make it print its version; none if nothing does: then its package is asked.
    pub version_arguments: &'static [&'static str],
}

/// Servers are often in folders that are in the path of root only.
const SERVER_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

impl ProgramInfo {
    /// Where it is installed.
    ///
    /// # Errors
    /// It is not; the text says which package has it.
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
        folders.map(|folder| folder.join(self.executable)).find(|file| file.is_file()).ok_or_else(|| {
            anyhow::anyhow!("{} is not installed: scripts/setup lab, or apt-get install {}", self.name, self.package)
        })
    }

    /// What it says its version is, in one line.
    ///
    /// # Errors
    /// It is not installed.
    pub fn installed_version(&self) -> anyhow::Result<String> {
        let executable = self.find()?;
        Ok(match self.version_arguments {
            [] => program_version("dpkg-query".as_ref(), &["--show", "--showformat", "${Version}", self.package]),
            arguments => program_version(&executable, arguments),
        })
    }
}

/// The first line that a program prints when asked for its version: to standard output, or error, or even input (vsftpd).
#[must_use]
pub fn program_version(executable: &Path, arguments: &[&str]) -> String {
    let printed = || -> std::io::Result<String> {
        let (mut reader, writer) = std::io::pipe()?;
        let mut command = Command::new(executable);
        command.args(arguments).stdin(writer.try_clone()?).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // It holds the other ends of the pipe.
        drop(command);
        let mut text = Vec::new();
        reader.read_to_end(&mut text)?;
        child.wait()?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = printed().unwrap_or_default();
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

/// Whether there is but one user here: then this is a user namespace of an ordinary one (`user_namespaces(7)`), and a
/// program that starts as root cannot become another.
#[must_use]
pub fn is_rootless() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) == Some("1")
}

/// Gives programs of this mount namespace shared memory of their own (shm_overview(7)): what they leave there when they are
/// killed, as squid does, is gone with the lab, and nobody outside meets them by name. To be called inside the sandbox.
///
/// # Errors
/// The kernel's, from mount(2).
pub fn mount_private_shm() -> anyhow::Result<()> {
    let folder = Path::new("/dev/shm");
    if folder.is_dir() {
        netns::mount_tmpfs(folder).context("cannot mount a tmpfs on /dev/shm")?;
        std::fs::set_permissions(folder, Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

/// Covers `/run` by an empty file system, but for the folder that is the first word, makes the folder that is the second, and
/// becomes the program that the others are.
const PRIVATE_RUN_SCRIPT: &str =
    r#"cd "$1" && mount -t tmpfs tmpfs /run && mkdir -p "$1" "$2" && mount -c --bind . "$1" && shift 2 && exec "$@""#;

/// A command line for a program that has to find, or writes, files in `/run` which are nobody's to make: it gets a `/run` of
/// its own, in a mount namespace that ends with it, in which there are `folder`, where the run keeps its files, and `made`.
#[must_use]
pub fn with_private_run_dir(
    folder: &Path,
    made: &str,
    executable: &Path,
    arguments: Vec<String>,
) -> (PathBuf, Vec<String>) {
    let shell = ["--mount", "--propagation", "private", "sh", "-c", PRIVATE_RUN_SCRIPT, "sh"].map(str::to_owned);
    let words = [folder.display().to_string(), made.to_owned(), executable.display().to_string()];
    ("unshare".into(), shell.into_iter().chain(words).chain(arguments).collect())
}

/// Writes a file that nobody else may read.
///
/// # Errors
/// The file system's.
pub fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or fails; with its last words.
pub fn run_to_completion(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{name}, {}: {}", output.status, service::last_lines(&said));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let about =
            ProgramInfo { name: "gopher", package: "gopherd", executable: "no-such-gopher", version_arguments: &[] };
        let error = about.find().unwrap_err().to_string();
        assert_eq!(error, "gopher is not installed: scripts/setup lab, or apt-get install gopherd");
    }

    #[test]
    fn a_version_is_one_line() {
        assert_eq!(program_version(Path::new("/bin/echo"), &["name 1.2\nmore"]), "name 1.2");
        assert_eq!(program_version(Path::new("/no/such/file"), &[]), "unknown");
    }
}
