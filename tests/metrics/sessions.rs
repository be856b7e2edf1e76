//! Metrics of open and closed sessions and of their sections. The number of series does not grow with clients or
//! targets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Instant;

use super::fixture::*;
use super::harness::*;
use super::relays::*;

const LISTENER_LABEL: &str = "listener=\"door\"";

fn home() -> (Site, Relay) {
    let site = Site::new();
    let home = site.home("", AUTO);
    (site, home)
}

#[test]
fn session_is_counted_while_open_and_after_close() {
    let (_site, mut home) = home();
    let (mut client, mut server) = pair(&home);
    client.write_all(b"question").unwrap();
    read_exactly(&mut server, 8);
    wait_metric(&home, "ekiden_sessions_open", &[LISTENER_LABEL], |open| equals(open, 1));
    server.write_all(&pattern(1000)).unwrap();
    read_exactly(&mut client, 1000);
    drop((client, server));
    let closed = session_closed(&mut home);
    let scrape = Scrape::of(&home);
    for (name, labels, count) in [
        ("ekiden_sessions_open", [LISTENER_LABEL, ""], 0),
        ("ekiden_sessions_accepted_total", [LISTENER_LABEL, ""], 1),
        ("ekiden_sessions_closed_total", [LISTENER_LABEL, "reason=\"finished\""], 1),
        ("ekiden_bytes_total", [LISTENER_LABEL, "direction=\"up\""], 8),
        ("ekiden_bytes_total", [LISTENER_LABEL, "direction=\"down\""], 1000),
        ("ekiden_connect_seconds_count", [LISTENER_LABEL, ""], 1),
        ("ekiden_first_byte_seconds_count", [LISTENER_LABEL, ""], 1),
        ("ekiden_section_rtt_seconds_count", ["section=\"down\"", "at=\"end\""], 1),
        ("ekiden_section_rtt_seconds_count", ["section=\"up\"", "at=\"end\""], 1),
    ] {
        assert!(equals(scrape.sum(name, &labels), count), "{name} {labels:?} is not {count} in\n{}", scrape.0);
    }
    // The closing event in the log has the same values.
    let seconds = |key: &str| closed[key].as_f64().unwrap_or_else(|| panic!("no {key} in {closed}"));
    assert!(
        (scrape.sum("ekiden_first_byte_seconds_sum", &[LISTENER_LABEL]) - seconds("first_byte_seconds")).abs() < 1e-6
    );
    assert!(seconds("first_byte_seconds") >= seconds("connect_seconds"), "{closed}");
    assert!(seconds("handshake_seconds") + seconds("first_byte_seconds") <= seconds("seconds"), "{closed}");
}

/// The client does not read until the metric shows queued bytes.
#[test]
fn queued_bytes_and_stalls_of_a_slow_client_are_reported() {
    let (_site, mut home) = home();
    let begun = Instant::now();
    let (mut client, server) = pair(&home);
    let queued = |direction: &str, wanted: fn(f64) -> bool| {
        wait_metric(&home, "ekiden_queued_bytes", &[LISTENER_LABEL, &format!("direction=\"{direction}\"")], wanted)
    };
    let sending = flood(server);
    let waits = queued("down", |bytes| bytes > 100_000.0);
    assert!(equals(queued("up", |_| true), 0), "the client sends no bytes");

    let mut read = vec![0; 1 << 20];
    let mut count = 0;
    while count < 20 << 20 {
        count += client.read(&mut read).unwrap();
    }
    let direction = "direction=\"down\"";
    let stalled = wait_metric(&home, "ekiden_stalled_seconds_total", &[direction], |seconds| seconds > 0.0);
    let elapsed = begun.elapsed().as_secs_f64();
    assert!(stalled <= elapsed, "a stall of {stalled} s in {elapsed} s");
    drop(client);
    let sent = join(sending);
    assert!(sent >= 20 << 20);
    assert!(waits <= sent as f64, "{waits} bytes waited, and the server has sent {sent} in all");
    session_closed(&mut home);
    assert!(equals(Scrape::of(&home).sum("ekiden_queued_bytes", &[]), 0), "bytes remain queued");
}

#[test]
fn running_sections_are_sampled() {
    let (_site, home) = home();
    let (client, server) = pair(&home);
    let sending = flood(server);
    let draining = drain(client.try_clone().unwrap());
    for section in ["down", "up"] {
        let labels = [format!("section=\"{section}\""), "at=\"running\"".to_owned()];
        let labels = [labels[0].as_str(), labels[1].as_str()];
        wait_metric(&home, "ekiden_section_rtt_seconds_count", &labels, |count| count >= 1.0);
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
    assert!(busy("down") > busy("up"), "all bytes flow downstream: {} and {}", busy("down"), busy("up"));
    client.shutdown(std::net::Shutdown::Both).unwrap();
    join(draining);
    drop(client);
    join(sending);
}

const MANY: u16 = 1000;

/// Runs a session from the loopback address `from` to the server at `to`.
fn session(home: SocketAddr, from: Ipv4Addr, to: SocketAddr) {
    let mut stream = socks5_from(from, home, to).expect("a tunnel");
    stream.write_all(b"?").unwrap();
    assert_eq!(read_exactly(&mut stream, 1), b"!");
}

#[test]
fn series_count_does_not_grow_with_clients_or_targets() {
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
    let run_session = |number: u16| {
        let [high, low] = number.to_be_bytes();
        session(home.address(), Ipv4Addr::new(127, 3, high, low), (Ipv4Addr::new(127, 4, high, low), port).into());
    };
    let ended = |count: u32| {
        wait_metric(&home, "ekiden_sessions_closed_total", &["reason=\"finished\""], move |ended| equals(ended, count));
        Scrape::of(&home)
    };
    run_session(1);
    let before = ended(1).lines().len();
    (2..=MANY).for_each(run_session);
    let after = ended(u32::from(MANY));
    // Series of sections may appear after the first session. One series for each client would add 999.
    assert!(after.lines().len() < before + 200, "{} lines, and {before} before", after.lines().len());
    assert!(after.lines().len() < 1000, "{}", after.0);
    // Values are not searched: the digits of a port may occur by chance in a sum of seconds.
    let forbidden = ["127.".to_owned(), format!(":{port}"), format!("\"{port}\"")];
    let leaked: Vec<&str> =
        after.lines().into_keys().filter(|series| forbidden.iter().any(|s| series.contains(s))).collect();
    assert_eq!(leaked, [""; 0]);
}
