//! Relays behind IPVS with consistent hashing, as in docs/balancing.md.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::harness::*;
use crate::network::*;
use crate::programs::is_any_missing;

const RELAYS: usize = 4;

/// A client, a director, and four relays, which clients reach at the address of the director.
struct Fixture {
    row: Row,
    relays: Vec<Option<Relay>>,
    addresses: Vec<SocketAddr>,
    service: SocketAddr,
    target: SocketAddr,
}

impl Fixture {
    /// Returns `None`, with a message about the skipped test, if IPVS is not available.
    fn new() -> Option<Self> {
        if is_any_missing(&["ipvsadm"]) {
            return None;
        }
        let row = Row::of(&["client", "director", "relays"], &[Family::V4])?;
        let service = SocketAddr::new(row.left("director", Family::V4), 1080);
        let output = row["director"].inside(|| Command::new("ipvsadm").arg("-Z").output()).expect("ipvsadm runs");
        if !output.status.success() {
            skipped(format_args!("no IPVS in this kernel: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        let host = row.left("relays", Family::V4);
        let target = row["relays"].inside(echo_server);
        let start = |_| row["relays"].inside(|| start_relay(SocketAddr::new(host, 0)));
        let relays: Vec<Option<Relay>> = (0..RELAYS).map(start).map(Some).collect();
        let addresses = relays.iter().flatten().map(Relay::address).collect();
        let fixture = Self { row, relays, addresses, service, target };
        fixture.ipvsadm(&["-A", "-t", &service.to_string(), "-s", "mh", "-b", "mh-port"]);
        (0..RELAYS).for_each(|at| fixture.add(at));
        Some(fixture)
    }

    fn ipvsadm(&self, arguments: &[&str]) {
        self.row["director"].run("ipvsadm", arguments, "");
    }

    fn add(&self, at: usize) {
        self.ipvsadm(&["-a", "-t", &self.service.to_string(), "-r", &self.addresses[at].to_string(), "-m"]);
    }

    fn remove(&self, at: usize) {
        self.ipvsadm(&["-d", "-t", &self.service.to_string(), "-r", &self.addresses[at].to_string()]);
    }

    fn open(&self, count: usize) -> Vec<TcpStream> {
        let (service, target) = (self.service, self.target);
        let open = || (0..count).map(|_| socks5(service, target).expect("a session")).collect();
        let mut sessions: Vec<TcpStream> = self.row["client"].inside(open);
        sessions.iter_mut().for_each(assert_echo);
        sessions
    }

    /// Number of open sessions of each relay.
    fn sessions(&self) -> Vec<usize> {
        self.relays.iter().map(|relay| relay.as_ref().map_or(0, |relay| relay.sessions().len())).collect()
    }

    fn kill(&mut self, at: usize) {
        let mut relay = self.relays[at].take().unwrap();
        relay.signal("KILL");
        relay.exit_code();
    }
}

fn start_relay(address: SocketAddr) -> Relay {
    Relay::run(&["-L", &format!("socks://{address}?allow_open=true&allow_private=true")], 1)
}

/// Returns whether the session still transfers bytes in both directions.
fn is_alive(session: &mut TcpStream) -> bool {
    session.write_all(b"echo").is_ok() && session.read_exact(&mut [0; 4]).is_ok()
}

/// The sessions of the other relays also continue when the killed relay is removed from the set and added again.
#[test]
fn only_the_sessions_of_a_killed_relay_are_lost() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut sessions = fixture.open(200);
    let shares = fixture.sessions();
    // The hash assigns each session to a relay with a probability of 1/4. A share is outside of these bounds, or below
    // the bound at the end, with a probability of less than 1e-9 (binomial distribution).
    assert!(shares.iter().all(|share| (15..=95).contains(share)), "consistent hashing: {shares:?}");
    fixture.kill(1);
    fixture.remove(1);
    sessions.retain_mut(is_alive);
    assert_eq!(200 - sessions.len(), shares[1]);
    let mut later = fixture.open(60);
    let address = fixture.addresses[1];
    fixture.relays[1] = Some(fixture.row["relays"].inside(|| start_relay(address)));
    fixture.add(1);
    sessions.iter_mut().chain(&mut later).for_each(assert_echo);
    let before = fixture.sessions();
    let _more = fixture.open(120);
    assert_eq!(before[1], 0, "open sessions do not move: {before:?}");
    assert!(fixture.sessions()[1] > 5, "{:?}", fixture.sessions());
}
