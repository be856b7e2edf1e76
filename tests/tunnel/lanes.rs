//! Helpers that send pings and datagrams through lanes, and read the counters of lanes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::relays::RunningRelay;
use crate::sites::*;

/// Time that a test waits for the answer to a datagram before it sends another datagram.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the standard output of a program, whether the program succeeds or not.
pub fn stdout_of(host: &Host, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = host.inside(|| command.output()).expect("the program runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sends `count` pings, one every 20 milliseconds, and returns the number of answers.
pub fn pings(host: &Host, address: IpAddr, count: usize, more: &[&str]) -> usize {
    let (count, address) = (count.to_string(), address.to_string());
    let arguments = [&["-n", "-i", "0.02", "-W", "1", "-c", &count], more, &[address.as_str()]].concat();
    let text = stdout_of(host, "ping", &arguments);
    let (_, rest) = text.split_once("transmitted, ").unwrap_or_else(|| panic!("ping {arguments:?}: {text}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Sends pings until one is answered: the relay has to dial a lane first, and a packet may be lost.
pub fn wait_reachable(host: &Host, address: IpAddr) {
    eventually("an answer to a ping", || (pings(host, address, 1, &[]) == 1).then_some(()));
}

/// Sends `count` pings one after the other, and checks that each is answered within `TEST_TIMEOUT`. A lane drops packets
/// that have waited for more than 100 ms, which happens on a busy machine, so a ping that one of `boxes` has counted as
/// late is sent again; any other lost ping fails the test.
pub fn check_answered(boxes: &[&RunningRelay], host: &Host, address: IpAddr, count: usize, more: &[&str]) {
    let (time_limit, address) = (TEST_TIMEOUT.as_secs().to_string(), address.to_string());
    let arguments = [&["-n", "-c", "1", "-W", &time_limit], more, &[address.as_str()]].concat();
    for number in 1..=count {
        let label = &format!("ping {arguments:?}, number {number}");
        retry_if_late(label, boxes, || {
            let mut ping = start_ping(host, &arguments);
            move || {
                let status = ping.0.try_wait().unwrap()?;
                assert!(status.success(), "{label}: {status}");
                Some(())
            }
        });
    }
}

/// An echo request to `address`, with `more` arguments for ping(8).
pub struct Ping<'a> {
    pub host: &'a Host,
    pub address: IpAddr,
    pub more: &'a [&'a str],
}

/// Sends `count` pings, and checks that `running` drops each of them at `listener` for `reason`. A ping that one of
/// `boxes` has counted as late is sent again; an answered ping fails the test.
pub fn check_dropped(
    boxes: &[&RunningRelay],
    ping: &Ping<'_>,
    running: &RunningRelay,
    listener: &str,
    reason: &str,
    count: u64,
) {
    let Ping { host, address, more } = ping;
    let (time_limit, address) = (TEST_TIMEOUT.as_secs().to_string(), address.to_string());
    let arguments = [&["-n", "-c", "1", "-W", &time_limit], *more, &[address.as_str()]].concat();
    let first = dropped(running, listener, reason);
    for number in 1..=count {
        let label = &format!("drop number {number} of ping {arguments:?}, {reason}");
        retry_if_late(label, boxes, || {
            let mut ping = start_ping(host, &arguments);
            move || {
                let ended = ping.0.try_wait().unwrap();
                assert!(!ended.is_some_and(|status| status.success()), "{label}: the ping is answered");
                (dropped(running, listener, reason) == first + number).then_some(())
            }
        });
    }
    assert_eq!(dropped(running, listener, reason), first + count, "{reason}");
}

fn start_ping(host: &Host, arguments: &[&str]) -> KillOnDrop {
    let mut command = Command::new("ping");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    KillOnDrop(host.inside(|| command.spawn()).expect("ping runs"))
}

/// Calls `send`, which sends a packet and returns a function that looks for the effect of the packet, and waits for the
/// effect. If one of `boxes` counts a packet as late instead, `send` is called again.
pub fn retry_if_late<L: FnMut() -> Option<()>>(label: &str, boxes: &[&RunningRelay], mut send: impl FnMut() -> L) {
    let late = || boxes.iter().map(|running| dropped_for(running, "late")).sum::<u64>();
    eventually(label, || {
        let before = late();
        let mut look = send();
        let arrived = || look().map(|()| true).or_else(|| (late() > before).then_some(false));
        eventually(label, arrived).then_some(())
    });
}

/// Replaces the port of the other relay by a port without a listener, so that the relay cannot dial.
pub fn disable_dialling(text: &mut String) {
    *text = text.replacen(":7000\"\nkey", ":7999\"\nkey", 1);
    assert!(text.contains(":7999"));
}

impl Sites {
    /// The address at which the other site reaches `host`.
    pub fn address(&self, host: &str, family: Family) -> IpAddr {
        if host == "client" { self.row.right(host, family) } else { self.row.left(host, family) }
    }

    /// The relays of both boxes: each may drop packets of a lane as late.
    pub fn boxes(&self) -> [&RunningRelay; 2] {
        [&self.left, &self.right]
    }
}

/// A UDP echo server, which stops on drop.
pub struct Echo {
    pub address: SocketAddr,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn start(host: &Host, ip: IpAddr) -> Self {
        let socket = host.inside(|| UdpSocket::bind((ip, 0))).expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (address, done) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((count, from)) = socket.recv_from(&mut bytes) {
                    // Fails if the send buffer is full; the datagram is lost, and the client sends another one.
                    let _ = socket.send_to(&bytes[..count], from);
                }
            }
        });
        Self { address, done, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Sends a datagram of each length to an echo server, again and again until the datagram returns unchanged.
pub fn check_echoes(host: &Host, echo: &Echo, lengths: &[usize]) {
    let any: SocketAddr = if echo.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = host.inside(|| UdpSocket::bind(any)).expect("a port");
    socket.connect(echo.address).unwrap();
    socket.set_read_timeout(Some(RETRY_INTERVAL)).unwrap();
    let mut got = vec![0; 65_536];
    for &length in lengths {
        let sent = pattern(length);
        eventually(&format!("{length} bytes from {}", echo.address), || {
            // Fails with EMSGSIZE until the kernel has discovered the path MTU: ip(7), IP_MTU_DISCOVER.
            let _ = socket.send(&sent);
            let count = socket.recv(&mut got).ok()?;
            // An answer to an earlier datagram may arrive late.
            (got[..count] == sent).then_some(())
        });
    }
}

/// Number of packets that the relay has dropped at `listener` for `reason`.
pub fn dropped(running: &RunningRelay, listener: &str, reason: &str) -> u64 {
    let series = format!("ekiden_tunnel_packets_dropped_total{{listener=\"{listener}\",reason=\"{reason}\"}}");
    // The relay shows the series of a listener after its first lane or its first dropped packet.
    running.relay.metric(&series).unwrap_or(0)
}

/// Number of packets that the relay has dropped at all listeners for `reason`.
pub fn dropped_for(running: &RunningRelay, reason: &str) -> u64 {
    let text = running.relay.ask("/metrics");
    let counts = |line: &str| line.starts_with("ekiden_tunnel_packets_dropped_total{");
    let of_reason = text.lines().filter(|line| counts(line) && line.contains(&format!("reason=\"{reason}\"")));
    of_reason.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The lanes of the relay, as `/api/sessions` shows them.
pub fn lanes(running: &RunningRelay) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&running.relay.ask("/api/sessions")).expect("JSON");
    answer["lanes"].as_array().expect("a list").clone()
}

/// Waits for a warning that contains `text`. Returns its message.
pub fn wait_warning(running: &mut RunningRelay, text: &str) -> String {
    let is_wanted = |event: &Value| event["event"] == "warning" && event["message"].as_str().unwrap().contains(text);
    running.relay.next(is_wanted)["message"].as_str().unwrap().to_owned()
}
