//! curl: its arguments, and what it says of its transfers.
#![allow(dead_code, reason = "the quick and the slow clients use their own parts of it")]

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::programs::{client, said};
use crate::harness::{Folder, Relay};

/// What came of one run.
#[derive(Debug)]
pub struct Fetched {
    /// curl's exit code: 0, or the number of what went wrong.
    pub code: i32,
    /// All bodies, one behind the other; with -i and -I heads too.
    pub body: Vec<u8>,
    /// One for each transfer.
    pub transfers: Vec<Transfer>,
    pub err: String,
}

/// What curl counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Of the answer; 0 when there was none.
    pub status: u16,
    /// Of the proxy's answer to CONNECT; 0 without one.
    pub connect_status: u16,
    /// Bytes of heads and body as they came.
    pub bytes_down: u64,
}

/// Runs `curl ARGUMENTS` without the user's settings.
pub fn curl(arguments: &[&str]) -> Fetched {
    let home = Folder::new();
    curl_by(&mut client("curl", &home), arguments)
}

/// The same, with a command that runs curl in a way of its own.
pub fn curl_by(command: &mut Command, arguments: &[&str]) -> Fetched {
    const COUNTED: &str = "%{stderr}@ %{http_code} %{http_connect} %{size_header} %{size_download}\n";
    let said = said(command.args(["-q", "-sS", "-w", COUNTED]).args(arguments));
    let transfers = said.err.lines().filter_map(|line| line.strip_prefix("@ ")).map(|line| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let status = |at: usize| u16::try_from(numbers[at]).expect("a status");
        Transfer { status: status(0), connect_status: status(1), bytes_down: numbers[2] + numbers[3] }
    });
    Fetched { code: said.code, body: said.out, transfers: transfers.collect(), err: said.err.clone() }
}

impl Fetched {
    /// The run went well, with this status and these bytes.
    #[track_caller]
    pub fn brought(&self, status: u16, body: &[u8]) {
        self.ended(0, status);
        assert!(self.body == body, "{} of {} bytes, or not the same: {}", self.body.len(), body.len(), self.err);
    }

    /// The run ended with this exit code and, where there was an answer, this status.
    #[track_caller]
    pub fn ended(&self, code: i32, status: u16) {
        assert_eq!((self.code, self.transfers[0].status), (code, status), "{}", self.err);
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// `-x SCHEME://RELAY`: every kind of proxy that curl knows.
pub fn by(scheme: &str, relay: SocketAddr) -> String {
    format!("-x{scheme}://{relay}")
}

/// The next closing event says this of end, target and path.
#[track_caller]
pub fn closed(relay: &mut Relay, end: &str, target: &str, path: &str) -> Value {
    let closed = relay.closed();
    says(&closed, end, target, path);
    closed
}

/// A closing event says this of end, target and path.
#[track_caller]
pub fn says(closed: &Value, end: &str, target: &str, path: &str) {
    assert_eq!((closed["end"].as_str(), closed["target"].as_str()), (Some(end), Some(target)), "{closed}");
    assert_eq!(closed["path"], path, "{closed}");
}
