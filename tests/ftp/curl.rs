//! The real curl, and a relay for it to ask.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::*;

/// What curl got.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub body: Vec<u8>,
    pub head: String,
    pub said: String,
    pub exit: i32,
}

pub fn curl(arguments: &[&str]) -> Got {
    let folder = Folder::new();
    let head = folder.0.join("head");
    let mut command = Command::new("curl");
    for name in ["http_proxy", "ftp_proxy", "all_proxy", "no_proxy", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"] {
        command.env_remove(name);
    }
    command.args(["-q", "-sS", "--max-time", "20", "-w", "%{stderr}%{http_code}", "-D"]).arg(&head).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("curl runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = &said[said.len().saturating_sub(3)..];
    Got {
        status: code.parse().unwrap_or_else(|_| panic!("curl said: {said}")),
        body: output.stdout,
        head: std::fs::read_to_string(head).unwrap_or_default(),
        exit: output.status.code().unwrap(),
        said,
    }
}

/// curl through the relay as an HTTP proxy.
pub fn get(relay: &Relay, url: &str, more: &[&str]) -> Got {
    let proxy = format!("http://{}", relay.address());
    curl(&[&["-x", &proxy, url], more].concat())
}

pub fn http() -> Relay {
    Relay::listen(&["http://127.0.0.1:0"])
}

pub fn request(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "request")
}

/// A request that is written byte for byte, and the connection for what comes next.
pub fn ask(relay: &Relay, request: &str) -> TcpStream {
    let mut client = relay.connect();
    client.write_all(request.as_bytes()).unwrap();
    client
}
