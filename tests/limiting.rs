//! The limiting factor that the relay reports for sessions on loopback with one slow side.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use harness::*;
use serde_json::Value;

/// Block size and write interval of the slow side: 1.6 MB/s, about a thousandth of the rate of loopback.
const BLOCK: usize = 32 * 1024;
const EVERY: Duration = Duration::from_millis(20);

/// A writer with a limited rate, which closes its connection when the value is dropped.
struct SlowWriter {
    stop: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl SlowWriter {
    fn begin(mut stream: TcpStream) -> Self {
        let (stop, stopped) = channel::<()>();
        let writer = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
                stream.write_all(&[7; BLOCK]).unwrap();
            }
        });
        Self { stop: Some(stop), writer: Some(writer) }
    }
}

impl Drop for SlowWriter {
    fn drop(&mut self) {
        self.stop.take();
        self.writer.take().map(join);
    }
}

/// Starts a thread that reads to the end of the stream, and returns the number of bytes.
fn reader(mut stream: TcpStream) -> JoinHandle<u64> {
    std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()).unwrap())
}

/// Starts a thread that writes as fast as possible until the connection ends.
fn flood(mut stream: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || while stream.write_all(&[7; BLOCK]).is_ok() {})
}

fn relay_to(target: SocketAddr) -> Relay {
    Relay::listen(&[&format!("tcp://127.0.0.1:0/{target}")])
}

/// Waits until the relay reports the limit `by` of this direction of the only session. At first the relay may report
/// another limit for a short time: while buffers fill, and while a thread of the test gets no CPU time.
fn settled_limit(relay: &Relay, direction: &str, by: &str) -> Value {
    eventually(by, || Some(relay.sessions()[0]["limits"][direction].clone()).filter(|limit| limit["by"] == by))
}

fn assert_limit(limit: &Value, section: &str, by: &str) {
    assert_eq!((&limit["section"], &limit["by"]), (&section.into(), &by.into()), "{limit}");
    let why = limit["why"].as_str().unwrap();
    assert!(why.contains("bit/s") && !why.contains("NaN") && !why.contains("inf"), "{why}");
}

#[test]
fn client_that_does_not_read_is_reported_as_slow() {
    let (listener, target) = server();
    let mut relay = relay_to(target);
    let client = relay.connect();
    let far = flood(accept(&listener));
    assert_limit(&settled_limit(&relay, "down", "client_slow"), "down", "client_slow");
    assert_eq!(relay.sessions()[0]["limits"]["up"], Value::Null, "no bytes were sent in this direction");

    reset(client);
    join(far);
    let closed = relay.closed();
    assert_eq!(closed["limited"], "down:client_slow", "{closed}");
    assert!(closed["limited_why"].as_str().unwrap().starts_with("the client reads"), "{closed}");
}

#[test]
fn server_that_does_not_read_is_reported_as_slow() {
    let (listener, target) = server();
    let relay = relay_to(target);
    let near = flood(relay.connect());
    let far = accept(&listener);
    assert_limit(&settled_limit(&relay, "up", "server_slow"), "up", "server_slow");
    reset(far);
    join(near);
}

#[test]
fn server_that_writes_with_pauses_is_reported_as_slow() {
    let (listener, target) = server();
    let mut relay = relay_to(target);
    let client = reader(relay.connect());
    let far = SlowWriter::begin(accept(&listener));
    assert_limit(&settled_limit(&relay, "down", "server_slow"), "up", "server_slow");
    drop(far);
    assert!(join(client) > 0);
    assert_eq!(relay.closed()["limited"], "up:server_slow");
}

#[test]
fn client_that_writes_with_pauses_is_reported_as_slow() {
    let (listener, target) = server();
    let mut relay = relay_to(target);
    let near = SlowWriter::begin(relay.connect());
    let far = reader(accept(&listener));
    assert_limit(&settled_limit(&relay, "up", "client_slow"), "down", "client_slow");
    drop(near);
    assert!(join(far) > 0);
    assert_eq!(relay.closed()["limited"], "down:client_slow");
}

#[test]
fn session_with_few_bytes_has_no_limit() {
    let (listener, target) = server();
    let relay = relay_to(target);
    let mut client = relay.connect();
    let mut far = accept(&listener);
    far.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(&mut client, 5), b"hello");
    client.write_all(b"hello").unwrap();
    let mut five = [0; 5];
    far.read_exact(&mut five).unwrap();
    let limits = eventually("the transferred bytes", || {
        let session = relay.sessions()[0].clone();
        (session["bytes_up"] == 5).then(|| session["limits"].clone())
    });
    assert_eq!(limits, serde_json::json!({ "down": null, "up": null }));
}

#[test]
fn status_lists_the_limit_of_a_session() {
    let (listener, target) = server();
    let relay = relay_to(target);
    let client = relay.connect();
    let far = flood(accept(&listener));
    settled_limit(&relay, "down", "client_slow");
    let shown = relay.status(&[]);
    let row = shown.lines().find(|line| line.contains("down:client_slow")).unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains("the client reads"), "{shown}");
    reset(client);
    join(far);
}
