//! Ready connections: dialled ahead of need, used by one session at a time, limited in number and age, and never the
//! cause of a failed session.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::*;
use crate::interceptor::*;
use crate::relays::*;

/// A home relay and a relay, with an interceptor between them that counts connections and records the connection of
/// each session.
struct CountingPair {
    chain: Chain,
    hellos: Arc<Mutex<usize>>,
    openings: Arc<Mutex<Vec<usize>>>,
    /// Kinds of the hellos to the relay: 0 for a full handshake, 4 for a resumed handshake.
    kinds: Arc<Mutex<Vec<u8>>>,
}

impl CountingPair {
    fn new(settings: &str) -> Self {
        Self::with(settings, "")
    }

    /// `at_far` are settings of the relay.
    fn with(settings: &str, at_far: &str) -> Self {
        let (hellos, openings) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        let kinds = Arc::new(Mutex::new(Vec::new()));
        let (hello_count, opening_list, kind_list) = (Arc::clone(&hellos), Arc::clone(&openings), Arc::clone(&kinds));
        let count = move |frame: Frame| {
            match (frame.direction, frame.number) {
                // A connection is ready when its handshake is answered.
                (Direction::Down, 0) => *hello_count.lock().unwrap() += 1,
                (Direction::Up, 0) => kind_list.lock().unwrap().push(frame.bytes[7]),
                (Direction::Up, 1) => opening_list.lock().unwrap().push(frame.connection),
                _ => {}
            }
            forward_unchanged(frame)
        };
        let layout = Layout { home: settings.to_owned(), far: at_far.to_owned(), ..Layout::default() };
        let chain = layout.start_through(|address| start_interceptor(address, Framed::Plain, count));
        Self { chain, hellos, openings, kinds }
    }

    fn hellos(&self) -> usize {
        *self.hellos.lock().unwrap()
    }

    /// Opens a session to `target` through both relays.
    fn session(&self, target: SocketAddr) -> TcpStream {
        let mut session = socks5(self.chain.home.address(), target).unwrap();
        assert_echo(&mut session);
        session
    }
}

/// A session takes a connection that was dialled before the session began.
#[test]
fn sessions_use_ready_connections() {
    let pair = CountingPair::new("");
    let target = echo_server();
    // The sessions stay open, so that no session reuses the connection of an earlier one.
    let mut sessions = vec![pair.session(target)];
    for session in 1..=10 {
        let used = pair.openings.lock().unwrap().len();
        eventually("a ready connection", || (pair.hellos() > used).then_some(()));
        // The hello is counted before the home relay has received it.
        eventually("the ready connection at the home relay", || {
            let ready = pair.chain.home.metric("ekiden_ready{relay=\"relay-1\"}");
            ready.is_some_and(|ready| ready > 0).then_some(())
        });
        let made = pair.hellos();
        sessions.push(pair.session(target));
        let openings = pair.openings.lock().unwrap();
        assert_eq!(openings.len(), session + 1, "one session, one OPEN");
        assert!(openings[session] < made, "session {session} waited for a connection of its own: {openings:?}, {made}");
    }
}

/// Tickets shorten later handshakes, until the relay restarts and loses its ticket key. No session fails because the
/// key is lost.
#[test]
fn later_handshakes_are_resumed_until_the_relay_restarts() {
    let mut pair = CountingPair::new("");
    let target = echo_server();
    let wait_resumed = |pair: &CountingPair| {
        // The sessions stay open, so that each needs another connection.
        let mut sessions = Vec::new();
        eventually("a short handshake", || {
            sessions.push(pair.session(target));
            (pair.kinds.lock().unwrap().last() == Some(&4)).then_some(())
        });
    };
    wait_resumed(&pair);
    assert_eq!(pair.kinds.lock().unwrap()[0], 0, "the first handshake is not a full one");
    let relay = &mut pair.chain.relays[0];
    relay.signal("KILL");
    relay.exit_code();
    let before = pair.kinds.lock().unwrap().len();
    *relay = Layout::default().relay(&pair.chain.sites, 1);
    wait_resumed(&pair);
    assert!(pair.kinds.lock().unwrap()[before..].contains(&0), "no full handshake after the restart of the relay");
}

/// After a reload with another key, a relay must not accept tickets of the previous key. Regression: for an hour, such
/// a ticket opened connections for a caller that is configured with the previous key.
#[test]
fn ticket_of_a_replaced_key_is_stale() {
    // Kinds of the hellos up and down, by connection: 4 up has a ticket, 5 down means that the ticket is stale.
    let hellos = Arc::new(Mutex::new(Vec::<[Option<u8>; 2]>::new()));
    let recorded = Arc::clone(&hellos);
    let record = move |frame: Frame| {
        if frame.number == 0 && frame.bytes.len() > 7 {
            let mut recorded = recorded.lock().unwrap();
            let all = recorded.len().max(frame.connection + 1);
            recorded.resize(all, [None; 2]);
            recorded[frame.connection][usize::from(frame.direction == Direction::Down)] = Some(frame.bytes[7]);
        }
        forward_unchanged(frame)
    };
    let mut chain = Layout::default().start_through(|address| start_interceptor(address, Framed::Plain, record));
    let target = echo_server();
    // The kind of the answer to the first hello with a ticket, from connection number `from` on.
    let answer_since = |from: usize| {
        let mut sessions = Vec::new();
        eventually("a hello with a ticket", || {
            // A session that stays open keeps its connection, so that the next session needs another connection.
            sessions.extend(socks5(chain.home.address(), target));
            let hellos = hellos.lock().unwrap();
            let mut since = hellos.iter().skip(from).filter(|[up, _]| *up == Some(4));
            since.find_map(|[_, down]| *down)
        })
    };
    assert_eq!(answer_since(0), 0);
    let (site, relay, other) = (&chain.sites[1], &mut chain.relays[0], Key::new());
    let file = site.folder.0.join("ekiden.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(site.key.file.to_str().unwrap(), other.file.to_str().unwrap())).unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    relay.sessions();
    let from = hellos.lock().unwrap().len();
    assert_eq!(answer_since(from), 5, "the ticket was accepted for another key");
}

/// A connection carries one session at a time.
#[test]
fn concurrent_sessions_use_separate_connections() {
    let pair = CountingPair::new("");
    let target = echo_server();
    let mut sessions: Vec<_> = (0..30).map(|_| socks5(pair.chain.home.address(), target).unwrap()).collect();
    sessions.iter_mut().for_each(assert_echo);
    let mut openings = pair.openings.lock().unwrap().clone();
    openings.sort_unstable();
    openings.dedup();
    assert_eq!(openings.len(), 30);
}

/// After a burst of sessions at most the configured number of ready connections remains.
#[test]
fn ready_connections_are_bounded() {
    let pair = CountingPair::new("[limits]\nready_connections = 2\n");
    let target = echo_server();
    let home = &pair.chain.home;
    let mut clients: Vec<_> = (0..40).map(|_| socks5(home.address(), target).unwrap()).collect();
    clients.iter_mut().for_each(assert_echo);
    drop(clients);
    eventually("the end of all sessions", || home.sessions().is_empty().then_some(()));
    let address = pair.chain.sites[1].address;
    eventually("the close of the unused connections", || (connections_to(address) <= 2).then_some(()));
    pair.session(target);
    eventually("the close of the unused connections", || (connections_to(address) <= 2).then_some(()));
}

/// Regression: the handshake timeout also limited the time until OPEN on a ready connection, because the parsed bytes
/// of the hello still counted as unread.
#[test]
fn ready_connections_outlive_the_handshake_timeout() {
    let mut pair = CountingPair::with("", "[timeouts]\nhandshake = \"600ms\"\n");
    let made = eventually("ready connections", || Some(pair.hellos()).filter(|made| *made >= 2));
    // More than three handshake timeouts. The passage of time is tested, so there is no event to wait for.
    pause_until(Instant::now() + Duration::from_secs(2));
    assert_eq!(pair.hellos(), made, "ready connections were dialled again");
    pair.session(echo_server());
    assert_eq!(pair.chain.relays[0].closed()["end"], "finished", "an unused connection was logged as a session");
}

/// Regression, with the same cause as above: the shutdown waited for ready connections.
#[test]
fn ready_connections_do_not_delay_shutdown() {
    let mut pair = CountingPair::new("");
    eventually("ready connections", || (pair.hellos() >= 2).then_some(()));
    let asked = Instant::now();
    pair.chain.relays[0].signal("TERM");
    assert_eq!(pair.chain.relays[0].exit_code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

/// Ready connections older than `ready_age` are closed, and later sessions succeed.
#[test]
fn aged_ready_connections_are_closed() {
    let pair = CountingPair::new("[timeouts]\nready_age = \"100ms\"\n");
    let (target, address) = (echo_server(), pair.chain.sites[1].address);
    // The sessions stay open, so that only ready connections are closed. A connection is established before its hello.
    let closed = || pair.hellos().saturating_sub(connections_to(address));
    let mut sessions = vec![pair.session(target)];
    for count in 1..=2 {
        eventually("the close of an old connection", || (closed() >= count).then_some(()));
        sessions.push(pair.session(target));
    }
}

/// Relays behind the next relay do not admit the key of the home relay, so they would log its dial as unauthenticated.
#[test]
fn only_next_relays_are_dialled() {
    let mut chain = Chain::start(2);
    let target = echo_server();
    for _ in 0..5 {
        assert_echo(&mut socks5(chain.home.address(), target).unwrap());
    }
    chain.relays[1].signal("TERM");
    let unknown = |event: &&serde_json::Value| event["end"] == "unauthenticated";
    assert_eq!(chain.relays[1].remaining_events().iter().filter(unknown).count(), 0, "dialled by the home relay");
}

#[test]
fn metrics_count_pool_results_and_dials() {
    let chain = Chain::start(1);
    let target = echo_server();
    for _ in 0..10 {
        assert_echo(&mut socks5(chain.home.address(), target).unwrap());
    }
    let count = |metric: &str, result: &str| metric_sum(&chain.home, metric, &format!("result=\"{result}\""));
    let taken = "ekiden_ready_connections_total";
    assert_eq!(["reused", "hit", "miss", "stale"].map(|result| count(taken, result)).iter().sum::<usize>(), 10);
    eventually("a dial ahead of need", || (count("ekiden_ready_dials_total", "ok") > 0).then_some(()));
}
