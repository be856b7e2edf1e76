//! The traffic of section probes, counted by a TCP proxy between two relays.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::*;
use crate::relays::*;
use crate::reports::*;

/// Number of bytes of each connection, both directions together, in the order of arrival.
type Counts = Arc<Mutex<Vec<Arc<AtomicU64>>>>;

/// Header bytes of a packet: Ethernet, IPv4, TCP with timestamps.
const HEADERS: u64 = 66;

/// Mean payload of a packet in bytes, in the worst case: half of a full packet, because the last packet of each train
/// is not full.
const PAYLOAD: u64 = 700;

fn counting_proxy(to: SocketAddr) -> (SocketAddr, Counts) {
    let counts = Counts::default();
    let all = Arc::clone(&counts);
    let address = serve(move |down| {
        let count = Arc::new(AtomicU64::new(0));
        all.lock().unwrap().push(Arc::clone(&count));
        let Ok(up) = TcpStream::connect(to) else { return };
        let (from, into) = (down.try_clone().unwrap(), up.try_clone().unwrap());
        let counting = Arc::clone(&count);
        thread::spawn(move || copy_counted(&from, &into, &counting));
        copy_counted(&up, &down, &count);
    });
    (address, counts)
}

fn copy_counted(mut from: &TcpStream, mut to: &TcpStream, count: &AtomicU64) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        count.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// What a proxy does with a connection whose first record after the hello is an OPEN for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportHandling {
    Forward,
    /// Forwards nothing from the OPEN on.
    Discard,
    /// Closes the connection, as a relay of a version without reports does at an unknown flag.
    Close,
}

/// Starts a TCP proxy in front of the far relay. Returns the proxy's address, and the number of OPENs for reports so
/// far.
pub fn report_proxy(far: &Site, handling: ReportHandling) -> (SocketAddr, Arc<AtomicU64>) {
    let (to, requests) = (far.address, Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&requests);
    let address = serve(move |down| {
        let Ok(up) = TcpStream::connect(to) else { return };
        let (mut from, mut into) = (down.try_clone().unwrap(), up.try_clone().unwrap());
        let answers = thread::spawn(move || copy_counted(&up, &down, &AtomicU64::new(0)));
        let mut received = Vec::new();
        let mut has_report = false;
        let mut bytes = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            received.extend(&bytes[..read]);
            if !has_report && is_report(&received) {
                has_report = true;
                counted.fetch_add(1, Ordering::Relaxed);
            }
            if has_report && handling == ReportHandling::Close {
                break;
            }
            if has_report && handling == ReportHandling::Discard {
                continue;
            }
            if into.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = into.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
        join(answers);
    });
    (address, requests)
}

/// Returns whether the first record after the hello is an OPEN for reports. The record is encrypted, so its length is
/// compared: an OPEN with a name or with further relays is longer.
fn is_report(received: &[u8]) -> bool {
    let length = |at: usize| received.get(at..at + 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    let Some(hello) = length(8) else { return false };
    let open = 10 + hello;
    let Some(rest) = length(open) else { return false };
    received.len() >= open + 2 + rest && rest == REPORT
}

/// Length of an OPEN for reports in bytes: flags, hops, trace, client, an empty list of relays, an empty target, and
/// the authentication tag of the record.
const REPORT: usize = 1 + 1 + 16 + 7 + 1 + 7 + 16;

/// Time of a measurement. Relays probe an idle section every 12 s, so this span has two or three probes.
const SPAN: Duration = Duration::from_secs(34);

#[test]
fn idle_section_probes_stay_within_the_budget() {
    let (far, _target) = (Site::new(), unused_address());
    let far_relay = far.relay("", "allow_open = true\n");
    let (address, counts) = counting_proxy(far.address);
    let home = MeasuringRelay::with_address(&far, address, unused_address());
    wait_for_entry(&home.relay, &far.key.public, None, |_| true);
    let total = || counts.lock().unwrap().iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    // Begins after the first probe: a span with a probe at its start and another at its end would count one probe too
    // many.
    let (before, begun) = (total(), Instant::now());
    pause_until(begun + SPAN);
    let bytes = total() - before;
    let packets = bytes.div_ceil(PAYLOAD) + 4 * SPAN.as_secs();
    let bits = (bytes + packets * HEADERS) * 8;
    let rate = bits as f64 / begun.elapsed().as_secs_f64();
    println!("an idle section costs {rate:.0} bit/s, of these {bytes} bytes of payload in {SPAN:?}");
    assert!(bytes > 2 * 2 * 16_000, "fewer than two probes: {bytes} bytes");
    // Only one of the two relays probes here, and may use half of the section's budget of 64 kbit/s.
    assert!(rate <= 32_000.0, "{rate} bit/s");
    drop(far_relay);
}

#[test]
fn section_in_use_is_not_probed() {
    let far = Site::new();
    let _far_relay = far.relay("", "allow_open = true\n");
    let (listener, target) = server();
    let (address, counts) = counting_proxy(far.address);
    let home = MeasuringRelay::with_address(&far, address, target);
    let mut client = socks5(home.relay.address(), target).unwrap();
    let mut server = accept(&listener);
    let mut flow = |until: &dyn Fn() -> bool| {
        let mut sent = 0;
        while !until() {
            crate::failures::transfer(&mut server, &mut client, 20_000);
            sent += 20_000_u64;
            pause_until(Instant::now() + Duration::from_millis(100));
        }
        sent
    };
    let is_busy = || find_entry(&home.relay, &far.key.public, None).is_some_and(|entry| entry["busy"] == true);
    flow(&is_busy);
    let total = || counts.lock().unwrap().iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let (before, begun) = (total(), Instant::now());
    let sent = flow(&|| begun.elapsed() >= SPAN);
    let beside = total() - before - sent;
    println!("a busy section costs {} bit/s beside its sessions", beside * 8 / SPAN.as_secs());
    assert!(beside < 8_000, "{beside} bytes beside the session's {sent}");
}
