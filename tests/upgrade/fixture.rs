//! A relay that is upgraded as by an administrator: its program is a symbolic link, which a test can replace, and its
//! configuration is a file.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::harness::*;

/// A relay and its files. The processes that replace it are killed with it, as they are in its process group.
pub struct Service {
    pub relay: Relay,
    /// PID of the serving process.
    pub serving: u32,
    folder: Folder,
}

impl Service {
    pub fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    /// Like `start`; `prepare` changes the command, for example its environment.
    pub fn start_with(config: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let folder = Folder::new();
        let mut command = run_command(&folder, config);
        prepare(&mut command);
        let relay = Relay::start(&mut command, config.matches("[[listener]]").count());
        Self { serving: relay.id(), relay, folder }
    }

    /// Replaces the configuration file. The running relay does not load it.
    pub fn configure(&self, text: &str) {
        self.folder.write("ekiden.toml", text);
    }

    fn program(&self) -> PathBuf {
        self.folder.0.join("ekiden")
    }

    /// Replaces the program by a script.
    pub fn replace_program(&self, script: &str) {
        self.folder.program("ekiden", script);
    }

    /// Replaces the script by the link to the program.
    pub fn restore_program(&self) {
        let _ = std::fs::remove_file(self.program());
        symlink(env!("CARGO_BIN_EXE_ekiden"), self.program()).unwrap();
    }

    /// Upgrades the relay, and waits until the new process serves. Returns the PID of the old process.
    pub fn upgrade(&mut self) -> u32 {
        signal(self.serving, "USR2");
        let now = self.relay.upgraded();
        std::mem::replace(&mut self.serving, now)
    }

    /// Runs `ekiden upgrade`.
    pub fn command(&self) -> Output {
        let admin = format!("unix:{}", self.relay.admin.display());
        ekiden().args(["upgrade", "--admin", &admin]).output().unwrap()
    }

    /// Runs `ekiden upgrade` and checks that it fails. Returns the standard error of the command, and the reason that
    /// the relay reports.
    pub fn upgrade_expecting_failure(&mut self) -> (String, String) {
        let output = self.command();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let event = self.relay.next(|event| event["event"] == "upgrade_failed");
        let why = event["why"].as_str().unwrap().to_owned();
        assert!(stderr.contains(&why), "{stderr}");
        (stderr, why)
    }

    /// The PID of the process that answers at the admin socket.
    pub fn serving_process(&self) -> u32 {
        let view: Value = serde_json::from_str(&self.relay.ask("/api/upgrade")).unwrap();
        u32::try_from(view["pid"].as_u64().unwrap()).unwrap()
    }
}

/// A command that runs a relay with this configuration. The file `ekiden.toml` and the program, a symbolic link, are in
/// `folder`.
pub fn run_command(folder: &Folder, config: &str) -> Command {
    let file = folder.write("ekiden.toml", config);
    let program = folder.0.join("ekiden");
    symlink(env!("CARGO_BIN_EXE_ekiden"), &program).unwrap();
    let mut command = ekiden_at(&program);
    command.args(["run", "-c"]).arg(file).process_group(0);
    command
}

/// The configuration of a relay with one TCP listener, which forwards to `target`; `more` precedes the listener.
pub fn config_for(target: SocketAddr, more: &str) -> String {
    format!(
        "version = 1\nthreads = 2\n{more}\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    )
}

/// The length of a download in bytes: more than the sockets and pipes on the path hold.
pub const LENGTH: usize = 24 << 20;

/// The content of every download.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LENGTH));

/// Starts a server that sends the same bytes to every client.
pub fn downloads() -> SocketAddr {
    LazyLock::force(&BYTES);
    serve(|mut stream| {
        // Fails if the client closes the connection early.
        let _ = stream.write_all(&BYTES);
    })
}

/// A download of which the first 1000 bytes have been read.
pub struct Download {
    stream: TcpStream,
    begun: Vec<u8>,
}

impl Download {
    pub fn begin(from: SocketAddr) -> Self {
        let mut stream = connect(from);
        let begun = read_exactly(&mut stream, 1000);
        Self { stream, begun }
    }

    /// Reads the rest, and checks that the download is complete and unchanged.
    pub fn finish(mut self) {
        let (rest, ending) = read_remaining(&mut self.stream);
        self.begun.extend(rest);
        assert_eq!((self.begun.len(), ending), (LENGTH, Ending::Clean));
        assert!(self.begun == *BYTES, "bytes have changed");
    }
}

/// Connects to a [`greeter`] of `hello` through the relay, and checks the greeting.
pub fn connect_greeted(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    assert_eq!(read_exactly(&mut stream, 5), b"hello");
    stream
}

/// Four threads, each of which connects at most `MOST` clients one after the other.
pub struct ClientLoad {
    stop: Arc<AtomicBool>,
    /// Number of clients that have ended.
    ended: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl ClientLoad {
    pub fn at(address: SocketAddr) -> Self {
        const MOST: usize = 100_000;
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..4).map(|_| {
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut errors = Vec::new();
                for number in (0..MOST).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    errors.extend(run_client(address).err().map(|error| format!("client {number}: {error}")));
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                errors
            })
        });
        Self { threads: threads.collect(), stop, ended }
    }

    /// Waits until 10 more clients have ended: at least 6 of them have connected after this call.
    pub fn wait_more_clients(&self) {
        let before = self.ended.load(Ordering::Relaxed);
        eventually("more clients", || (self.ended.load(Ordering::Relaxed) >= before + 10).then_some(()));
    }

    /// Stops the clients, and checks that none was refused, reset or timed out.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let errors: Vec<_> = self.threads.into_iter().flat_map(join).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

fn run_client(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    if stream.read(&mut bytes)? != 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(())
}
