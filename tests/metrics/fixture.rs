//! A home relay with path selection, a relay behind it and an HTTP proxy; parsed scrapes of `/metrics`; and endless
//! streams.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;

use super::harness::*;
use super::relays::*;

/// Session limit of the home relay.
pub const PLACES: usize = 12;

pub struct Fixture {
    pub home: Relay,
    pub far: Relay,
    pub proxy: Relay,
    _sites: [Site; 2],
}

impl Fixture {
    /// Starts the relays, without traffic.
    pub fn new() -> Self {
        let sites = [Site::new(), Site::new()];
        let [near, beyond] = &sites;
        let peers = beyond.admit(&[(&near.key.public, "home")]);
        let far = beyond.relay("", &format!("peers = {peers:?}\n"));
        let settings = format!(
            "{}[[route]]\npath = \"auto\"\n[limits]\nsessions = {PLACES}\n[[interface]]\nname = \"lo\"\n\
             rate = \"10Gbit/s\"\n[traces]\nendpoint = \"http://{}\"\n",
            beyond.table("osaka", ""),
            unused_address()
        );
        let home = near.home(&settings, AUTO);
        Self { home, far, proxy: Relay::listen(&["http://127.0.0.1:0"]), _sites: sites }
    }

    /// Starts the relays and generates all kinds of traffic: downloads, HTTP requests, a refused connection, an
    /// exhausted session limit and a reload.
    pub fn busy() -> Self {
        let mut fixture = Self::new();
        let file = data_server(400_000);
        for _ in 0..4 {
            fixture.download(file);
        }
        // The kernel counts the sending time of a socket in ticks of up to 10 ms, and a download may end within one
        // tick.
        eventually("a section with a sending time", || {
            fixture.download(file);
            (Scrape::of(&fixture.home).sum("ekiden_section_rwnd_limited_ratio_count", &[]) > 0.0).then_some(())
        });
        fixture.send_requests();
        assert_eq!(socks5(fixture.home.address(), unused_address()).map(drop), Err(5));
        fixture.exhaust_session_limit();
        fixture.home.signal("HUP");
        fixture.home.next(|event| event["event"] == "reloaded");
        fixture
    }

    fn download(&mut self, from: SocketAddr) {
        let mut client = socks5(self.home.address(), from).expect("a tunnel");
        client.write_all(b"?").unwrap();
        assert_eq!(read_all(&mut client).len(), 400_000);
        drop(client);
        session_closed(&mut self.home);
    }

    /// Sends two requests to the forward proxy, on one connection.
    fn send_requests(&self) {
        let origin = serve(|mut stream| {
            while stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
                read_head(&mut stream);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage").unwrap();
            }
        });
        let mut client = self.proxy.connect();
        for _ in 0..2 {
            write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
            assert_eq!(read_exactly(&mut client, 4), b"page");
        }
    }

    fn exhaust_session_limit(&mut self) {
        let clients: Vec<TcpStream> = (0..=PLACES).map(|_| self.home.connect()).collect();
        self.home.next(|event| event["event"] == "accept_paused");
        drop(clients);
        self.home.next(|event| event["event"] == "accept_resumed");
    }
}

/// Starts a server that sends `bytes` bytes after the first byte from the client.
pub fn data_server(bytes: usize) -> SocketAddr {
    let sent = pattern(bytes);
    serve(move |mut stream| {
        if stream.read(&mut [0]).is_ok() {
            let _ = stream.write_all(&sent);
        }
    })
}

pub struct Scrape(pub String);

impl Scrape {
    pub fn of(relay: &Relay) -> Self {
        let text = relay.ask("/metrics");
        assert!(text.ends_with("# EOF\n"), "{text}");
        Self(text)
    }

    /// Returns the value of each series. A series is a metric name with labels.
    pub fn lines(&self) -> BTreeMap<&str, f64> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let split = lines.map(|line| line.rsplit_once(' ').expect("a value"));
        split.map(|(series, value)| (series, value.parse().expect("a number"))).collect()
    }

    /// Returns the metric names of all series.
    pub fn names(&self) -> BTreeSet<&str> {
        self.lines().into_keys().map(|series| series.split('{').next().unwrap()).collect()
    }

    /// Returns the sum over all series of metric `name` whose labels include all of `labels`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let lines = self.lines().into_iter().filter(|(series, _)| {
            let (found, rest) = series.split_once('{').unwrap_or((series, ""));
            found == name && labels.iter().all(|label| rest.contains(label))
        });
        lines.map(|(_, value)| value).sum()
    }
}

/// Waits until the sum of these series satisfies `wanted`, and returns the sum.
pub fn wait_metric(relay: &Relay, name: &str, labels: &[&str], wanted: impl Fn(f64) -> bool) -> f64 {
    eventually(&format!("{name} {labels:?}"), || Some(Scrape::of(relay).sum(name, labels)).filter(|sum| wanted(*sum)))
}

/// Returns whether the value of a series equals a count.
pub fn equals(value: f64, count: u32) -> bool {
    (value - f64::from(count)).abs() < 0.5
}

/// Writes until the receiver closes. The thread returns the number of written bytes.
pub fn flood(mut to: TcpStream) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let piece = pattern(16 * 1024);
        let mut sent = 0;
        while let Ok(count) = to.write(&piece) {
            sent += count as u64;
        }
        let _ = to.shutdown(Shutdown::Both);
        sent
    })
}

/// Reads until the sender closes.
pub fn drain(mut from: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || while from.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {})
}
