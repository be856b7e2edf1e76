//! A relay process: its events, the responses of its admin listener, and its exit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use serde_json::Value;

use super::{Folder, TEST_TIMEOUT, accept, connect, ekiden, eventually, server, signal};

/// A relay process, which is killed with its successors when the value is dropped.
pub struct Relay {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
    addresses: Vec<SocketAddr>,
    stderr: Option<ChildStderr>,
    /// PIDs of the processes that have replaced the first process in an upgrade.
    successors: Vec<u32>,
    pub admin: PathBuf,
}

impl Relay {
    /// Starts `ekiden run` with these listeners, and waits until all of them accept connections.
    pub fn listen(urls: &[&str]) -> Self {
        let arguments: Vec<&str> = urls.iter().flat_map(|url| ["-L", url]).collect();
        Self::run(&arguments, urls.len())
    }

    /// Starts `ekiden run ARGUMENTS`, and waits until `listeners` listeners accept connections.
    pub fn run(arguments: &[&str], listeners: usize) -> Self {
        Self::start(ekiden().args(["run"]).args(arguments), listeners)
    }

    /// Like [`Self::run`], for a command with its own environment or resource limits.
    pub fn start(command: &mut Command, listeners: usize) -> Self {
        let folder = Folder::new();
        let admin = folder.0.with_extension("sock");
        command.args(["--admin", &format!("unix:{}", admin.display())]);
        Self::start_with_admin(command, listeners, admin)
    }

    /// Starts a relay with one listener and at most 256 open descriptors.
    pub fn run_with_few_files(config: &Path) -> Self {
        let mut command = Command::new("sh");
        let script = "ulimit -n 256; exec \"$0\" run -c \"$@\"";
        Self::start(command.args(["-c", script]).arg(ekiden().get_program()).arg(config), 1)
    }

    /// Number of connections without a session that the listener has closed in favour of new connections.
    pub fn evictions(&self, listener: &str) -> u64 {
        self.metric(&format!("ekiden_sections_evicted_total{{listener=\"{listener}\"}}")).expect("the metric")
    }

    /// Like [`Self::start`], for a command that configures the admin listener itself, at the unix socket `admin`.
    pub fn start_with_admin(command: &mut Command, listeners: usize, admin: PathBuf) -> Self {
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
            Self { child, lines, seen: Vec::new(), addresses: Vec::new(), stderr, successors: Vec::new(), admin };
        while relay.addresses.len() < listeners {
            let event = relay.next(|event| event["event"] == "listening");
            relay.addresses.push(event["address"].as_str().expect("an address").parse().expect("an address"));
        }
        relay
    }

    /// The address of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The address of listener `index`, counted from 0.
    pub fn address_of(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Connects to the first listener.
    pub fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Waits for an event that satisfies `wanted`, including earlier events that no call has returned. Each event is
    /// returned once.
    pub fn next(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at);
        }
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) if wanted(&event) => return event,
                Ok(event) => self.seen.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("no such event; seen: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ekiden ended: {}; seen: {:#?}", self.read_stderr(), self.seen)
                }
            }
        }
    }

    /// Waits for the closing event of a session.
    pub fn closed(&mut self) -> Value {
        self.next(|event| event["event"] == "closed")
    }

    /// Waits for `count` closing events, and returns them sorted by `field`: each thread of the relay writes the events
    /// of its own sessions, and the order between threads is not defined.
    pub fn all_closed(&mut self, count: usize, field: &str) -> Vec<Value> {
        let mut all: Vec<Value> = (0..count).map(|_| self.closed()).collect();
        all.sort_by_key(|event| event[field].to_string());
        all
    }

    /// Waits until the process closes its standard output. Returns all events that no call has returned.
    pub fn remaining_events(&mut self) -> Vec<Value> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.seen.push(event),
                Err(RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.seen),
                Err(RecvTimeoutError::Timeout) => panic!("ekiden has not ended; seen: {:#?}", self.seen),
            }
        }
    }

    pub fn read_stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Stops the relay with SIGSTOP, and waits until the kernel has stopped all its threads.
    pub fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.id());
        eventually("all threads to stop", || {
            let states = std::fs::read_dir(&tasks).unwrap().map(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                // proc_pid_stat(5): the state follows the name, which is in parentheses.
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            });
            states.into_iter().all(|stopped| stopped).then_some(())
        });
    }

    /// Waits until a new process has replaced the serving process in an upgrade. Returns the PID of the new process.
    pub fn upgraded(&mut self) -> u32 {
        let event = self.next(|event| event["event"] == "upgraded");
        let process = u32::try_from(event["pid"].as_u64().expect("a pid")).expect("a pid");
        self.successors.push(process);
        process
    }

    /// Waits until the process exits. Returns its exit code, or `None` if a signal has killed it.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.seen = self.remaining_events();
        eventually("the exit of ekiden", || self.child.try_wait().expect("the process can be waited for")).code()
    }

    /// Requests `path` from the admin listener. Returns the body of the response.
    pub fn ask(&self, path: &str) -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(&self.admin).expect("the admin socket answers");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").expect("an HTTP answer").1.to_owned()
    }

    /// Returns the value of a series in `/metrics`, such as `ekiden_sessions{listener="door"}`; `None` without that series.
    pub fn metric(&self, series: &str) -> Option<u64> {
        let page = self.ask("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap_or_else(|_| panic!("{series} {value}")))
    }

    /// Returns the standard output of `ekiden status` with these arguments.
    pub fn status(&self, arguments: &[&str]) -> String {
        let admin = format!("unix:{}", self.admin.display());
        let output = ekiden().args(["status", "--admin", &admin]).args(arguments).output().expect("ekiden runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The open sessions in `/api/sessions`.
    pub fn sessions(&self) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.ask("/api/sessions")).expect("JSON");
        answer["sessions"].as_array().expect("a list").clone()
    }

    /// Number of open descriptors of the process.
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
        // Also kills the process group of the relay, if the test started the command in its own group.
        let _ = ekiden_sys::signal::kill_group(self.child.id());
        for process in &self.successors {
            let _ = ekiden_sys::signal::send_kill(*process);
        }
        if std::thread::panicking() {
            eprintln!("standard error of ekiden: {}", self.read_stderr());
        }
        let _ = std::fs::remove_file(&self.admin);
    }
}

/// Starts a relay with a `tcp` listener, and returns it with the client's and the server's end of one session.
pub fn relay_with_connection() -> (Relay, TcpStream, TcpStream) {
    let (listener, address) = server();
    let relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{address}")]);
    let client = relay.connect();
    let server = accept(&listener);
    (relay, client, server)
}
