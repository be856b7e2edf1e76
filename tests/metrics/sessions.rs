//! Metrics of sessions and their sections, during and after; their number does not grow with clients or targets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use super::harness::*;
use super::relays::*;
use super::scene::*;

const DOOR: &str = "listener=\"door\"";

fn home() -> (Site, Relay) {
    let site = Site::new();
    let home = site.home("", AUTO);
    (site, home)
}

#[test]
fn a_session_is_counted_from_its_beginning_to_its_end() {
    let (_site, mut home) = home();
    let (mut client, mut server) = pair(&home);
    client.write_all(b"question").unwrap();
    read_exactly(&mut server, 8);
    until(&home, "ekiden_sessions_open", &[DOOR], |open| is(open, 1));
    server.write_all(&pattern(1000)).unwrap();
    read_exactly(&mut client, 1000);
    drop((client, server));
    let closed = session_closed(&mut home);
    let scrape = Scrape::of(&home);
    for (name, labels, count) in [
        ("ekiden_sessions_open", [DOOR, ""], 0),
        ("ekiden_sessions_accepted_total", [DOOR, ""], 1),
        ("ekiden_sessions_closed_total", [DOOR, "reason=\"finished\""], 1),
        ("ekiden_bytes_total", [DOOR, "direction=\"up\""], 8),
        ("ekiden_bytes_total", [DOOR, "direction=\"down\""], 1000),
        ("ekiden_connect_seconds_count", [DOOR, ""], 1),
        ("ekiden_first_byte_seconds_count", [DOOR, ""], 1),
        ("ekiden_section_rtt_seconds_count", ["section=\"down\"", "at=\"end\""], 1),
        ("ekiden_section_rtt_seconds_count", ["section=\"up\"", "at=\"end\""], 1),
    ] {
        assert!(is(scrape.sum(name, &labels), count), "{name} {labels:?} is not {count} in\n{}", scrape.0);
    }
    // The values in the log agree.
    let seconds = |key: &str| closed[key].as_f64().unwrap_or_else(|| panic!("no {key} in {closed}"));
    assert!((scrape.sum("ekiden_first_byte_seconds_sum", &[DOOR]) - seconds("first_byte_seconds")).abs() < 1e-6);
    assert!(seconds("first_byte_seconds") >= seconds("connect_seconds"), "{closed}");
    assert!(seconds("handshake_seconds") + seconds("first_byte_seconds") <= seconds("seconds"), "{closed}");
}

/// The client sends a request, and does not read for a while.
#[test]
fn what_waits_for_a_slow_client_is_seen_while_it_waits_and_counted_after() {
    let (_site, mut home) = home();
    let (mut client, server) = pair(&home);
    let queued = |direction: &str, wanted: fn(f64) -> bool| {
        until(&home, "ekiden_queued_bytes", &[DOOR, &format!("direction=\"{direction}\"")], wanted)
    };
    let sending = flood(server);
    let waits = queued("down", |bytes| bytes > 100_000.0);
    assert!(is(queued("up", |_| true), 0), "nobody sends that way");
    let stalled = |home: &Relay| Scrape::of(home).sum("ekiden_stalled_seconds_total", &["direction=\"down\""]);
    assert!(stalled(&home) < 10.0 && waits < 1e9);

    let mut read = vec![0; 1 << 20];
    let mut count = 0;
    while count < 20 << 20 {
        count += client.read(&mut read).unwrap();
    }
    eventually("the stall to be counted", || (stalled(&home) > 0.0).then_some(()));
    drop(client);
    assert!(join(sending) >= 20 << 20);
    session_closed(&mut home);
    assert!(is(Scrape::of(&home).sum("ekiden_queued_bytes", &[]), 0), "it waits for nobody");
}

#[test]
fn running_sections_are_looked_at_now_and_then() {
    let (_site, home) = home();
    let (client, server) = pair(&home);
    let sending = flood(server);
    let draining = drain(client.try_clone().unwrap());
    for section in ["down", "up"] {
        let labels = [format!("section=\"{section}\""), "at=\"running\"".to_owned()];
        let labels = [labels[0].as_str(), labels[1].as_str()];
        until(&home, "ekiden_section_rtt_seconds_count", &labels, |count| count >= 1.0);
        let scrape = Scrape::of(&home);
        for name in ["min_rtt_seconds", "window_segments", "busy_ratio"] {
            let count = scrape.sum(&format!("ekiden_section_{name}_count"), &labels);
            assert!(count >= 1.0, "no {name} of {section} in\n{}", scrape.0);
        }
    }
    let busy = |section: &str| {
        let labels = [format!("section=\"{section}\""), "at=\"running\"".to_owned()];
        let labels = [labels[0].as_str(), labels[1].as_str()];
        let scrape = Scrape::of(&home);
        let [sum, count] =
            ["sum", "count"].map(|part| scrape.sum(&format!("ekiden_section_busy_ratio_{part}"), &labels));
        sum / count
    };
    assert!(busy("down") > busy("up"), "all bytes go down: {} and {}", busy("down"), busy("up"));
    client.shutdown(std::net::Shutdown::Both).unwrap();
    join(draining);
    drop(client);
    join(sending);
}

const MANY: u16 = 1000;

/// A session from one loopback address to another.
fn session(home: SocketAddr, from: Ipv4Addr, to: SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&home.into()).unwrap();
    let mut stream: std::net::TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let SocketAddr::V4(to) = to else { panic!("IPv4 only") };
    let [high, low] = to.port().to_be_bytes();
    let [a, b, c, d] = to.ip().octets();
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, a, b, c, d, high, low]).unwrap();
    assert_eq!(read_exactly(&mut stream, 12)[3], 0, "a tunnel");
    stream.write_all(b"?").unwrap();
    assert_eq!(read_exactly(&mut stream, 1), b"!");
}

#[test]
fn a_thousand_clients_and_targets_add_no_line() {
    let site = Site::new();
    let home = site.home("", AUTO);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if stream.read(&mut [0]).is_ok() {
                let _ = stream.write_all(b"!");
            }
        }
    });
    let one = |number: u16| {
        let [high, low] = number.to_be_bytes();
        session(home.address(), Ipv4Addr::new(127, 3, high, low), (Ipv4Addr::new(127, 4, high, low), port).into());
    };
    let ended = |count: u32| {
        until(&home, "ekiden_sessions_closed_total", &["reason=\"finished\""], move |ended| is(ended, count));
        Scrape::of(&home)
    };
    one(1);
    let before = ended(1).lines().len();
    (2..=MANY).for_each(one);
    let after = ended(u32::from(MANY));
    // Metrics of sections may appear for the first time; a line for each client would add a thousand.
    assert!(after.lines().len() < before + 200, "{} lines, and {before} before", after.lines().len());
    assert!(after.lines().len() < 1000, "{}", after.0);
    // Labels only: the digits of a port may occur by chance in a sum of seconds.
    let telling = ["127.".to_owned(), format!(":{port}"), format!("\"{port}\"")];
    let told: Vec<&str> =
        after.lines().into_keys().filter(|series| telling.iter().any(|s| series.contains(s))).collect();
    assert_eq!(told, [""; 0]);
}
