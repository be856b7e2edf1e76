//! Relays as candidates of a probe, a server with a file, and the output of the probe.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::harness::*;

/// Length of the server's file, in bytes.
pub const LONG: usize = 12 << 20;

pub fn probe(arguments: &[&str]) -> Output {
    let quick = ["--count", "3", "--time", "2s", "--bytes", "24MiB"];
    ekiden().arg("probe").args(arguments).args(quick).output().expect("ekiden runs")
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

pub fn candidate<'v>(report: &'v Value, name: &str) -> &'v Value {
    let all = report["candidates"].as_array().expect("candidates");
    all.iter().find(|candidate| candidate["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Returns whether the client sends a request: a probe also opens connections only to measure the connect time.
pub fn has_request(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|count| count > 0)
}

/// Answers one request with a file of `length` bytes, in blocks of `piece` bytes with a `pause` after each.
pub fn answer(mut stream: TcpStream, length: usize, piece: usize, pause: Duration) {
    if !has_request(&stream) {
        return;
    }
    let head = read_head(&mut stream);
    assert!(head.starts_with("GET /file HTTP/1.1\r\n"), "{head}");
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let block = vec![b'x'; piece];
    for _ in 0..length / piece {
        // The probe closes when it has enough bytes.
        if stream.write_all(&block).is_err() {
            return;
        }
        if !pause.is_zero() {
            std::thread::park_timeout(pause);
        }
    }
}

pub fn answer_fast(stream: TcpStream) {
    answer(stream, LONG, 64 << 10, Duration::ZERO);
}

/// Starts a relay that admits the key `caller`. Returns the relay and its key.
pub fn relay(caller: &Key, listener_keys: &str) -> (Relay, Key) {
    let key = Key::new();
    let folder = Folder::new();
    let peers = folder.write("peers", format!("{} caller\n", caller.public));
    let text = format!(
        "version = 1\nprivate_key = \"{}\"\n[[listener]]\nname = \"section\"\nbind = \"127.0.0.1:0\"\nkind = \"section\"\n\
         peers = \"{}\"\n{listener_keys}",
        key.file.display(),
        peers.display()
    );
    let file = folder.write("relay.toml", text);
    (Relay::run(&["-c", file.to_str().expect("text")], 1), key)
}

pub fn table(name: &str, address: SocketAddr, key: &str) -> String {
    format!("[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{key}\"\n")
}

/// Writes the configuration file of a relay that dials other relays. Returns the path of the file.
pub fn caller_config(folder: &Folder, key: &Key, relays: &str) -> String {
    let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n";
    let text = format!("version = 1\nprivate_key = \"{}\"\n{relays}{door}", key.file.display());
    folder.write("ekiden.toml", text).to_str().expect("text").to_owned()
}
