//! Pools over loopback, with relays that only complete handshakes.

mod events;
mod group;
mod hop_pool;
mod relay;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::Event;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::profile::Profile;
use ekiden_testing::eventually;
use prometheus_client::metrics::histogram::Histogram;
use relay::TestRelay;

use super::*;
use crate::config::{HopKind, Peering};
use crate::events::metrics::{Metrics, ScrapeData};
use crate::testing::{config_listening_at, section_keys, wait_until};

const MOST: usize = 1000;

/// Pools, and the events that they have emitted, as text.
struct TestPools {
    pools: Pools,
    events: Arc<Mutex<Vec<String>>>,
}

impl TestPools {
    fn with_metrics(counts: PoolMetrics) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&events);
        let pools = Pools::new(counts, move |event| {
            list.lock().unwrap().push(match event {
                Event::RelayUnreachable { relay, cause, detail } => format!("{relay} down {cause} {detail:?}"),
                Event::RelayReachable { relay, .. } => format!("{relay} up"),
                other => format!("{other:?}"),
            });
        });
        Self { pools, events }
    }

    fn start(config: &Arc<Config>) -> Self {
        let test = Self::with_metrics(pool_metrics());
        test.pools.serve(config, MOST).unwrap();
        test
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    fn view(&self) -> PoolView {
        self.pools.views().remove(0)
    }

    fn wait_for_ready(&self, count: usize) {
        wait_until(&format!("{count} ready connections"), || self.view().ready == count);
    }
}

impl Drop for TestPools {
    fn drop(&mut self) {
        self.pools.close();
    }
}

fn pool_metrics() -> PoolMetrics {
    PoolMetrics::new(|| Histogram::new([1.0]))
}

fn own_key() -> Arc<PrivateKey> {
    Arc::new(PrivateKey::generate())
}

fn hop(name: &str, address: SocketAddr, kind: HopKind) -> Arc<Hop> {
    let address = Target::new(Host::Ip(address.ip()), address.port()).unwrap();
    Arc::new(Hop { name: name.into(), kind, address, profile: Arc::new(Profile::named("test")), group: None })
}

fn section(name: &str, address: SocketAddr, key: PublicKey, own: &Arc<PrivateKey>) -> Arc<Hop> {
    hop(name, address, HopKind::Section(Peering { key, own_key: Arc::clone(own), encrypt: false }))
}

fn hop_to(relay: &TestRelay) -> Arc<Hop> {
    section("osaka", relay.address, relay.key.public_key(), &own_key())
}

fn config_with(relays: &[&Arc<Hop>], change: impl FnOnce(&mut Config)) -> Arc<Config> {
    let mut config = config_listening_at("auto://127.0.0.1:0");
    config.set_paths_through(relays.iter().map(|hop| Arc::clone(hop)).collect());
    change(&mut config);
    Arc::new(config)
}

fn config(relays: &[&Arc<Hop>]) -> Arc<Config> {
    config_with(relays, |_| {})
}

/// Sends a record on a ready connection, and checks that the relay decrypts the record.
fn assert_decrypted(waiting: &mut IdleConnection, relay: &TestRelay) {
    let record = waiting.link.cipher.seal_all(b"OPEN");
    std::io::Write::write_all(&mut waiting.stream, &record).unwrap();
    let client = waiting.stream.local_addr().unwrap();
    assert_eq!(relay.receive(client, record.len()), b"OPEN");
}

#[test]
fn pool_fills_and_replaces_taken_connections() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config(&[&hop]));
    test.wait_for_ready(2);
    for round in 1..=5 {
        let mut waiting = test.pools.take(&hop, false).expect("a ready connection");
        assert_eq!(waiting.server.0, relay.address);
        assert_decrypted(&mut waiting, &relay);
        wait_until("a full pool", || test.view().ready >= test.view().wanted);
        assert_eq!((test.view().hits, test.view().misses), (round, 0));
    }
    assert!(test.events().is_empty() && !test.pools.is_down(&hop), "{:?}", test.events());
}

#[test]
fn ready_connections_never_exceed_the_limit() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config_with(&[&hop], |config| config.limits.ready_connections = 5));
    wait_until("the first ready connection", || test.view().ready > 0);
    let taken: Vec<_> = (0..200).filter_map(|_| test.pools.take(&hop, false)).collect();
    assert!(test.view().wanted == 5 && test.view().misses > 0, "{:?}", test.view());
    test.wait_for_ready(5);
    wait_until("the last handshake", || relay.open_count() == 5 + taken.len());
    assert_eq!(relay.handshakes(), 5 + taken.len());
    // A lower limit of a new configuration, or of the remaining descriptors, closes existing connections.
    test.pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 3), MOST).unwrap();
    assert_eq!(test.view().ready, 3);
    test.pools.serve(&config(&[&hop]), 1).unwrap();
    assert_eq!((test.view().ready, test.view().wanted), (1, 1));
    wait_until("the close of surplus connections", || relay.open_count() == 1 + taken.len());
}

#[test]
fn connections_closed_by_the_relay_are_replaced_before_use() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config(&[&hop]));
    test.wait_for_ready(2);
    wait_until("both handshakes", || relay.handshakes() == 2);
    relay.close_all();
    wait_until("new connections", || relay.handshakes() == 2 && test.view().ready == 2);
    assert_decrypted(&mut test.pools.take(&hop, false).unwrap(), &relay);
    assert_eq!(test.view().stale, 0);
}

#[test]
fn old_connections_are_replaced_without_demand() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config_with(&[&hop], |config| config.timeouts.ready_age = Duration::from_millis(50)));
    wait_until("new connections in place of the old connections", || relay.handshakes() >= 4);
    wait_until("the end of the old connections", || relay.open_count() <= 2);
    assert_eq!((test.view().hits, test.view().wanted), (0, 2));
}

#[test]
fn discard_replaces_all_connections() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config(&[&hop]));
    test.wait_for_ready(2);
    test.pools.discard(&hop);
    wait_until("new connections in place of the discarded connections", || {
        relay.handshakes() == 4 && relay.open_count() == 2 && test.view().ready == 2
    });
    assert!(!test.pools.is_down(&hop));
}

#[test]
fn a_reload_keeps_the_pools_of_equal_hops_and_closes_the_others() {
    let (kept_relay, removed_relay) = (TestRelay::start(), TestRelay::start());
    let own = own_key();
    let hop = |name, relay: &TestRelay| section(name, relay.address, relay.key.public_key(), &own);
    let (before, removed) = (hop("stays", &kept_relay), hop("goes", &removed_relay));
    let test = TestPools::start(&config(&[&before, &removed, &before]));
    wait_until("two full pools", || test.pools.views().iter().all(|view| view.ready == 2));
    let after = hop("stays", &kept_relay);
    test.pools.serve(&config(&[&after]), MOST).unwrap();
    wait_until("the end of the other pool", || removed_relay.open_count() == 0);
    assert!(test.pools.take(&removed, false).is_none());
    assert_eq!(test.pools.inner.counts.for_relay("goes").ready.get(), 0, "in the metrics");
    wait_until("the ready connections of the kept pool", || kept_relay.open_count() == 2);
    assert_eq!(test.view().ready, 2);
    // A session that began under the old configuration finds these connections, too.
    assert_decrypted(&mut test.pools.take(&before, false).unwrap(), &kept_relay);
    assert_decrypted(&mut test.pools.take(&after, false).unwrap(), &kept_relay);
    assert_eq!(test.view().hits, 2);
}

#[test]
fn pool_metrics_have_the_documented_names() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let metrics = Metrics::new();
    let test = TestPools::with_metrics(metrics.pools.clone());
    test.pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 1), MOST).unwrap();
    test.wait_for_ready(1);
    let hits = std::iter::from_fn(|| test.pools.take(&hop, false)).count();
    test.pools.close();
    let text = metrics.encode(ScrapeData::default());
    let hit = format!("ekiden_ready_connections_total{{relay=\"osaka\",result=\"hit\"}} {hits}\n");
    for line in [
        hit.as_str(),
        "ekiden_ready_connections_total{relay=\"osaka\",result=\"miss\"} 1\n",
        "ekiden_ready_connections_total{relay=\"osaka\",result=\"stale\"} 0\n",
        "ekiden_ready_dials_total{relay=\"osaka\",result=\"ok\"} ",
        "ekiden_ready_dials_total{relay=\"osaka\",result=\"failed\"} 0\n",
        "ekiden_ready_dial_seconds_count{relay=\"osaka\"} ",
        "ekiden_ready{relay=\"osaka\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn close_ends_all_connections_and_the_keeper() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let test = TestPools::start(&config(&[&hop]));
    test.wait_for_ready(2);
    test.pools.close();
    wait_until("the end of all connections", || relay.open_count() == 0);
    assert!(test.pools.take(&hop, false).is_none() && test.pools.keeper.lock().unwrap().is_none());
    // The keeper has released its reference.
    assert_eq!(Arc::strong_count(&test.pools.inner), 1);
}

#[test]
fn proxy_hops_have_no_pool_but_their_state_is_tracked() {
    let closed_port = SocketAddr::from(([127, 0, 0, 1], 1));
    let hop = hop("corp", closed_port, HopKind::Socks5(None));
    let test = TestPools::start(&config(&[&hop]));
    assert!(test.pools.keeper.lock().unwrap().is_none() && test.pools.views().is_empty());
    assert!(!test.pools.is_down(&hop));
    test.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Exhausted, &hop)));
    assert!(!test.pools.is_down(&hop), "a lack of local descriptors does not mark the hop as down");
    test.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    assert!(test.pools.is_down(&hop));
    test.pools.record_attempt(&hop, None);
    assert!(!test.pools.is_down(&hop));
    assert_eq!(test.events(), ["corp down refused None", "corp up"]);
}
