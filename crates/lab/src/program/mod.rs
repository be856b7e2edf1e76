//! External programs of experiments: configures, starts and supervises servers, proxies and clients.

use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

/// An external program and its package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Name in reports and error messages.
    pub name: &'static str,
    /// Debian package of the program.
    pub package: &'static str,
    /// File name of the executable.
    pub executable: &'static str,
    /// Arguments that print the version. If empty, the version is that of the package.
    pub version_arguments: &'static [&'static str],
}

/// Folders of servers that are often only in root's `PATH`.
const SERVER_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

impl ProgramInfo {
    /// Returns the path of the executable.
    ///
    /// # Errors
    /// The program is not installed. The error names its package.
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
        folders.map(|folder| folder.join(self.executable)).find(|file| file.is_file()).ok_or_else(|| {
            anyhow::anyhow!(
                "{} is not installed: run scripts/setup lab, or apt-get install {}",
                self.name,
                self.package
            )
        })
    }

    /// Returns the version of the program, in one line.
    ///
    /// # Errors
    /// The program is not installed.
    pub fn installed_version(&self) -> anyhow::Result<String> {
        let executable = self.find()?;
        Ok(match self.version_arguments {
            [] => program_version("dpkg-query".as_ref(), &["--show", "--showformat", "${Version}", self.package]),
            arguments => program_version(&executable, arguments),
        })
    }
}

/// Returns the first line that a program prints, or `unknown`. The output may go to stdout, to stderr, or even to stdin
/// (vsftpd).
#[must_use]
pub fn program_version(executable: &Path, arguments: &[&str]) -> String {
    let printed = || -> std::io::Result<String> {
        let (mut reader, writer) = std::io::pipe()?;
        let mut command = Command::new(executable);
        command.args(arguments).stdin(writer.try_clone()?).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // `command` holds write ends of the pipe, which would prevent the end of file.
        drop(command);
        let mut text = Vec::new();
        reader.read_to_end(&mut text)?;
        child.wait()?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = printed().unwrap_or_default();
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

/// Returns whether only one uid is mapped: then this is a user namespace of an unprivileged user
/// (`user_namespaces(7)`), and a program started as root cannot change its user.
#[must_use]
pub fn is_rootless() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) == Some("1")
}

/// Mounts private shared memory for the programs of this mount namespace (shm_overview(7)). Objects left by killed
/// programs, such as squid, vanish with the lab and are invisible outside. Must be called inside the sandbox.
///
/// # Errors
/// mount(2) failed.
pub fn mount_private_shm() -> anyhow::Result<()> {
    let folder = Path::new("/dev/shm");
    if folder.is_dir() {
        netns::mount_tmpfs(folder).context("cannot mount a tmpfs on /dev/shm")?;
        std::fs::set_permissions(folder, Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

/// Mounts a tmpfs over `/run`, keeps the folder `$1` visible, creates the folder `$2`, and executes the remaining
/// arguments.
const PRIVATE_RUN_SCRIPT: &str =
    r#"cd "$1" && mount -t tmpfs tmpfs /run && mkdir -p "$1" "$2" && mount -c --bind . "$1" && shift 2 && exec "$@""#;

/// Returns a command line that gives a program a private `/run`, in a mount namespace that ends with the program.
/// `folder`, which has the files of the run, stays visible, and the directory at the path `directory` is created.
#[must_use]
pub fn with_private_run_dir(
    folder: &Path,
    directory: &str,
    executable: &Path,
    arguments: Vec<String>,
) -> (PathBuf, Vec<String>) {
    let shell = ["--mount", "--propagation", "private", "sh", "-c", PRIVATE_RUN_SCRIPT, "sh"].map(str::to_owned);
    let words = [folder.display().to_string(), directory.to_owned(), executable.display().to_string()];
    ("unshare".into(), shell.into_iter().chain(words).chain(arguments).collect())
}

/// Writes a new file with mode 0600.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// Runs a program and waits for its end.
///
/// # Errors
/// The program cannot be started, or fails. The error has the last lines of the program's stderr.
pub fn run_to_completion(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{name}, {}: {}", output.status, service::last_lines(&stderr));
    Ok(())
}

/// Returns the unspecified address of the family of `address`, on which a program accepts connections to all addresses
/// of its host. On the unspecified IPv6 address, a program accepts IPv4, too.
#[must_use]
pub const fn unspecified_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_error_names_the_package() {
        let about =
            ProgramInfo { name: "gopher", package: "gopherd", executable: "no-such-gopher", version_arguments: &[] };
        let error = about.find().unwrap_err().to_string();
        assert_eq!(error, "gopher is not installed: run scripts/setup lab, or apt-get install gopherd");
    }

    #[test]
    fn program_version_is_the_first_line() {
        assert_eq!(program_version(Path::new("/bin/echo"), &["name 1.2\nmore"]), "name 1.2");
        assert_eq!(program_version(Path::new("/no/such/file"), &[]), "unknown");
    }
}
