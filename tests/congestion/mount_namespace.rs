//! A mount namespace with its own BPF file system. The namespace and its pins exist as long as its first process, which
//! ends with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::harness::ekiden;

pub struct Namespace(Child);

/// Exit code and output of a program.
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Namespace {
    /// Creates a namespace with a BPF file system.
    pub fn new() -> Self {
        Self::with_script("mount -t bpf bpf /sys/fs/bpf")
    }

    /// Creates a namespace in which a shell has run `script`. Requires root, like the registration lock.
    pub fn with_script(script: &str) -> Self {
        let mut first = Command::new("unshare");
        first.args(["--mount", "--propagation", "private", "sh", "-c", &format!("{script} && echo && exec cat")]);
        let mut first = first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "\n", "{script}");
        Self(first)
    }

    /// Runs `ekiden ARGUMENTS` in the namespace, as root.
    pub fn ekiden(&self, arguments: &str) -> CommandOutput {
        self.run("", arguments)
    }

    /// Runs `ekiden ARGUMENTS` as user 65534, without any privilege.
    pub fn ekiden_unprivileged(&self, arguments: &str) -> CommandOutput {
        self.run(UNPRIVILEGED, arguments)
    }

    /// Runs `THROUGH ekiden ARGUMENTS`; `through` is a command prefix, such as [`UNPRIVILEGED`].
    pub fn run(&self, through: &str, arguments: &str) -> CommandOutput {
        CommandOutput::from(self.command(through, arguments).output().unwrap())
    }

    /// Returns the command of `run`.
    pub fn command(&self, through: &str, arguments: &str) -> Command {
        let binary = ekiden();
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.0.id())).args(through.split_whitespace());
        command.arg(binary.get_program()).args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// Returns the entry of `name` in the output of `ekiden cc list --json`.
    pub fn listed(&self, name: &str) -> Value {
        let list: Value = serde_json::from_str(&self.ekiden("cc list --json").out).unwrap();
        list.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A command prefix that drops all privileges.
pub const UNPRIVILEGED: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all";

impl CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let result = Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert!(!result.err.contains("libbpf"), "output of libbpf itself: {}", result.err);
        result
    }

    /// Asserts success without an error message. Returns the standard output.
    pub fn expect_success(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Asserts exit status 1, and one line on standard error that contains all `reasons`.
    pub fn expect_failure(&self, reasons: &[&str]) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        for reason in reasons {
            assert!(self.err.contains(reason), "{reason:?} is missing in: {}", self.err);
        }
    }
}
