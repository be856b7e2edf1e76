//! A collector that is unreachable, refuses or does not respond must not affect sessions.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use serde_json::Value;

use crate::collector::*;
use crate::harness::*;
use crate::relays::*;

fn exported_count(relay: &Relay, result: &str) -> u64 {
    let line = format!("ekiden_traced_sessions_total{{result=\"{result}\"}} ");
    let metrics = relay.ask("/metrics");
    metrics.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

/// Runs a session that carries bytes in both directions.
fn echo(home: &mut Relay) {
    let (mut client, mut server) = pair(home);
    client.write_all(b"there").unwrap();
    assert_eq!(read_exactly(&mut server, 5), b"there");
    server.write_all(b"back").unwrap();
    assert_eq!(read_exactly(&mut client, 4), b"back");
    drop((client, server));
    session_closed(home);
}

fn relay_exporting_to(address: SocketAddr) -> (Site, Relay) {
    let site = Site::new();
    let home = site.home(&format!("[traces]\nendpoint = \"http://{address}\"\n"), AUTO);
    (site, home)
}

fn is_warning(event: &Value) -> bool {
    event["event"] == "warning" && event["message"].as_str().unwrap().starts_with("traces:")
}

#[test]
fn unreachable_collector_is_logged_once_and_losses_are_counted() {
    let address = unused_address();
    let (_site, mut home) = relay_exporting_to(address);
    echo(&mut home);
    let warning = home.next(is_warning);
    let message = warning["message"].as_str().unwrap();
    for expected in [address.to_string().as_str(), "cannot be reached", "ekiden_traced_sessions_total", "reload"] {
        assert!(message.contains(expected), "{expected} is missing in {message}");
    }
    eventually("the first failed export in the metrics", || (exported_count(&home, "unreachable") == 1).then_some(()));
    echo(&mut home);
    eventually("the second failed export in the metrics", || (exported_count(&home, "unreachable") == 2).then_some(()));
    echo(&mut home);
    assert_eq!(exported_count(&home, "sent"), 0);
    home.signal("TERM");
    assert_eq!(home.exit_code(), Some(0));
    assert!(!home.remaining_events().iter().any(is_warning), "the warning was logged again");
}

#[test]
fn rejection_by_the_collector_is_logged_with_its_status() {
    let collector = Collector::start(CollectorMode::Unavailable);
    let (_site, mut home) = relay_exporting_to(collector.address);
    echo(&mut home);
    let warning = home.next(is_warning);
    assert!(warning["message"].as_str().unwrap().contains("responds with status 503"), "{warning}");
    eventually("the refused export in the metrics", || (exported_count(&home, "refused") == 1).then_some(()));
}

/// The collector accepts connections and never responds.
#[test]
fn silent_collector_delays_neither_sessions_nor_shutdown() {
    let collector = Collector::start(CollectorMode::Hang);
    let (_site, mut home) = relay_exporting_to(collector.address);
    (0..50).for_each(|_| echo(&mut home));
    let asked = Instant::now();
    home.signal("TERM");
    assert_eq!(home.exit_code(), Some(0));
    assert!(asked.elapsed() < PATIENCE / 2, "the relay waited for the collector: {:?}", asked.elapsed());
    assert!(home.remaining_events().iter().any(|event| event["event"] == "stopped"));
}

#[test]
fn returning_collector_receives_traces_again() {
    let address = own_address();
    let (_site, mut home) = relay_exporting_to(address);
    echo(&mut home);
    eventually("the failed export in the metrics", || (exported_count(&home, "unreachable") == 1).then_some(()));
    let collector = Collector::on(TcpListener::bind(address).unwrap(), CollectorMode::Accept);
    echo(&mut home);
    eventually("the exported session in the metrics", || (exported_count(&home, "sent") == 1).then_some(()));
    assert_eq!((collector.requests(), collector.spans().len()), (1, 4));
}
