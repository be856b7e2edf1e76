//! curl: its arguments, exit codes and counters.
#![allow(dead_code, reason = "the quick and the slow clients use their own parts of it")]

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::programs::{client, run_to_end};
use crate::harness::{Folder, Relay};

/// The result of one curl process.
#[derive(Debug)]
pub struct Fetched {
    /// curl's exit code: 0, or the number of the error.
    pub code: i32,
    /// All bodies, concatenated; with -i and -I also the heads.
    pub body: Vec<u8>,
    /// The counters of each transfer.
    pub transfers: Vec<Transfer>,
    pub err: String,
}

/// The counters that curl writes for one transfer.
#[derive(Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Status of the response; 0 without a response.
    pub status: u16,
    /// Status of the proxy's response to CONNECT; 0 without CONNECT.
    pub connect_status: u16,
    /// Bytes of heads and body as received.
    pub bytes_down: u64,
}

/// Runs `curl ARGUMENTS` without the user's settings.
pub fn curl(arguments: &[&str]) -> Fetched {
    let home = Folder::new();
    curl_with(&mut client("curl", &home), arguments)
}

/// Like `curl`, with a prepared command that runs curl.
pub fn curl_with(command: &mut Command, arguments: &[&str]) -> Fetched {
    const COUNTED: &str = "%{stderr}@ %{http_code} %{http_connect} %{size_header} %{size_download}\n";
    let output = run_to_end(command.args(["-q", "-sS", "-w", COUNTED]).args(arguments));
    let transfers = output.err.lines().filter_map(|line| line.strip_prefix("@ ")).map(|line| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let status = |at: usize| u16::try_from(numbers[at]).expect("a status");
        Transfer { status: status(0), connect_status: status(1), bytes_down: numbers[2] + numbers[3] }
    });
    Fetched { code: output.code, body: output.out, transfers: transfers.collect(), err: output.err.clone() }
}

impl Fetched {
    /// Asserts that the run succeeded, with this status and these bytes.
    #[track_caller]
    pub fn assert_success(&self, status: u16, body: &[u8]) {
        self.assert_ended(0, status);
        assert!(self.body == body, "{} of {} bytes, or different bytes: {}", self.body.len(), body.len(), self.err);
    }

    /// Asserts that the run ended with this exit code and, where there was a response, this status.
    #[track_caller]
    pub fn assert_ended(&self, code: i32, status: u16) {
        assert_eq!((self.code, self.transfers[0].status), (code, status), "{}", self.err);
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Returns `-xSCHEME://RELAY`; `scheme` is a proxy scheme of curl(1).
pub fn proxy_option(scheme: &str, relay: SocketAddr) -> String {
    format!("-x{scheme}://{relay}")
}

/// Waits for the next closing event, asserts its end, target and path, and returns it.
#[track_caller]
pub fn assert_next_closed(relay: &mut Relay, end: &str, target: &str, path: &str) -> Value {
    let closed = relay.closed();
    assert_closed(&closed, end, target, path);
    closed
}

/// Asserts end, target and path of this closing event.
#[track_caller]
pub fn assert_closed(closed: &Value, end: &str, target: &str, path: &str) {
    assert_eq!((closed["end"].as_str(), closed["target"].as_str()), (Some(end), Some(target)), "{closed}");
    assert_eq!(closed["path"], path, "{closed}");
}
