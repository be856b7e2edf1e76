//! Other programs: located or reported as missing, run to their end within a deadline, or kept running during the test.
#![allow(dead_code, reason = "the quick and the slow clients use their own parts of it")]

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Folder, KillOnDrop, eventually, skipped};

/// Timeout of a program, in seconds: long enough for a loaded machine, so that only a hung program exceeds it.
const DEADLINE: &str = "60";

/// Folders of server programs, which are not in a user's PATH on Debian.
const SERVERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Proxy settings of the environment, which must not influence the tests.
const PROXY_VARIABLES: [&str; 10] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Returns the path of the program `name`; `None` if it is not installed. An absolute `name` is checked as it is.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether one of these programs is missing. Prints a message in this case, and the test should return.
pub fn is_any_missing(names: &[&str]) -> bool {
    match names.iter().find(|name| find(name).is_none()) {
        Some(name) => {
            skipped(format_args!("{name} is missing, scripts/setup installs it"));
            true
        }
        None => false,
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Returns a command without the user's settings: no proxy variables, and `home` as the home folder.
pub fn program(name: &str, home: &Folder) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| panic!("{name} is missing")));
    isolate_from_user(&mut command, home);
    command
}

fn isolate_from_user(command: &mut Command, home: &Folder) {
    for variable in PROXY_VARIABLES {
        command.env_remove(variable);
    }
    command.env("HOME", &home.0).env("LC_ALL", "C").env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
}

/// Like `program`; timeout(1) ends the program and its children after [`DEADLINE`].
pub fn client(name: &str, home: &Folder) -> Command {
    let mut command = Command::new("timeout");
    isolate_from_user(&mut command, home);
    command.args(["-k", "2", DEADLINE]).arg(find(name).unwrap_or_else(|| panic!("{name} is missing")));
    command
}

/// Exit code and output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

/// Runs a program to its end. Fails if timeout(1) has ended the program.
pub fn run_to_end(command: &mut Command) -> ProgramOutput {
    let output = command.output().expect("the program runs");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or(-1);
    // Exit codes of timeout(1).
    assert!(code != 124 && code != 137, "the program took more than {DEADLINE} s: {command:?}: {err}");
    ProgramOutput { code, out: output.stdout, err }
}

/// Runs a program that has to succeed, and returns its standard output.
pub fn run_successfully(command: &mut Command) -> Vec<u8> {
    let output = run_to_end(command);
    assert_eq!(output.code, 0, "{command:?}: {}", output.err);
    output.out
}

/// A server in the foreground, killed when the value is dropped.
pub struct Daemon(KillOnDrop);

impl Daemon {
    /// Starts the server, and waits until it accepts connections. Its output is written to `folder`/said.
    pub fn start(command: &mut Command, folder: &Path, address: SocketAddr) -> Self {
        let path = folder.join("said");
        let file = File::create(&path).expect("a file for the output");
        let other = file.try_clone().expect("a descriptor");
        let mut daemon = KillOnDrop(command.stdout(file).stderr(other).spawn().expect("the server runs"));
        eventually(&format!("the server at {address}"), || {
            if let Ok(Some(status)) = daemon.0.try_wait() {
                panic!("{command:?} ended: {status}: {}", std::fs::read_to_string(&path).unwrap_or_default());
            }
            TcpStream::connect(address).ok()
        });
        Self(daemon)
    }
}
