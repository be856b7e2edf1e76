//! The delay of UDP queries of a SOCKS5 client through two further relays: one round trip of the path.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "udp/client.rs"]
mod client;
#[path = "harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "sections/relays.rs"]
mod relays;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use client::*;
use harness::*;
use relays::*;

/// Delay of each section, in each direction.
const DELAY: Duration = Duration::from_millis(40);

/// Delay of two sections in both directions.
const ROUND_TRIP: Duration = Duration::from_millis(4 * 40);

/// Permitted excess in virtual time.
const EXCESS: Duration = Duration::from_millis(1);

/// Permitted excess in real time, for a loaded machine.
const MARGIN: Duration = Duration::from_secs(2);

/// Starts a forwarder to `to` that delays the bytes of both directions by [`DELAY`]. Returns its address.
fn delayed(to: SocketAddr) -> SocketAddr {
    serve(move |down| {
        let Ok(up) = TcpStream::connect(to) else { return };
        for stream in [&down, &up] {
            stream.set_nodelay(true).unwrap();
        }
        let (from, to) = (down.try_clone().unwrap(), up.try_clone().unwrap());
        let thread = std::thread::spawn(|| delay(from, to));
        delay(up, down);
        join(thread);
    })
}

/// Forwards the bytes of one direction, [`DELAY`] after their arrival.
fn delay(mut from: TcpStream, mut to: TcpStream) {
    let (sender, arrived) = channel::<(Instant, Vec<u8>)>();
    let writer = std::thread::spawn(move || {
        for (at, bytes) in arrived {
            pause_until(at + DELAY);
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let _ = sender.send((Instant::now(), bytes[..count].to_vec()));
    }
    drop(sender);
    join(writer);
}

/// Starts a home relay and a path of two further relays behind delayed sections. `connect` is the mode of the client's
/// listener.
fn chain(connect: &str) -> (Relay, [Relay; 2]) {
    let sites: Vec<Site> = (0..3).map(|_| Site::new()).collect();
    let second = sites[2].relay("", "allow_open = true\n");
    let next_relays = sites[2].table_at(delayed(sites[2].address), "second", "");
    let first = sites[1].relay(&next_relays, "allow_open = true\n");
    let next_relays = sites[1].table_at(delayed(sites[1].address), "first", "");
    let way = route_all_through("way", &["first".to_owned(), "second".to_owned()]);
    let tables = next_relays + &sites[2].table("second", "");
    let home = sites[0].home(&(tables + &way), &format!("{AUTO}connect = \"{connect}\"\n"));
    for relay in [&home, &first] {
        eventually("ready sections", || (metric_sum(relay, "ekiden_ready{", "") >= 1).then_some(()));
    }
    (home, [first, second])
}

fn assert_one_round_trip(client: &Client, server: SocketAddr) {
    let asked = Instant::now();
    client.assert_echo(server, b"query");
    let took = asked.elapsed();
    assert_within(took, ROUND_TRIP..=ROUND_TRIP + EXCESS, ROUND_TRIP..=ROUND_TRIP + MARGIN);
}

#[test]
fn a_query_takes_one_round_trip_of_the_path() {
    let server = udp_echo_server("127.0.0.1");
    let (home, _relays) = chain("strict");
    let client = Client::new(home.address());
    for _ in 0..3 {
        assert_one_round_trip(&client, server);
    }
}

/// In early mode the first datagram follows OPEN without waiting for a response, on each section.
#[test]
fn first_query_in_early_mode_takes_one_round_trip() {
    let server = udp_echo_server("127.0.0.1");
    let (home, _relays) = chain("early");
    assert_one_round_trip(&Client::new(home.address()), server);
}
