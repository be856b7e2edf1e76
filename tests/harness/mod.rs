//! Starts the real binary on ports the kernel chooses, reads its events as they are logged, and ends it again, whatever
//! becomes of the test.
#![allow(dead_code, reason = "every test file uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for anything in a test; a machine under load is slow, a hang is for ever.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running relay.
pub struct Relay {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
    addresses: Vec<SocketAddr>,
    stderr: Option<ChildStderr>,
    /// Processes that have taken its place.
    after: Vec<u32>,
    pub admin: PathBuf,
}

/// A folder of the test's own, removed with it.
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

    /// A file with these permissions, from before there is anything in it.
    pub fn write_with_mode(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, "");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our own file");
        self.write(name, text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A relay's key pair, and the file with it.
pub struct Key {
    pub private: String,
    pub public: String,
    pub file: PathBuf,
    _folder: Folder,
}

impl Key {
    /// Makes one as an operator does.
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

/// The binary under test.
pub fn ekiden() -> Command {
    ekiden_at(Path::new(env!("CARGO_BIN_EXE_ekiden")))
}

/// The same by another path.
pub fn ekiden_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in [
        "EKIDEN_CONFIG",
        "EKIDEN_LISTEN",
        "EKIDEN_FORWARD",
        "EKIDEN_LOG",
        "EKIDEN_ADMIN",
        "EKIDEN_TOKEN_FILE",
        "EKIDEN_KEY",
    ] {
        command.env_remove(name);
    }
    command
}

impl Relay {
    /// Starts `ekiden run` with these listeners, and waits until it listens.
    pub fn listen(urls: &[&str]) -> Self {
        let arguments: Vec<&str> = urls.iter().flat_map(|url| ["-L", url]).collect();
        Self::run(&arguments, urls.len())
    }

    /// Starts `ekiden run ARGUMENTS`, and waits until `listeners` of them listen.
    pub fn run(arguments: &[&str], listeners: usize) -> Self {
        Self::start(ekiden().args(["run"]).args(arguments), listeners)
    }

    /// Starts a prepared command, whose environment or limits the test has changed.
    pub fn start(command: &mut Command, listeners: usize) -> Self {
        let folder = Folder::new();
        let admin = folder.0.with_extension("sock");
        command.args(["--admin", &format!("unix:{}", admin.display())]);
        Self::begin(command, listeners, admin)
    }

    /// The same, where the command says itself where the relay answers.
    pub fn begin(command: &mut Command, listeners: usize, admin: PathBuf) -> Self {
        command.args(["--log", "json"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ekiden runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an event: {line}"));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let mut relay =
            Self { child, lines, seen: Vec::new(), addresses: Vec::new(), stderr, after: Vec::new(), admin };
        while relay.addresses.len() < listeners {
            let event = relay.next(|event| event["event"] == "listening");
            relay.addresses.push(event["address"].as_str().expect("an address").parse().expect("an address"));
        }
        relay
    }

    /// Where the first listener listens.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where listener number `index` listens.
    pub fn address_of(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A connection to the first listener.
    pub fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Waits for an event that `wanted` likes, among those seen and those to come. Each is returned once.
    pub fn next(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) if wanted(&event) => return event,
                Ok(event) => self.seen.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("no such event; seen: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ekiden ended: {}; seen: {:#?}", self.said_on_stderr(), self.seen)
                }
            }
        }
    }

    /// Waits for the closing event of a session.
    pub fn closed(&mut self) -> Value {
        self.next(|event| event["event"] == "closed")
    }

    /// Every event up to the end of the process.
    pub fn rest(&mut self) -> Vec<Value> {
        let mut events = std::mem::take(&mut self.seen);
        let deadline = Instant::now() + PATIENCE;
        while let Ok(event) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            events.push(event);
        }
        events
    }

    pub fn said_on_stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits until another process has taken the place of the one that serves; its pid.
    pub fn upgraded(&mut self) -> u32 {
        let event = self.next(|event| event["event"] == "upgraded");
        let process = u32::try_from(event["pid"].as_u64().expect("a pid")).expect("a pid");
        self.after.push(process);
        process
    }

    /// Waits for the process to end by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        // The events end when the process closes its standard output.
        while let Ok(event) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(event);
        }
        self.child.wait().expect("the process can be waited for").code()
    }

    /// Asks the admin listener.
    pub fn ask(&self, path: &str) -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(&self.admin).expect("the admin socket answers");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").expect("an HTTP answer").1.to_owned()
    }

    /// The sessions that are open now, as `/api/sessions` shows them.
    pub fn sessions(&self) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.ask("/api/sessions")).expect("JSON");
        answer["sessions"].as_array().expect("a list").clone()
    }

    /// Open descriptors of the process.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("the process lives").count()
    }

    /// Resident memory of the process, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Others of its group, where it was started with one of its own.
        let _ = ekiden_sys::signal::kill_group(self.child.id());
        for process in &self.after {
            let _ = ekiden_sys::signal::kill(*process);
        }
        if std::thread::panicking() {
            eprintln!("ekiden said on stderr: {}", self.said_on_stderr());
        }
        let _ = std::fs::remove_file(&self.admin);
    }
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Waits until a process has ended, though perhaps nobody has looked yet.
pub fn ended(process: u32) {
    eventually("the end of a process", || ekiden_sys::process::started(process).is_none().then_some(()));
}

/// A connection whose reads and writes do not last for ever.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A listener of the test's own, on a port the kernel chooses.
pub fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts one connection, within the test's patience.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let stream = eventually("a connection", || listener.accept().ok()).0;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Serves every connection in a thread of its own, for as long as the test runs.
pub fn serve(handle: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let (listener, address) = server();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = handle.clone();
            std::thread::spawn(move || handle(stream));
        }
    });
    address
}

/// Waits until `look` finds something, looking again every few milliseconds: for states that send no event.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    server().1
}

pub fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).expect("as many bytes as expected");
    bytes
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Clean,
    Reset,
}

/// Everything that still comes, and how it ends.
pub fn hear_out(stream: &mut TcpStream) -> (Vec<u8>, Ending) {
    let (mut heard, mut bytes) = (Vec::new(), vec![0; 65_536]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return (heard, Ending::Clean),
            Ok(count) => heard.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (heard, Ending::Reset),
            // A machine that was suspended, with a timeout on the socket (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error} after {} bytes: {:?}", heard.len(), String::from_utf8_lossy(&heard)),
        }
    }
}

pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the stream ends well");
    bytes
}

/// Reads an HTTP head, byte by byte so that nothing behind it is lost.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(stream, 1));
        assert!(head.len() < 1 << 20, "a head without end");
    }
    String::from_utf8(head).expect("an ASCII head")
}

/// Bytes that are not alike, so that a lost or swapped block shows.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Makes closing a socket a reset.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A SOCKS5 tunnel to `target` through a relay, or the reply code that refused it.
pub fn socks5(relay: SocketAddr, target: SocketAddr) -> Result<TcpStream, u8> {
    let SocketAddr::V4(target) = target else { panic!("IPv4 only") };
    let mut request = vec![5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    socks5_request(relay, &request)
}

/// Sends a SOCKS5 request without credentials and reads the reply.
pub fn socks5_request(relay: SocketAddr, request: &[u8]) -> Result<TcpStream, u8> {
    let mut stream = connect(relay);
    stream.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_exactly(&mut stream, 2), [5, 0]);
    stream.write_all(request).unwrap();
    let reply = read_exactly(&mut stream, 10);
    if reply[1] == 0 { Ok(stream) } else { Err(reply[1]) }
}

/// A background thread whose panic fails the test.
pub fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
