//! Measurements of sections by session connections, and the reports that relays exchange.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use super::harness::*;
use super::relays::*;

/// A relay that measures sections. Its sessions to `far_target` use the relay `far`, all other sessions are direct.
pub struct MeasuringRelay {
    pub relay: Relay,
    pub site: Site,
}

impl MeasuringRelay {
    pub fn new(far: &Site, far_target: SocketAddr) -> Self {
        Self::with_address(far, far.address, far_target)
    }

    /// Like `new`, but the relay dials the far relay at `address`.
    pub fn with_address(far: &Site, address: SocketAddr, far_target: SocketAddr) -> Self {
        let site = Site::new();
        let relay = site.home(&settings(far, address, far_target), AUTO);
        Self { relay, site }
    }
}

/// Returns the settings of a relay that measures sections without choosing paths: measurement needs a route with `path
/// = "auto"`, and no target matches this route.
pub fn settings(far: &Site, address: SocketAddr, far_target: SocketAddr) -> String {
    let port = far_target.port();
    let path = "[[path]]\nname = \"way\"\nrelays = [\"far\"]\n";
    let auto = "[[route]]\nto = [\"*.example\"]\npath = \"auto\"\n";
    let by_far = format!("[[route]]\nto = [\"127.0.0.1:{port}\", \"localhost:{port}\"]\npath = [\"way\"]\n");
    far.table_at(address, "far", "") + path + auto + &by_far
}

/// Starts a server that sends `bytes` bytes on each connection and then closes it.
pub fn byte_server(bytes: usize) -> SocketAddr {
    serve(move |mut stream| {
        // The client may close before the last byte.
        let _ = stream.write_all(&pattern(bytes));
    })
}

/// Reads all bytes from `target` through a relay. Returns their number.
pub fn download(relay: &Relay, target: SocketAddr) -> usize {
    count_bytes(socks5(relay.address(), target))
}

/// Like `download`, with the name localhost as the target.
pub fn download_by_name(relay: &Relay, target: SocketAddr) -> usize {
    let request = [b"\x05\x01\0\x03\x09localhost".as_slice(), &target.port().to_be_bytes()].concat();
    count_bytes(socks5_request(relay.address(), &request))
}

fn count_bytes(tunnel: Result<TcpStream, u8>) -> usize {
    let mut stream = tunnel.expect("a tunnel");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an end");
    all.len()
}

/// Returns all entries of `/api/paths`.
pub fn all_entries(relay: &Relay) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&relay.ask("/api/paths")).expect("JSON");
    answer.as_array().expect("a list").clone()
}

/// Returns the entry of `/api/paths` about the section to `to`: the relay's own entry if `told_by` is `None`, or the
/// entry that the relay `told_by` has reported.
pub fn find_entry(relay: &Relay, to: &str, told_by: Option<&str>) -> Option<Value> {
    all_entries(relay).into_iter().find(|entry| entry["to"] == to && entry["told_by"].as_str() == told_by)
}

/// Waits for an entry about the section to `to` that satisfies `wanted`.
pub fn wait_for_entry(relay: &Relay, to: &str, told_by: Option<&str>, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("an entry about {to} reported by {told_by:?}"), || {
        find_entry(relay, to, told_by).filter(&wanted)
    })
}

/// The network of the loopback targets.
pub const LOOPBACK_NET: &str = "127.0.0.0/24";

fn age(entry: &Value) -> f64 {
    entry["sending"]["age_seconds"].as_f64().unwrap()
}

#[test]
fn relay_reports_its_estimates_to_neighbours() {
    let (far, target) = (Site::new(), byte_server(2_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = MeasuringRelay::new(&far, target);
    download(&home.relay, target);
    let (far, own) = (&*far.key.public, &*home.site.key.public);
    let reported =
        wait_for_entry(&home.relay, own, Some(far), |entry| entry["sending"]["segments"].as_f64() > Some(10.0));
    assert!(reported["sending"]["rtt_seconds"].as_f64() > Some(0.0), "{reported}");
}

/// The relay in the middle does not choose paths, so it requests the report of the far relay only because home requests
/// its own report.
#[test]
fn idle_sections_between_other_relays_are_reported() {
    let (middle, far) = (Site::new(), Site::new());
    let _far_relay = far.relay("", "allow_open = true\n");
    let _middle_relay = middle.relay(&far.table("far", ""), "allow_open = true\n");
    let home = MeasuringRelay::new(&middle, unused_address());
    let (middle, far) = (&*middle.key.public, &*far.key.public);
    let reported =
        wait_for_entry(&home.relay, far, Some(middle), |entry| entry["sending"]["segments"].as_f64() > Some(1.0));
    assert!(reported["receiving"]["segments"].as_f64() > Some(1.0), "{reported}");
}

/// A network is reported only to relays whose sessions have used the reporting relay to reach the network, so no relay
/// learns the targets of other relays.
#[test]
fn networks_are_not_reported_to_relays_without_sessions_there() {
    let (far, target) = (Site::new(), byte_server(500_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let (mine, other) = (MeasuringRelay::new(&far, target), MeasuringRelay::new(&far, unused_address()));
    // Both relays request reports about the network, because both have sessions to it; only `mine` uses the far relay.
    let direct = byte_server(500_000);
    download(&mine.relay, target);
    download(&mine.relay, direct);
    download(&other.relay, direct);
    let far = &*far.key.public;
    wait_for_entry(&mine.relay, LOOPBACK_NET, Some(far), |_| true);

    // A newer estimate of the section to `mine` shows that `other` has received a later report of the far relay.
    let begun = Instant::now();
    download(&mine.relay, target);
    let own = &*mine.site.key.public;
    wait_for_entry(&other.relay, own, Some(far), |entry| age(entry) < begun.elapsed().as_secs_f64());
    assert_eq!(find_entry(&other.relay, LOOPBACK_NET, Some(far)), None);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn session_yields_estimates_of_its_sections_at_both_relays() {
    let (far, target) = (Site::new(), byte_server(4_000_000));
    let far_relay = far.relay("", "allow_open = true\n");
    let home = MeasuringRelay::new(&far, target);
    assert_eq!(download(&home.relay, target), 4_000_000);

    let section =
        wait_for_entry(&home.relay, &far.key.public, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    for direction in ["sending", "receiving"] {
        let rtt = number(&section[direction]["rtt_seconds"]);
        assert!(rtt > 0.0 && rtt < 1.0, "{section}");
    }
    assert!(number(&section["receiving"]["confidence"]) > 0.1, "{section}");
    assert!(number(&section["receiving"]["at_least"]) > 1e5, "{section}");
    assert!(number(&section["receiving"]["age_seconds"]) < 60.0, "{section}");

    let back = wait_for_entry(&far_relay, &home.site.key.public, None, |entry| entry["sending"]["loss"].is_number());
    assert!(number(&back["sending"]["segments"]) > 10.0, "{back}");
    assert!(number(&back["sending"]["loss"]) < 0.5, "{back}");
    wait_for_entry(&far_relay, LOOPBACK_NET, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    assert_eq!(find_entry(&home.relay, LOOPBACK_NET, None).map(|_| ()), None, "home does not dial the target");
}

#[test]
fn running_session_yields_an_estimate() {
    let far = Site::new();
    let far_relay = far.relay("", "allow_open = true\n");
    let (listener, target) = server();
    let home = MeasuringRelay::new(&far, target);
    let mut client = socks5(home.relay.address(), target).unwrap();
    let mut server = accept(&listener);
    let section = eventually("an estimate from a running session", || {
        // Repeated, because only connections with traffic are measured.
        crate::failures::transfer(&mut server, &mut client, 50_000);
        find_entry(&far_relay, &home.site.key.public, None).filter(|entry| entry["busy"] == true)
    });
    assert!(number(&section["sending"]["segments"]) > 10.0, "{section}");
}

#[test]
fn direct_session_yields_an_estimate_of_the_target_network() {
    let (far, target) = (Site::new(), byte_server(1_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = MeasuringRelay::new(&far, unused_address());
    assert_eq!(download(&home.relay, target), 1_000_000);
    wait_for_entry(&home.relay, LOOPBACK_NET, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
}

/// Measurements have no use at a relay that neither chooses paths nor reports to other relays.
#[test]
fn relay_without_path_selection_or_peers_measures_nothing() {
    let (mut relay, target) = (Relay::listen(&["auto://127.0.0.1:0"]), byte_server(1_000_000));
    assert_eq!(download(&relay, target), 1_000_000);
    assert_eq!(relay.closed()["end"], "finished");
    assert_eq!(all_entries(&relay), Vec::<Value>::new());
}
