//! Harness of the integration tests: relay processes of the binary under test, which are killed even if the test fails;
//! sockets on ports that the kernel chooses; waits with a timeout; and temporary folders.
#![allow(dead_code, unused_imports, reason = "every test file uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod clock;
mod manager;
mod relay;
mod sockets;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

pub use clock::*;
pub use ekiden_testing::{TEST_TIMEOUT, eventually, eventually_within, pause_until, skipped};
pub use manager::Manager;
pub use relay::{Relay, relay_with_connection};
pub use sockets::*;

/// Signal number of SIGPIPE (signal(7)).
pub const SIGPIPE: i32 = 13;

/// The write end of a pipe without a reader.
pub fn broken_pipe() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// Users file with the user `ann` and the password `correct horse`, created with
/// `htpasswd -nbB -C 4 ann 'correct horse'`. 4 is the lowest cost of bcrypt.
pub const HTPASSWD: &str = "ann:$2b$04$TzMLYZsOZh8n6/7xdlLVsOOXAkX40DCnKPoedRwiDcXixictI8hj.\n";

/// Creates a key and a self-signed certificate with openssl, valid for 2 days.
pub fn self_signed(key: &Path, certificate: &Path, common_name: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", &format!("/CN={common_name}"), "-keyout"]).arg(key).arg("-out").arg(certificate);
    let made = openssl.output().expect("openssl runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A temporary folder, which is deleted when the value is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ekiden-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    }

    /// Writes a file whose permissions are set before its contents are written.
    pub fn write_with_mode(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, "");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a file of the test");
        self.write(name, text)
    }

    /// Writes an executable script. A shell process writes the file: if this process had the file open for writing, a
    /// child process started by another thread at that moment would inherit the descriptor, and the kernel does not
    /// execute a file that is open for writing (execve(2), ETXTBSY).
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut shell = Command::new("sh");
        shell.args(["-c", "rm -f \"$0\" && cat > \"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().expect("sh runs");
        shell.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("sh reads its input");
        assert!(shell.wait().expect("sh ends").success(), "{}", path.display());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A key pair of a relay, and its key file.
pub struct Key {
    pub private: String,
    pub public: String,
    pub file: PathBuf,
    _folder: Folder,
}

impl Key {
    /// Creates a key pair with `ekiden keygen`.
    pub fn new() -> Self {
        let output = ekiden().arg("keygen").output().expect("ekiden runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let part = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {text:?}")).to_owned()
        };
        let (private, public) = (part("private-key: "), part("public-key: "));
        let folder = Folder::new();
        let file = folder.write_with_mode("key", &text, 0o600);
        Self { private, public, file, _folder: folder }
    }
}

/// A command that runs the binary under test, without environment variables that change its configuration.
pub fn ekiden() -> Command {
    ekiden_at(Path::new(env!("CARGO_BIN_EXE_ekiden")))
}

/// Like [`ekiden`], for the binary at `program`.
pub fn ekiden_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in [
        "EKIDEN_CONFIG",
        "EKIDEN_LISTEN",
        "EKIDEN_FORWARD",
        "EKIDEN_LOG",
        "EKIDEN_LOG_LEVEL",
        "EKIDEN_ADMIN",
        "EKIDEN_TOKEN_FILE",
        "EKIDEN_KEY",
    ] {
        command.env_remove(name);
    }
    command
}

/// The Python interpreter of Debian, which finds the libraries in Debian's packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// A child process that is killed when the value is dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Waits until a process has ended. A zombie counts as ended.
pub fn wait_process_end(process: u32) {
    eventually("the end of a process", || ekiden_sys::process::start_time(process).is_none().then_some(()));
}

/// Returns `count` bytes that do not repeat between blocks, so that a comparison detects a lost or reordered block.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Joins a thread. A panic of the thread fails the test.
pub fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
