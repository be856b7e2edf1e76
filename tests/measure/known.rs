//! Measurements of sections by session connections, and the reports that relays exchange.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use super::harness::*;
use super::relays::*;

/// A relay that measures, and sends sessions to `far_target` through the relay `far`, all others directly.
pub struct Chooser {
    pub relay: Relay,
    pub site: Site,
}

impl Chooser {
    pub fn new(far: &Site, far_target: SocketAddr) -> Self {
        Self::calling(far, far.address, far_target)
    }

    /// Like `new`, with another address of the far relay.
    pub fn calling(far: &Site, address: SocketAddr, far_target: SocketAddr) -> Self {
        let site = Site::new();
        let relay = site.home(&settings(far, address, far_target), AUTO);
        Self { relay, site }
    }
}

/// No target has the name of the automatic route, so no path is chosen, but the relay measures like a relay that
/// chooses.
pub fn settings(far: &Site, address: SocketAddr, far_target: SocketAddr) -> String {
    let port = far_target.port();
    let path = "[[path]]\nname = \"way\"\nrelays = [\"far\"]\n";
    let auto = "[[route]]\nto = [\"*.example\"]\npath = \"auto\"\n";
    let by_far = format!("[[route]]\nto = [\"127.0.0.1:{port}\", \"localhost:{port}\"]\npath = [\"way\"]\n");
    far.table_at(address, "far", "") + path + auto + &by_far
}

/// A server that sends `bytes` bytes on each connection, until the client closes.
pub fn generous(bytes: usize) -> SocketAddr {
    serve(move |mut stream| {
        // The client may close before the end.
        let _ = stream.write_all(&pattern(bytes));
    })
}

/// Reads all bytes of `target` through a relay. Returns their number.
pub fn take_all(relay: &Relay, target: SocketAddr) -> usize {
    rest_of(socks5(relay.address(), target))
}

/// Like `take_all`, with the name localhost as the target.
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

/// All entries of `/api/paths`.
pub fn all_of(relay: &Relay) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&relay.ask("/api/paths")).expect("JSON");
    answer.as_array().expect("a list").clone()
}

/// The entry of a relay about the section to `to`: its own, or the one reported by `told_by`.
pub fn known(relay: &Relay, to: &str, told_by: Option<&str>) -> Option<Value> {
    all_of(relay).into_iter().find(|entry| entry["to"] == to && entry["told_by"].as_str() == told_by)
}

/// Waits for an entry about the section to `to` that satisfies `wanted`.
pub fn learns(relay: &Relay, to: &str, told_by: Option<&str>, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("word of {to}, told by {told_by:?}"), || known(relay, to, told_by).filter(&wanted))
}

/// The network of the loopback targets.
pub const HERE: &str = "127.0.0.0/24";

fn age(entry: &Value) -> f64 {
    entry["sending"]["age_seconds"].as_f64().unwrap()
}

#[test]
fn a_relay_tells_its_neighbours_what_it_knows() {
    let (far, target) = (Site::new(), generous(2_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, target);
    take_all(&home.relay, target);
    let (far, own) = (&*far.key.public, &*home.site.key.public);
    let told = learns(&home.relay, own, Some(far), |entry| entry["sending"]["segments"].as_f64() > Some(10.0));
    assert!(told["sending"]["rtt_seconds"].as_f64() > Some(0.0), "{told}");
}

/// The relay in the middle does not choose paths: a request for its report makes it request the next one.
#[test]
fn sections_between_other_relays_are_known_though_nothing_flows_there() {
    let (middle, far) = (Site::new(), Site::new());
    let _far_relay = far.relay("", "allow_open = true\n");
    let _middle_relay = middle.relay(&far.table("far", ""), "allow_open = true\n");
    let home = Chooser::new(&middle, nobody());
    let (middle, far) = (&*middle.key.public, &*far.key.public);
    let told = learns(&home.relay, far, Some(middle), |entry| entry["sending"]["segments"].as_f64() > Some(1.0));
    assert!(told["receiving"]["segments"].as_f64() > Some(1.0), "{told}");
}

/// A network is reported only to relays whose sessions have gone there through the reporting relay, so that no relay
/// learns the targets of others.
#[test]
fn nobody_learns_where_others_go() {
    let (far, target) = (Site::new(), generous(500_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let (mine, other) = (Chooser::new(&far, target), Chooser::new(&far, nobody()));
    // Both relays want reports about the network, because their sessions go there; only one relay uses the far relay.
    let direct = generous(500_000);
    take_all(&mine.relay, target);
    take_all(&mine.relay, direct);
    take_all(&other.relay, direct);
    let far = &*far.key.public;
    learns(&mine.relay, HERE, Some(far), |_| true);

    // The far relay's estimate of the section to `mine` is news again, which `other` gets in a later report.
    let begun = Instant::now();
    take_all(&mine.relay, target);
    let own = &*mine.site.key.public;
    learns(&other.relay, own, Some(far), |entry| age(entry) < begun.elapsed().as_secs_f64());
    assert_eq!(known(&other.relay, HERE, Some(far)), None);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_session_tells_of_all_its_sections_at_both_relays() {
    let (far, target) = (Site::new(), generous(4_000_000));
    let far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, target);
    assert_eq!(take_all(&home.relay, target), 4_000_000);

    let section = learns(&home.relay, &far.key.public, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    for direction in ["sending", "receiving"] {
        let rtt = number(&section[direction]["rtt_seconds"]);
        assert!(rtt > 0.0 && rtt < 1.0, "{section}");
    }
    assert!(number(&section["receiving"]["confidence"]) > 0.1, "{section}");
    assert!(number(&section["receiving"]["at_least"]) > 1e5, "{section}");
    assert!(number(&section["receiving"]["age_seconds"]) < 60.0, "{section}");

    let back = learns(&far_relay, &home.site.key.public, None, |entry| number(&entry["sending"]["segments"]) > 10.0);
    assert!(number(&back["sending"]["loss"]) < 0.5, "{back}");
    learns(&far_relay, HERE, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    assert_eq!(known(&home.relay, HERE, None).map(|_| ()), None, "it was not this relay that went there");
}

#[test]
fn a_session_that_still_runs_tells_as_well() {
    let far = Site::new();
    let far_relay = far.relay("", "allow_open = true\n");
    let (listener, target) = server();
    let home = Chooser::new(&far, target);
    let mut client = socks5(home.relay.address(), target).unwrap();
    let mut server = accept(&listener);
    let section = eventually("an estimate of a running session", || {
        // Repeated, because only connections with traffic are measured.
        crate::trouble::passes(&mut server, &mut client, 50_000);
        known(&far_relay, &home.site.key.public, None).filter(|entry| entry["busy"] == true)
    });
    assert!(number(&section["sending"]["segments"]) > 10.0, "{section}");
}

#[test]
fn a_direct_session_tells_of_its_target_s_network() {
    let (far, target) = (Site::new(), generous(1_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, nobody());
    assert_eq!(take_all(&home.relay, target), 1_000_000);
    learns(&home.relay, HERE, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
}

/// A relay that neither chooses paths nor is called by relays has no reader for measurements.
#[test]
fn a_relay_on_its_own_measures_nothing() {
    let (mut relay, target) = (Relay::listen(&["auto://127.0.0.1:0"]), generous(1_000_000));
    assert_eq!(take_all(&relay, target), 1_000_000);
    assert_eq!(relay.closed()["end"], "finished");
    assert_eq!(all_of(&relay), Vec::<Value>::new());
}
