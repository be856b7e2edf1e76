//! Pools over the loopback, with relays that shake hands.

mod group;
mod queue;
mod relay;
mod told;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::Event;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::profile::Profile;
use prometheus_client::metrics::histogram::Histogram;
use relay::{TestRelay, wait_until};

use super::*;
use crate::config::read::{Flags, load};
use crate::config::{HopKind, Peering};
use crate::events::metrics::{Metrics, ScrapeData};

const MOST: usize = 1000;

/// Pools, and their events.
struct TestPools {
    pools: Pools,
    events: Arc<Mutex<Vec<String>>>,
}

impl TestPools {
    fn counting(counts: PoolMetrics) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        let pools = Pools::new(counts, move |event| {
            told.lock().unwrap().push(match event {
                Event::RelayUnreachable { relay, cause, detail } => format!("{relay} down {cause} {detail:?}"),
                Event::RelayReachable { relay, .. } => format!("{relay} up"),
                other => format!("{other:?}"),
            });
        });
        Self { pools, events }
    }

    fn serving(config: &Arc<Config>) -> Self {
        let kept = Self::counting(counts());
        kept.pools.serve(config, MOST).unwrap();
        kept
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

fn counts() -> PoolMetrics {
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
    let flags = Flags { listen: vec!["auto://127.0.0.1:0".to_owned()], ..Flags::default() };
    let mut config = load(None, &flags).unwrap();
    config.set_paths_through(relays.iter().map(|hop| Arc::clone(hop)).collect());
    change(&mut config);
    Arc::new(config)
}

fn config(relays: &[&Arc<Hop>]) -> Arc<Config> {
    config_with(relays, |_| {})
}

/// Sends a record on a ready connection, and has the relay open it.
fn assert_works(waiting: &mut IdleConnection, relay: &TestRelay) {
    let record = waiting.link.cipher.seal_all(b"OPEN");
    std::io::Write::write_all(&mut waiting.stream, &record).unwrap();
    let client = waiting.stream.local_addr().unwrap();
    assert_eq!(relay.receive(client, record.len()), b"OPEN");
}

#[test]
fn a_pool_fills_and_what_is_taken_works_and_is_made_up_for() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept = TestPools::serving(&config(&[&hop]));
    kept.wait_for_ready(2);
    for round in 1..=5 {
        let mut waiting = kept.pools.take(&hop, false).expect("a ready connection");
        assert_eq!(waiting.server.0, relay.address);
        assert_works(&mut waiting, &relay);
        wait_until("a full pool", || kept.view().ready >= kept.view().wanted);
        assert_eq!((kept.view().hits, kept.view().misses), (round, 0));
    }
    assert!(kept.events().is_empty() && !kept.pools.is_down(&hop), "{:?}", kept.events());
}

#[test]
fn more_than_the_limit_is_never_ready() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept = TestPools::serving(&config_with(&[&hop], |config| config.limits.ready_connections = 5));
    wait_until("the first", || kept.view().ready > 0);
    let taken: Vec<_> = (0..200).filter_map(|_| kept.pools.take(&hop, false)).collect();
    assert!(kept.view().wanted == 5 && kept.view().misses > 0, "{:?}", kept.view());
    kept.wait_for_ready(5);
    wait_until("no more handshakes", || relay.open() == 5 + taken.len());
    assert_eq!(relay.made(), 5 + taken.len());
    // A new configuration bounds existing connections, and so do the remaining descriptors.
    kept.pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 3), MOST).unwrap();
    assert_eq!(kept.view().ready, 3);
    kept.pools.serve(&config(&[&hop]), 1).unwrap();
    assert_eq!((kept.view().ready, kept.view().wanted), (1, 1));
    wait_until("closed ones", || relay.open() == 1 + taken.len());
}

#[test]
fn what_the_relay_has_closed_is_replaced_before_anybody_needs_it() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept = TestPools::serving(&config(&[&hop]));
    kept.wait_for_ready(2);
    wait_until("both handshakes", || relay.made() == 2);
    relay.close_all();
    wait_until("new ones", || relay.made() == 2 && kept.view().ready == 2);
    assert_works(&mut kept.pools.take(&hop, false).unwrap(), &relay);
    assert_eq!(kept.view().stale, 0);
}

#[test]
fn old_ones_are_replaced_without_anybody_asking() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept =
        TestPools::serving(&config_with(&[&hop], |config| config.timeouts.ready_age = Duration::from_millis(50)));
    wait_until("a second generation", || relay.made() >= 4);
    wait_until("the end of the first", || relay.open() <= 2);
    assert_eq!((kept.view().hits, kept.view().wanted), (0, 2));
}

#[test]
fn distrust_closes_all_and_makes_new_ones() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept = TestPools::serving(&config(&[&hop]));
    kept.wait_for_ready(2);
    kept.pools.discard(&hop);
    wait_until("others", || relay.made() == 4 && relay.open() == 2 && kept.view().ready == 2);
    assert!(!kept.pools.is_down(&hop));
}

#[test]
fn a_reload_keeps_the_pools_of_equal_hops_and_closes_the_others() {
    let (stays, goes) = (TestRelay::start(), TestRelay::start());
    let own = own_key();
    let hop = |name, relay: &TestRelay| section(name, relay.address, relay.key.public_key(), &own);
    let (before, gone) = (hop("stays", &stays), hop("goes", &goes));
    let kept = TestPools::serving(&config(&[&before, &gone, &before]));
    wait_until("both pools", || kept.pools.views().iter().all(|view| view.ready == 2));
    let after = hop("stays", &stays);
    kept.pools.serve(&config(&[&after]), MOST).unwrap();
    wait_until("the end of the other pool", || goes.open() == 0);
    assert!(kept.pools.take(&gone, false).is_none());
    assert_eq!(kept.pools.inner.counts.for_relay("goes").ready.get(), 0, "in the metrics");
    wait_until("what was ready", || stays.open() == 2);
    assert_eq!(kept.view().ready, 2);
    // A session that began under the old configuration finds them too.
    assert_works(&mut kept.pools.take(&before, false).unwrap(), &stays);
    assert_works(&mut kept.pools.take(&after, false).unwrap(), &stays);
    assert_eq!(kept.view().hits, 2);
}

#[test]
fn the_metrics_have_the_names_in_the_documentation() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let metrics = Metrics::new();
    let kept = TestPools::counting(metrics.pools.clone());
    kept.pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 1), MOST).unwrap();
    kept.wait_for_ready(1);
    let hits = std::iter::from_fn(|| kept.pools.take(&hop, false)).count();
    kept.pools.close();
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
fn when_they_are_closed_nothing_stays_open() {
    let relay = TestRelay::start();
    let hop = hop_to(&relay);
    let kept = TestPools::serving(&config(&[&hop]));
    kept.wait_for_ready(2);
    kept.pools.close();
    wait_until("the end of all connections", || relay.open() == 0);
    assert!(kept.pools.take(&hop, false).is_none() && kept.pools.keeper.lock().unwrap().is_none());
    // The keeper held its own reference.
    assert_eq!(Arc::strong_count(&kept.pools.inner), 1);
}

#[test]
fn other_hops_have_no_pool_but_are_known_to_be_down() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let hop = hop("corp", nobody, HopKind::Socks5(None));
    let kept = TestPools::serving(&config(&[&hop]));
    assert!(kept.pools.keeper.lock().unwrap().is_none() && kept.pools.views().is_empty());
    assert!(!kept.pools.is_down(&hop));
    kept.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Exhausted, &hop)));
    assert!(!kept.pools.is_down(&hop), "that we are out of descriptors is not its fault");
    kept.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    assert!(kept.pools.is_down(&hop));
    kept.pools.record_attempt(&hop, None);
    assert!(!kept.pools.is_down(&hop));
    assert_eq!(kept.events(), ["corp down refused None", "corp up"]);
}
