//! A client and a server with an RTT of 100 ms: two namespaces, and between them a line with a rate, a queue and a
//! delay. Threads of this process forward the packets of the line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ekiden_sys::poll::Poll;
use ekiden_sys::tun;

use crate::network::Host;

/// The round-trip time without load.
pub const RTT: Duration = Duration::from_millis(100);
/// Interval at which a thread that waits for packets checks whether it has to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MTU: u32 = 1500;

/// The line of one direction.
#[derive(Clone, Copy)]
pub struct Line {
    /// Bits per second.
    pub rate: u32,
    /// Length of the queue in front of the line, in packets of [`MTU`] bytes.
    pub queue: u32,
}

impl Line {
    fn time_of(self, bytes: u32) -> Duration {
        Duration::from_secs_f64(f64::from(bytes) * 8.0 / f64::from(self.rate))
    }
}

pub struct LongPath {
    pub client: Host,
    pub server: Host,
    /// The largest number of packets that have waited in the queue to the server.
    pub most_queued: Arc<AtomicU32>,
    has_ended: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl LongPath {
    /// `line` applies to both directions.
    pub fn new(line: Line) -> Self {
        let [client, server] = [Host::new(), Host::new()];
        let ends = [(&client, "10.0.0.1 peer 10.0.0.2"), (&server, "10.0.0.2 peer 10.0.0.1")];
        let devices = ends.map(|(host, addresses)| {
            let device = host.inside(|| tun::create_plain("line")).expect("/dev/net/tun: run the test as root");
            host.run(&format!("ip address add {addresses} dev line"));
            host.run("ip link set line up");
            device
        });
        // With the default, the window of the receiver would be 64 KiB at first.
        server.run("sysctl -q -w net.ipv4.tcp_rmem=4096\t4194304\t8388608");
        let (devices, has_ended) = (Arc::new(devices), Arc::new(AtomicBool::new(false)));
        let most_queued = Arc::new(AtomicU32::new(0));
        let carriers = [(0, 1, Arc::clone(&most_queued)), (1, 0, Arc::default())].map(|(from, to, queued)| {
            let (devices, has_ended) = (Arc::clone(&devices), Arc::clone(&has_ended));
            thread::spawn(move || carry([&devices[from], &devices[to]], line, &queued, &has_ended))
        });
        Self { client, server, most_queued, has_ended, carriers: carriers.into() }
    }
}

impl Drop for LongPath {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for carrier in self.carriers.drain(..) {
            let _ = carrier.join();
        }
    }
}

fn carry([mut from, mut to]: [&File; 2], line: Line, most_queued: &AtomicU32, has_ended: &AtomicBool) {
    let mut poll = Poll::new(vec![from.as_fd()]);
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut idle_from = Instant::now();
    let mut packet = [0; MTU as usize];
    while !has_ended.load(Ordering::Relaxed) {
        let due = under_way.front().map_or(CHECK_INTERVAL, |(due, _)| due.saturating_duration_since(Instant::now()));
        poll.wait(Some(due.min(CHECK_INTERVAL))).expect("a device");
        while let Ok(length) = from.read(&mut packet) {
            let now = Instant::now();
            let begins = idle_from.max(now);
            let queued = (begins - now).div_duration_f64(line.time_of(MTU)) as u32;
            if queued < line.queue {
                most_queued.fetch_max(queued, Ordering::Relaxed);
                idle_from = begins + line.time_of(u32::try_from(length).expect("an MTU"));
                under_way.push_back((idle_from + RTT / 2, packet[..length].to_vec()));
            }
        }
        while under_way.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let (_, packet) = under_way.pop_front().expect("a due packet");
            // Fails if the device is down or its queue is full, which is a loss.
            let _ = to.write(&packet);
        }
    }
}
