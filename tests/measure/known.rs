//! What a relay says that it knows, and what is needed to have it know something.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::harness::*;
use crate::relays::*;

/// A relay that chooses, but sends the sessions to `far_target` through the relay `far` and all others directly.
pub struct Chooser {
    pub relay: Relay,
    pub site: Site,
}

impl Chooser {
    pub fn new(far: &Site, far_target: SocketAddr) -> Self {
        Self::calling(far, far.address, far_target)
    }

    /// The same, where the far relay is to be found at another address.
    pub fn calling(far: &Site, address: SocketAddr, far_target: SocketAddr) -> Self {
        let site = Site::new();
        let relay = site.home(&settings(far, address, far_target), AUTO);
        Self { relay, site }
    }
}

/// The name is on no target, so nothing is ever chosen, but the relay is one that chooses.
pub fn settings(far: &Site, address: SocketAddr, far_target: SocketAddr) -> String {
    let port = far_target.port();
    let path = "[[path]]\nname = \"way\"\nrelays = [\"far\"]\n";
    let auto = "[[route]]\nto = [\"*.example\"]\npath = \"auto\"\n";
    let by_far = format!("[[route]]\nto = [\"127.0.0.1:{port}\", \"localhost:{port}\"]\npath = [\"way\"]\n");
    far.table_at(address, "far", "") + path + auto + &by_far
}

/// A server that sends `bytes` to everyone, as far as they are taken.
pub fn generous(bytes: usize) -> SocketAddr {
    serve(move |mut stream| {
        // A client that has enough is its own affair.
        let _ = stream.write_all(&pattern(bytes));
    })
}

/// Takes everything that `target` has, through a relay.
pub fn take_all(relay: &Relay, target: SocketAddr) -> usize {
    rest_of(socks5(relay.address(), target))
}

/// The same, by the name of this host.
pub fn take_all_by_name(relay: &Relay, target: SocketAddr) -> usize {
    let request = [b"\x05\x01\0\x03\x09localhost".as_slice(), &target.port().to_be_bytes()].concat();
    rest_of(socks5_request(relay.address(), &request))
}

fn rest_of(tunnel: Result<TcpStream, u8>) -> usize {
    let mut stream = tunnel.expect("a tunnel");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an end");
    all.len()
}

/// All that a relay knows.
pub fn all_of(relay: &Relay) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&relay.ask("/api/paths")).expect("JSON");
    answer.as_array().expect("a list").clone()
}

/// What a relay knows of the section to somebody, by itself or because somebody has told.
pub fn known(relay: &Relay, to: &str, told_by: Option<&str>) -> Option<Value> {
    all_of(relay).into_iter().find(|entry| entry["to"] == to && entry["told_by"].as_str() == told_by)
}

/// Waits until a relay knows something of it that `wanted` likes.
pub fn learns(relay: &Relay, to: &str, told_by: Option<&str>, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("word of {to}, told by {told_by:?}"), || known(relay, to, told_by).filter(&wanted))
}

/// The network of the loopback targets.
pub const HERE: &str = "127.0.0.0/24";
