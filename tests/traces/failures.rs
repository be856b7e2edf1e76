//! A collector that is unreachable, refuses or does not respond must not affect sessions.

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use serde_json::Value;

use crate::collector::*;
use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// Waits until the metric counts `count` exports with this result.
fn wait_exported(relay: &Relay, result: &str, count: u64) {
    let series = format!("ekiden_traced_sessions_total{{result=\"{result}\"}}");
    eventually(&format!("{count} {result} exports"), || (relay.metric(&series) == Some(count)).then_some(()));
}

/// Runs a session that carries bytes in both directions.
fn echo(home: &mut Relay) {
    let (mut client, mut server) = pair(home);
    exchange_messages(&mut client, &mut server);
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
    wait_exported(&home, "unreachable", 1);
    echo(&mut home);
    wait_exported(&home, "unreachable", 2);
    // The metric appears with the first success.
    assert_eq!(home.metric("ekiden_traced_sessions_total{result=\"sent\"}"), None);
    echo(&mut home);
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
    wait_exported(&home, "refused", 1);
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
    assert!(asked.elapsed() < TEST_TIMEOUT / 2, "the relay waited for the collector: {:?}", asked.elapsed());
    assert!(home.remaining_events().iter().any(|event| event["event"] == "stopped"));
}

#[test]
fn returning_collector_receives_traces_again() {
    let address = own_address();
    let (_site, mut home) = relay_exporting_to(address);
    echo(&mut home);
    wait_exported(&home, "unreachable", 1);
    let collector = Collector::on(TcpListener::bind(address).unwrap(), CollectorMode::Accept);
    echo(&mut home);
    wait_exported(&home, "sent", 1);
    assert_eq!((collector.requests(), collector.spans().len()), (1, 4));
}
