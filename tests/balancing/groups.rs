//! Several equal relays as members of one `[[relay]]`: shares of sessions, and killed, stopped, full and slow members.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::*;
use crate::interceptor::*;
use crate::relays::*;

/// A home relay in front of a group whose members share one key.
struct Group {
    home: Relay,
    members: Vec<Option<Relay>>,
    addresses: Vec<SocketAddr>,
    site: Site,
    _home_site: Site,
}

impl Group {
    fn with_members(members: usize, balance: &str) -> Self {
        Self::with_dialled_addresses(members, balance, |_, address| address)
    }

    /// Starts one member for each element of `lines`, which are further lines of its listener.
    fn with_listeners(lines: &[&str], balance: &str) -> Self {
        Self::start(lines, "", balance, |_, address| address)
    }

    /// Starts members. The home relay dials each at the address that `dialled` returns for its index and own address.
    fn with_dialled_addresses(
        members: usize,
        balance: &str,
        dialled: impl Fn(usize, SocketAddr) -> SocketAddr,
    ) -> Self {
        Self::start(&vec![""; members], "", balance, dialled)
    }

    /// `listeners` are further lines of the listener of each member, and `tables` are further tables in the
    /// configuration of the home relay.
    fn start(
        listeners: &[&str],
        tables: &str,
        balance: &str,
        dialled: impl Fn(usize, SocketAddr) -> SocketAddr,
    ) -> Self {
        let (mut site, home_site) = (Site::new(), Site::new());
        site.admit(&[(&home_site.key.public, "home")]);
        let addresses: Vec<_> = listeners.iter().map(|_| own_address()).collect();
        let members = addresses.iter().zip(listeners);
        let relays = members.map(|(address, lines)| Some(start_member(&mut site, *address, lines))).collect();
        let shown: Vec<_> = addresses.iter().enumerate().map(|(at, own)| dialled(at, *own).to_string()).collect();
        let key = &site.key.public;
        let relay = format!(
            "[[relay]]\nname = \"osaka\"\naddress = {shown:?}\nkey = \"{key}\"\nbalance = \"{balance}\"\n{tables}"
        );
        let home = home_site.home(&format!("forward = [\"osaka\"]\n{relay}"), AUTO);
        let group = Self { home, members: relays, addresses, site, _home_site: home_site };
        eventually("ready connections to all members", || {
            group.pools().iter().all(|pool| pool["ready"] != 0 || pool["wanted"] == 0).then_some(())
        });
        group
    }

    fn pools(&self) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.home.ask("/api/sessions")).unwrap();
        answer["pools"].as_array().unwrap().clone()
    }

    /// A field of a member's pool in `/api/sessions`.
    fn pool(&self, at: usize, field: &str) -> Value {
        self.pools()[at][field].clone()
    }

    /// Number of open sessions through each member.
    fn sessions(&self) -> Vec<u64> {
        self.pools().iter().map(|pool| pool["sessions"].as_u64().unwrap()).collect()
    }

    /// The series of a metric for member `at`.
    fn metric(&self, name: &str, at: usize) -> Option<u64> {
        self.home.metric(&format!("{name}{{relay=\"{}\"}}", self.member_name(at)))
    }

    fn open(&self, target: SocketAddr, count: usize) -> Vec<TcpStream> {
        (0..count).map(|at| socks5(self.home.address(), target).unwrap_or_else(|code| panic!("{at}: {code}"))).collect()
    }

    /// Opens a session from the address `client`. Returns the index of the member that carries it.
    fn member_of(&self, client: IpAddr, target: SocketAddr) -> usize {
        let stream = socks5_from(client, self.home.address(), target).expect("a session");
        let own = stream.local_addr().unwrap().to_string();
        let session = self.home.sessions().into_iter().find(|session| session["client"] == own).expect("the session");
        let server = session["server"].as_str().unwrap().parse().unwrap();
        self.addresses.iter().position(|address| *address == server).expect("a member")
    }

    fn kill(&mut self, at: usize) {
        let mut member = self.members[at].take().unwrap();
        member.signal("KILL");
        member.exit_code();
    }

    fn restart(&mut self, at: usize) {
        self.members[at] = Some(start_member(&mut self.site, self.addresses[at], ""));
    }

    fn member_name(&self, at: usize) -> String {
        format!("osaka@{}", self.addresses[at])
    }
}

fn start_member(site: &mut Site, address: SocketAddr, listener: &str) -> Relay {
    site.address = address;
    let peers = site.folder.0.join("peers");
    site.relay("", &format!("allow_private = true\npeers = {peers:?}\n{listener}"))
}

#[test]
fn sessions_are_shared_equally_and_reported_per_member() {
    let group = Group::with_members(4, "least");
    let sessions = group.open(echo_server(), 200);
    let shares = group.sessions();
    // In real time on a loaded machine, a member may have been slow and got fewer sessions.
    let equal = if is_virtual() { 48..=52 } else { 1..=150 };
    assert!(shares.iter().all(|share| equal.contains(share)), "{shares:?}");
    for (at, share) in shares.iter().enumerate() {
        assert_eq!(group.metric("ekiden_relay_sessions", at), Some(*share));
        assert!(group.pool(at, "latency_seconds").as_f64().unwrap() > 0.0);
    }
    drop(sessions);
    eventually("the end of all sessions", || (group.sessions() == [0; 4]).then_some(()));
}

/// New sessions succeed at any time, because the home relay selects another member.
#[test]
fn a_killed_member_loses_its_own_sessions_only() {
    let mut group = Group::with_members(4, "least");
    let target = echo_server();
    let mut sessions = group.open(target, 80);
    sessions.iter_mut().for_each(assert_echo);
    let own = group.sessions()[2];
    group.kill(2);
    let mut later = group.open(target, 40);
    later.iter_mut().for_each(assert_echo);
    let name = group.member_name(2);
    let event = group.home.next(|event| event["event"] == "relay_unreachable");
    assert_eq!(event["relay"], name);
    assert_eq!(group.pool(2, "up"), false);
    eventually("the end of the sessions of the member", || (group.sessions()[2] == 0).then_some(()));
    let is_lost =
        |session: &mut TcpStream| session.write_all(b"echo").is_err() || !matches!(session.peek(&mut [0]), Ok(1));
    let lost: u64 = sessions.iter_mut().map(|session| u64::from(is_lost(session))).sum();
    assert_eq!(lost, own);
    group.restart(2);
    let event = group.home.next(|event| event["event"] == "relay_reachable");
    assert_eq!(event["relay"], name);
    let _more = group.open(target, 80);
    assert!(group.sessions()[2] > 10, "{:?}", group.sessions());
}

/// A full member has the fewest sessions, so the policy `least` would prefer it.
#[test]
fn full_members_leave_new_sessions_to_the_others() {
    for balance in ["least", "client"] {
        let group = Group::with_listeners(&["sessions = 2\n", "sessions = 2\n", ""], balance);
        let _sessions = group.open(echo_server(), 30);
        let shares = group.sessions();
        assert_eq!(shares.iter().sum::<u64>(), 30, "{balance}: {shares:?}");
        assert!(shares[0] <= 2 && shares[1] <= 2, "{balance}: {shares:?}");
    }
}

/// Member 0 accepts connections and resets each session.
#[test]
fn session_dropped_by_a_member_is_opened_by_another_member() {
    for balance in ["least", "client"] {
        let group = Group::with_dialled_addresses(2, balance, |at, address| {
            start_interceptor(address, Framed::Plain, move |frame| {
                if at == 0 && frame.direction == Direction::Up && frame.number == 1 {
                    FrameAction::Reset
                } else {
                    forward_unchanged(frame)
                }
            })
        });
        let _sessions = group.open(echo_server(), 20);
        assert_eq!(group.sessions(), [0, 20], "{balance}");
    }
}

/// Starts a group and one session for each member. With two members, each carries one of the sessions, over its only
/// ready connection. The handshakes of further connections take `delays` longer.
fn group_with_handshakes(delays: &[Duration], connect: &str) -> (Group, Vec<TcpStream>) {
    let begun = Arc::new(AtomicBool::new(false));
    let tables = format!("[limits]\nready_connections = 1\n[timeouts]\nconnect = \"{connect}\"\n");
    let group = Group::start(&vec![""; delays.len()], &tables, "least", |at, address| {
        let (delay, begun) = (delays[at], Arc::clone(&begun));
        serve(move |down| {
            if begun.load(Ordering::Relaxed) {
                pause_until(Instant::now() + delay);
            }
            splice(down, TcpStream::connect(address).unwrap());
        })
    });
    begun.store(true, Ordering::Relaxed);
    let sessions = group.open(echo_server(), delays.len());
    (group, sessions)
}

/// Forwards bytes in both directions until both directions have ended.
fn splice(down: TcpStream, up: TcpStream) {
    let (from, to) = (down.try_clone().unwrap(), up.try_clone().unwrap());
    let upward = std::thread::spawn(move || pass_on(&from, &to));
    pass_on(&up, &down);
    upward.join().unwrap();
}

/// Forwards the bytes of one direction, and then FIN. An error ends the direction as well.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn first_member_gets_enough_time_for_a_long_round_trip() {
    let (group, _sessions) = group_with_handshakes(&[Duration::from_millis(600); 4], "2s");
    let _session = group.open(echo_server(), 1);
    // Chance decides which sessions find a ready connection, but each of the five needs one attempt.
    let count = |pool: &Value, name: &str| pool[name].as_u64().unwrap();
    let attempts: u64 = group.pools().iter().map(|pool| count(pool, "hits") + count(pool, "misses")).sum();
    assert_eq!(attempts, 5);
}

/// The attempt with member 0 gets half of the connect timeout of 4 s, which is too short to treat the member as down.
#[test]
fn member_that_exceeds_its_share_of_the_timeout_is_not_down() {
    let (group, _sessions) = group_with_handshakes(&[Duration::from_secs(3), Duration::ZERO], "4s");
    // Both members have one session each, so the relay tries member 0 for the second new session at the latest.
    let _more = group.open(echo_server(), 2);
    let state = (group.sessions(), group.pool(0, "up"), group.pool(0, "slow"));
    assert_eq!(state, (vec![1, 3], true.into(), true.into()));
}

#[test]
fn sessions_are_refused_while_all_members_are_down() {
    let mut group = Group::with_members(2, "least");
    group.kill(0);
    group.kill(1);
    assert!(socks5(group.home.address(), echo_server()).is_err());
    let closed = group.home.closed();
    assert_eq!((&closed["end"], &closed["path"]), (&"refused".into(), &"osaka".into()), "{closed}");
    let detail = closed["detail"].as_str().unwrap();
    assert!((0..2).any(|at| detail.contains(&group.member_name(at))), "{detail}");
    group.restart(1);
    eventually("a session through the restarted member", || socks5(group.home.address(), echo_server()).ok());
}

/// The member is a stopped process, whose kernel still accepts connections and acknowledges bytes.
#[test]
fn stopped_member_keeps_its_sessions_and_gets_no_new_sessions() {
    let group = Group::with_members(4, "least");
    let target = echo_server();
    let mut sessions = group.open(target, 40);
    let stopped = group.members[1].as_ref().unwrap();
    stopped.stop();
    let begun = Instant::now();
    let home = group.home.address();
    // With 40 clients, some sessions are assigned to the stopped member, and wait until the member is excluded.
    let waiting: Vec<_> = (0..40).map(|_| std::thread::spawn(move || socks5(home, target))).collect();
    eventually("the exclusion of the slow member", || (group.pool(1, "slow") == true).then_some(()));
    let exact = Duration::from_millis(750)..=Duration::from_millis(1000);
    assert_within(begun.elapsed(), exact, Duration::from_millis(750)..=TEST_TIMEOUT);
    let begun = Instant::now();
    let before = group.sessions()[1];
    let mut later = group.open(target, 40);
    later.iter_mut().for_each(assert_echo);
    assert_within(begun.elapsed(), Duration::ZERO..=Duration::from_millis(10), Duration::ZERO..=Duration::from_secs(5));
    assert_eq!(group.sessions()[1], before);
    eventually("the metric of the slow member", || (group.metric("ekiden_relay_slow", 1) == Some(1)).then_some(()));
    stopped.signal("CONT");
    sessions.iter_mut().for_each(assert_echo);
    waiting.into_iter().for_each(|waiting| assert!(join(waiting).is_ok()));
}

/// The responses of member 3 take 100 ms, and those of the others 5 ms.
#[test]
fn slow_member_is_excluded_until_its_latency_falls() {
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = Arc::clone(&slow);
    let group = Group::with_dialled_addresses(4, "least", move |at, address| {
        let is_slow = Arc::clone(&is_slow);
        start_interceptor(address, Framed::Plain, move |frame| {
            let delay = Duration::from_millis(if at == 3 && is_slow.load(Ordering::Relaxed) { 100 } else { 5 });
            if frame.direction == Direction::Down {
                pause_until(Instant::now() + delay);
            }
            forward_unchanged(frame)
        })
    });
    let target = echo_server();
    slow.store(true, Ordering::Relaxed);
    eventually("the exclusion of the slow member", || {
        let _sessions = group.open(target, 4);
        (group.pool(3, "slow") == true).then_some(())
    });
    eventually("the end of all sessions", || (group.sessions() == [0; 4]).then_some(()));
    let _sessions = group.open(target, 40);
    assert_eq!(group.sessions()[3], 0, "{:?}", group.sessions());
    slow.store(false, Ordering::Relaxed);
    // The member gets only probes until the average of the probe latencies has fallen.
    eventually("the return of the member", || {
        let _more = group.open(target, 4);
        (group.sessions()[3] > 0).then_some(())
    });
}

#[test]
fn clients_keep_their_member_unless_the_member_is_killed() {
    let mut group = Group::with_members(4, "client");
    let target = echo_server();
    // 64 clients miss one of the four members with a probability of 4 * 0.75^64, which is 4e-8.
    let clients: Vec<IpAddr> = (1..=64).map(|number| Ipv4Addr::new(127, 0, 1, number).into()).collect();
    let first: Vec<usize> = clients.iter().map(|client| group.member_of(*client, target)).collect();
    assert_eq!(BTreeSet::from_iter(first.clone()).len(), 4, "{first:?}");
    assert_eq!(clients.iter().map(|client| group.member_of(*client, target)).collect::<Vec<_>>(), first);
    group.kill(0);
    for (client, first) in clients.iter().zip(first) {
        let at = group.member_of(*client, target);
        assert!(at != 0 && (at == first || first == 0), "{client}: {first} and then {at}");
    }
}
