//! A relay with an admin listener on a TCP port, and clients for arbitrary requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use crate::harness::{Folder, Relay, TEST_TIMEOUT, connect, ekiden};

pub const TOKEN: &str = "correct-horse-battery-staple";

/// A relay with an admin listener on a loopback port, and a listener for clients.
pub struct Fixture {
    pub relay: Relay,
    pub admin: SocketAddr,
    pub clients: SocketAddr,
    pub folder: Folder,
}

/// An HTTP response. `head` is in lower case.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Fixture {
    /// Starts a relay whose admin listener requires no token.
    pub fn open() -> Self {
        Self::with("", "kind = \"auto\"")
    }

    /// Starts a relay with the token [`TOKEN`] and the further lines `more` in `[admin]`.
    pub fn with_token(more: &str) -> Self {
        let folder = Folder::new();
        let file = folder.write_with_mode("token", format!("{TOKEN}\n"), 0o600);
        let admin = format!("token_file = \"{}\"\n{more}\n", file.display());
        Self::start_in(folder, &admin, "kind = \"auto\"")
    }

    pub fn with(admin: &str, listener: &str) -> Self {
        Self::start_in(Folder::new(), admin, listener)
    }

    fn start_in(folder: Folder, admin: &str, listener: &str) -> Self {
        let text = format!(
            "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n[admin]\nbind = \"127.0.0.1:0\"\n{admin}"
        );
        let file = folder.write("ekiden.toml", text);
        let mut command = ekiden();
        command.args(["run", "-c"]).arg(&file);
        let relay = Relay::start_with_admin(&mut command, 2, folder.0.join("none"));
        // The relay opens the admin listener before all other listeners.
        let (admin, clients) = (relay.address_of(0), relay.address_of(1));
        Self { relay, admin, clients, folder }
    }

    /// Requests `path` with the address of the admin listener in `Host`, and these further header lines.
    pub fn get(&self, path: &str, lines: &[&str]) -> Answer {
        let host = format!("Host: {}", self.admin);
        self.request("GET", path, &[&[host.as_str()], lines].concat())
    }

    /// Sends a request with exactly these header lines.
    pub fn request(&self, method: &str, path: &str, lines: &[&str]) -> Answer {
        let mut stream = connect(self.admin);
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        write!(stream, "{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Requests `/api/stream`.
    pub fn stream(&self) -> Snapshots {
        let mut stream = connect(self.admin);
        // A response to HTTP/1.0 has no chunked encoding.
        write!(stream, "GET /api/stream HTTP/1.0\r\n\r\n").unwrap();
        Snapshots { stream, text: Vec::new(), status: None }
    }
}

/// A reader of `/api/stream`.
pub struct Snapshots {
    pub stream: TcpStream,
    text: Vec<u8>,
    status: Option<u16>,
}

impl Snapshots {
    /// Returns the HTTP status of the response.
    pub fn status(&mut self) -> u16 {
        if let Some(status) = self.status {
            return status;
        }
        let head = String::from_utf8(self.read_until(b"\r\n\r\n")).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        self.status = Some(status);
        status
    }

    /// Reads the next snapshot.
    pub fn next(&mut self) -> Value {
        assert_eq!(self.status(), 200);
        let event = String::from_utf8(self.read_until(b"\n\n")).unwrap();
        serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()
    }

    /// Reads snapshots until one satisfies `wanted`, and returns it. Panics after [`TEST_TIMEOUT`].
    pub fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let snapshot = self.next();
            if wanted(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "no snapshot matches; the last: {snapshot:#}");
        }
    }

    fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.text.windows(end.len()).position(|window| window == end) {
                return self.text.drain(..at + end.len()).collect();
            }
            let mut bytes = [0; 65_536];
            let count = self.stream.read(&mut bytes).expect("the stream continues");
            assert_ne!(count, 0, "the stream has ended with {} unparsed bytes", self.text.len());
            self.text.extend(&bytes[..count]);
        }
    }
}
