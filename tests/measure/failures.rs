//! Reports and sessions when the far relay stops, restarts, or does not support reports.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::budget::{ReportHandling, report_proxy};
use crate::harness::*;
use crate::relays::*;
use crate::reports::*;

/// Writes `bytes` bytes to `from`, the sending end of a connection, and reads them from `to`, the receiving end.
pub fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&pattern(bytes)).unwrap());
        read_exactly(to, bytes);
    });
}

#[test]
fn reports_are_requested_again_after_a_restart() {
    let (far, target) = (Site::new(), byte_server(500_000));
    let far_relay = far.relay("", "allow_open = true\n");
    let home = MeasuringRelay::new(&far, target);
    download(&home.relay, target);
    let (key, own) = (&*far.key.public, &*home.site.key.public);
    wait_for_entry(&home.relay, own, Some(key), |_| true);
    drop(far_relay);

    let begun = Instant::now();
    let _far_relay = far.relay("", "allow_open = true\n");
    // The relay requests the report again after a delay, and probes the section after another delay: 14 s in all.
    eventually_within(3 * TEST_TIMEOUT, "a report of the restarted relay", || {
        let reported = find_entry(&home.relay, own, Some(key))?;
        (reported["sending"]["age_seconds"].as_f64()? < begun.elapsed().as_secs_f64()).then_some(())
    });
    assert_eq!(download(&home.relay, target), 500_000);
}

/// Delay until reports are requested again from a relay that does not support them, as in the relay's code.
const UNSUPPORTED_RETRY_DELAY: Duration = Duration::from_secs(600);

/// A relay of a version without reports treats the OPEN as invalid, and closes the connection.
#[test]
fn relay_without_reports_is_logged_once_and_carries_sessions() {
    let (far, target) = (Site::new(), byte_server(500_000));
    let mut far_relay = far.relay("", "allow_open = true\n");
    let (address, requests) = report_proxy(&far, ReportHandling::Close);
    let mut home = MeasuringRelay::with_address(&far, address, target);
    let warning = home.relay.next(|event| event["event"] == "warning");
    assert!(warning["message"].as_str().unwrap().contains("reports no estimates of its sections"), "{warning}");
    // The target is a name: the proxy recognises reports by their length, and an OPEN with an address has the same
    // length.
    assert_eq!(download_by_name(&home.relay, target), 500_000);
    assert_eq!(home.relay.next(|event| event["event"] == "closed")["end"], "finished");
    session_closed(&mut far_relay);
    assert!(all_entries(&home.relay).iter().all(|entry| entry["told_by"].is_null()));
    // The delays between the requests are too long for real time.
    if !is_virtual() {
        return;
    }
    // The third request follows the failure of the second, so a second warning would have been logged by then.
    eventually_within(3 * UNSUPPORTED_RETRY_DELAY, "the third request for reports", || {
        (requests.load(Ordering::Relaxed) >= 3).then_some(())
    });
    assert_no_warning(&mut home);
}

/// Checks that `home` has not logged that a relay does not support reports.
fn assert_no_warning(home: &mut MeasuringRelay) {
    home.relay.signal("TERM");
    let events = home.relay.remaining_events();
    assert!(events.iter().all(|event| event["event"] != "warning"), "{events:?}");
}

/// Regression: a relay without a place for the report connection counted as a relay without reports.
#[test]
fn relay_without_a_place_is_asked_for_reports_again() {
    let (far, other) = (Site::new(), Site::new());
    let _far_relay = far.relay("[limits]\nsessions_per_client = 1\n", "allow_open = true\n");
    // The far relay has no `peers`, so the session takes the only place of 127.0.0.1, from where `home` connects too.
    let other_relay = other.home(&(far.table("far", "") + &route_all_through("way", &["far".to_owned()])), AUTO);
    let session = pair(&other_relay);
    let (address, requests) = report_proxy(&far, ReportHandling::Forward);
    let mut home = MeasuringRelay::with_address(&far, address, unused_address());
    eventually("a request after the refused request", || (requests.load(Ordering::Relaxed) >= 2).then_some(()));
    drop(session);
    wait_for_entry(&home.relay, &home.site.key.public, Some(&far.key.public), |_| true);
    assert_no_warning(&mut home);
}

/// Regression: a relay that did not answer in time counted as a relay without reports. A relay at its session limit
/// answers only after `timeouts.connect`.
#[test]
fn relay_that_does_not_answer_in_time_is_asked_for_reports_again() {
    let far = Site::new();
    let _far_relay = far.relay("", "allow_open = true\n");
    let (address, requests) = report_proxy(&far, ReportHandling::Discard);
    let mut home = MeasuringRelay::with_address(&far, address, unused_address());
    // 10 s until the request is given up, and 5 s until the next request.
    eventually_within(Duration::from_secs(60), "the second request", || {
        (requests.load(Ordering::Relaxed) >= 2).then_some(())
    });
    assert_no_warning(&mut home);
}

#[test]
fn unreachable_relay_does_not_affect_sessions() {
    let (far, target) = (Site::new(), byte_server(500_000));
    let home = MeasuringRelay::new(&far, unused_address());
    assert_eq!(download(&home.relay, target), 500_000);
    wait_for_entry(&home.relay, LOOPBACK_NET, None, |_| true);
}

#[test]
fn report_connections_do_not_delay_draining() {
    let (far, target) = (Site::new(), byte_server(500_000));
    let mut far_relay = far.relay("", "allow_open = true\n");
    let mut home = MeasuringRelay::new(&far, target);
    download(&home.relay, target);
    wait_for_entry(&home.relay, &home.site.key.public, Some(&far.key.public), |_| true);
    far_relay.signal("TERM");
    assert_eq!(far_relay.exit_code(), Some(0));
    home.relay.signal("TERM");
    assert_eq!(home.relay.exit_code(), Some(0));
    let stopped = home.relay.next(|event| event["event"] == "stopped");
    assert_eq!(stopped["aborted"], 0);
}

/// The relay keeps its report connections at a reload, and dials them with the name servers of the new configuration.
#[test]
fn report_connections_use_the_name_servers_of_a_reload() {
    let (far, site) = (Site::new(), Site::new());
    let _far_relay = far.relay("", "allow_open = true\n");
    let named = format!("far.test:{}", far.address.port());
    let relays = settings(&far, far.address, unused_address()).replace(&far.address.to_string(), &named);
    let write = |server: SocketAddr| site.write_home(&format!("[dns]\nservers = [\"{server}\"]\n{relays}"), AUTO);
    let (queries, first_query) = std::sync::mpsc::channel();
    let (unknown, known) =
        (answer_from(&[]), answer_from(vec![("far.test", &*far.address.ip().to_string().leak())].leak()));
    let mut relay = start(&write(name_server(move |query| {
        // The receiver is dropped when the test ends.
        let _ = queries.send(());
        unknown(query)
    })));
    first_query.recv().unwrap();
    write(name_server(known));
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    wait_for_entry(&relay, &far.key.public, None, |_| true);
}
