//! Ready connections: made before they are needed, used once, bounded, aged, and never the reason of a failure.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::between::*;
use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A home relay and a relay, with a counter of connections in between, which also records the connection of each
/// session.
struct Counted {
    home: Relay,
    relay: Relay,
    sites: [Site; 2],
    hellos: Arc<Mutex<usize>>,
    openings: Arc<Mutex<Vec<usize>>>,
    /// The kinds of the hellos up: 0 for a first handshake, 4 between acquaintances.
    kinds: Arc<Mutex<Vec<u8>>>,
    peers: std::path::PathBuf,
}

impl Counted {
    fn new(settings: &str) -> Self {
        Self::with(settings, "")
    }

    /// `at_far` are settings of the relay.
    fn with(settings: &str, at_far: &str) -> Self {
        let (site, home) = (Site::new(), Site::new());
        let peers = site.admit(&[(&home.key.public, "home")]);
        let relay = site.relay(at_far, &format!("peers = {peers:?}\n"));
        let (hellos, openings) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        let kinds = Arc::new(Mutex::new(Vec::new()));
        let (counted, noted, heard) = (Arc::clone(&hellos), Arc::clone(&openings), Arc::clone(&kinds));
        let middle = between(site.address, Framed::Plain, move |frame| {
            match (frame.way, frame.number) {
                // A connection is ready when its handshake is answered.
                (Way::Down, 0) => *counted.lock().unwrap() += 1,
                (Way::Up, 0) => heard.lock().unwrap().push(frame.bytes[7]),
                (Way::Up, 1) => noted.lock().unwrap().push(frame.connection),
                _ => {}
            }
            untouched(frame)
        });
        let settings =
            format!("{settings}{}{}", site.table_at(middle, "far", ""), everything_by("way", &["far".to_owned()]));
        Self { home: home.home(&settings, AUTO), relay, sites: [site, home], hellos, openings, kinds, peers }
    }

    fn hellos(&self) -> usize {
        *self.hellos.lock().unwrap()
    }
}

/// The point of it all: a session finds its connection made.
#[test]
fn a_session_goes_by_a_connection_that_stood_ready() {
    let counted = Counted::new("");
    let target = parrot();
    // The sessions go on, so that none leaves its connection to the next one.
    let mut sessions = vec![socks5(counted.home.address(), target).unwrap()];
    echoes(&mut sessions[0]);
    for session in 1..=10 {
        let used = counted.openings.lock().unwrap().len();
        eventually("a ready connection", || (counted.hellos() > used).then_some(()));
        // Its hello is counted before home has it.
        eventually("it at home", || {
            let metrics = counted.home.ask("/metrics");
            let ready = metrics.lines().find_map(|line| line.strip_prefix("ekiden_ready{relay=\"far\"} "));
            ready.is_some_and(|ready| ready != "0").then_some(())
        });
        let made = counted.hellos();
        sessions.push(socks5(counted.home.address(), target).unwrap());
        echoes(&mut sessions[session]);
        let openings = counted.openings.lock().unwrap();
        assert_eq!(openings.len(), session + 1, "one session, one OPEN");
        assert!(openings[session] < made, "session {session} waited for a connection of its own: {openings:?}, {made}");
    }
}

/// One handshake shortens the next ones, until the relay restarts and loses its ticket key: no session fails by that.
#[test]
fn relays_that_have_met_greet_each_other_the_short_way() {
    let mut counted = Counted::new("");
    let target = parrot();
    let greeted_again = |counted: &Counted| {
        // The sessions go on, so that each needs another connection.
        let mut sessions = Vec::new();
        eventually("a short handshake", || {
            let mut session = socks5(counted.home.address(), target).unwrap();
            echoes(&mut session);
            sessions.push(session);
            (counted.kinds.lock().unwrap().last() == Some(&4)).then_some(())
        });
    };
    greeted_again(&counted);
    assert_eq!(counted.kinds.lock().unwrap()[0], 0, "the first handshake is the long one");
    counted.relay.signal("KILL");
    counted.relay.exit_code();
    let before = counted.kinds.lock().unwrap().len();
    counted.relay = counted.sites[0].relay("", &format!("peers = {:?}\n", counted.peers));
    greeted_again(&counted);
    assert!(counted.kinds.lock().unwrap()[before..].contains(&0), "a relay that has restarted remembers nobody");
}

/// A relay that has another key after a reload is another one. A ticket that was given out in the name of the key before
/// opened connections for an hour, to a caller that is configured for that key.
#[test]
fn a_ticket_of_a_key_that_was_changed_is_stale() {
    let (site, home, other) = (Site::new(), Site::new(), Key::new());
    let entrance = format!("peers = {:?}\n", site.admit(&[(&home.key.public, "home")]));
    let mut relay = site.relay("", &entrance);
    // The kinds of hellos, up and down, by connection: 4 up is one with a ticket, 5 down is "stale".
    let hellos = Arc::new(Mutex::new(Vec::<[Option<u8>; 2]>::new()));
    let heard = Arc::clone(&hellos);
    let middle = between(site.address, Framed::Plain, move |frame| {
        if frame.number == 0 && frame.bytes.len() > 7 {
            let mut heard = heard.lock().unwrap();
            let all = heard.len().max(frame.connection + 1);
            heard.resize(all, [None; 2]);
            heard[frame.connection][usize::from(frame.way == Way::Down)] = Some(frame.bytes[7]);
        }
        untouched(frame)
    });
    let settings = site.table_at(middle, "far", "") + &everything_by("way", &["far".to_owned()]);
    let (home, target) = (home.home(&settings, AUTO), parrot());
    // The answer to the first hello with a ticket since connection number `from`.
    let answer_since = |from: usize| {
        let mut sessions = Vec::new();
        eventually("a hello with a ticket", || {
            // A session that goes on keeps its connection, so that another one is made.
            sessions.extend(socks5(home.address(), target));
            let hellos = hellos.lock().unwrap();
            let mut since = hellos.iter().skip(from).filter(|[up, _]| *up == Some(4));
            since.find_map(|[_, down]| *down)
        })
    };
    assert_eq!(answer_since(0), 0);
    let file = site.write("", &entrance);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(site.key.file.to_str().unwrap(), other.file.to_str().unwrap())).unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    relay.sessions();
    let from = hellos.lock().unwrap().len();
    assert_eq!(answer_since(from), 5, "the ticket was good for another key");
}

/// A connection carries one session at a time.
#[test]
fn sessions_at_once_have_a_connection_each() {
    let counted = Counted::new("");
    let target = parrot();
    let mut sessions: Vec<_> = (0..30).map(|_| socks5(counted.home.address(), target).unwrap()).collect();
    sessions.iter_mut().for_each(echoes);
    let mut openings = counted.openings.lock().unwrap().clone();
    openings.sort_unstable();
    openings.dedup();
    assert_eq!(openings.len(), 30);
}

/// After a rush there are as many ready connections as allowed, and no more.
#[test]
fn ready_connections_are_bounded() {
    let counted = Counted::new("[limits]\nready_connections = 2\n");
    let target = parrot();
    let mut clients: Vec<_> = (0..40).map(|_| socks5(counted.home.address(), target).unwrap()).collect();
    clients.iter_mut().for_each(echoes);
    drop(clients);
    eventually("all to be over", || counted.home.sessions().is_empty().then_some(()));
    let address = counted.sites[0].address;
    eventually("the rest to be closed", || (connections_to(address) <= 2).then_some(()));
    echoes(&mut socks5(counted.home.address(), target).unwrap());
    eventually("the rest to be closed", || (connections_to(address) <= 2).then_some(()));
}

/// Found by these tests: a ready connection got no more time for its OPEN than for its hello, because parsed bytes of
/// the hello still counted as unread.
#[test]
fn a_connection_may_wait_longer_than_a_handshake_takes() {
    let mut counted = Counted::with("", "[timeouts]\nhandshake = \"600ms\"\n");
    let made = eventually("ready connections", || Some(counted.hellos()).filter(|made| *made >= 2));
    // Time itself is under test: more than three handshakes may take.
    pause_until(Instant::now() + Duration::from_secs(2));
    assert_eq!(counted.hellos(), made, "they were made again");
    echoes(&mut socks5(counted.home.address(), parrot()).unwrap());
    assert_eq!(counted.relay.closed()["end"], "finished", "an unused connection is no session");
}

/// The same bug: they were waited for.
#[test]
fn connections_that_wait_do_not_hold_up_the_end() {
    let mut counted = Counted::new("");
    eventually("ready connections", || (counted.hellos() >= 2).then_some(()));
    let asked = Instant::now();
    counted.relay.signal("TERM");
    assert_eq!(counted.relay.exit_code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

/// Connections that grew old are closed, and sessions that come afterwards do not notice.
#[test]
fn old_connections_are_replaced() {
    let counted = Counted::new("[timeouts]\nready_age = \"100ms\"\n");
    let target = parrot();
    for _ in 0..2 {
        echoes(&mut socks5(counted.home.address(), target).unwrap());
        let made = counted.hellos();
        // It is replaced by a new one, or none is kept because of low demand.
        eventually("the old one to go", || {
            (counted.hellos() > made || connections_to(counted.sites[0].address) == 0).then_some(())
        });
    }
}

/// The relays behind the next one are the next one's to call: they do not even know us.
#[test]
fn nobody_is_called_but_next_relays() {
    let mut chain = Chain::of(2);
    let target = parrot();
    for _ in 0..5 {
        echoes(&mut socks5(chain.home.address(), target).unwrap());
    }
    chain.relays[1].signal("TERM");
    let strangers = |event: &&serde_json::Value| event["end"] == "unauthenticated";
    assert_eq!(chain.relays[1].rest().iter().filter(strangers).count(), 0, "somebody called who was not asked to");
}

/// The operator's view of it.
#[test]
fn metrics_count_what_pools_do() {
    let chain = Chain::of(1);
    let target = parrot();
    for _ in 0..10 {
        echoes(&mut socks5(chain.home.address(), target).unwrap());
    }
    let count = |metric: &str, result: &str| metric_sum(&chain.home, metric, &format!("result=\"{result}\""));
    let taken = "ekiden_ready_connections_total";
    assert_eq!(["reused", "hit", "miss", "stale"].map(|result| count(taken, result)).iter().sum::<usize>(), 10);
    eventually("a dial ahead of need", || (count("ekiden_ready_dials_total", "ok") > 0).then_some(()));
}
