//! The thread of the path selector. While sessions request paths, the thread rebuilds the map and resolves the names of
//! targets, so that no session has to wait for a lookup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, iter};

use ekiden_proto::direction::Direction;
use ekiden_proto::path::candidates::ParetoFronts;
use ekiden_proto::path::map::{NetworkMap, THIS_RELAY};
use ekiden_proto::path::prefix::Prefix;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use super::SelectorShared;
use crate::config::Config;
use crate::dial::Resolver;

/// Interval at which the map is rebuilt, if a session has used the selector since the last map.
const MAP_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of relays that probe a target.
const MAX_PROBING_RELAYS: usize = 16;

/// Timeout of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the thread, which ends when the selector is closed.
///
/// # Errors
/// The thread or its runtime cannot be created.
pub fn start(inner: Arc<SelectorShared>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("chooser".to_owned());
    thread.spawn(move || LocalSet::new().block_on(&runtime, run(inner)))
}

async fn run(inner: Arc<SelectorShared>) {
    let mut resolver: Option<(Arc<Config>, Rc<Resolver>)> = None;
    let mut next = Instant::now();
    while !inner.is_stopped() {
        if Instant::now() >= next {
            refresh_map(&inner);
            next = Instant::now() + MAP_INTERVAL;
        }
        resolve_pending(&inner, &mut resolver);
        tokio::select! {
            () = inner.wait_woken() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Builds a new map, without the lock for most of the work.
fn refresh_map(inner: &SelectorShared) {
    let Some((config, previous, costs, trust, requested)) = inner.with_state(|state| {
        let (is_dirty, requested) = (std::mem::take(&mut state.is_dirty), state.take_requested());
        let chooser = &state.chooser;
        let (config, map) = (Arc::clone(&state.config), Arc::clone(chooser.map()));
        is_dirty.then(|| (config, map, *chooser.costs(), chooser.trust().clone(), requested))
    }) else {
        return;
    };
    let Some(map) = inner.estimates.map(&config, Some(&previous)) else { return };
    let map = Arc::new(map);
    request_estimates(inner, &map, &requested);
    let fronts = ParetoFronts::compute(&map, &costs, &trust);
    inner.with_state(|state| {
        state.chooser.install_map(map, fronts);
        Some(())
    });
}

/// Registers the target networks of sessions, about which other relays are queried, and queues probes of one target in
/// each network by the nearest relays.
fn request_estimates(inner: &SelectorShared, map: &NetworkMap, requested: &HashMap<Prefix, SocketAddr>) {
    let mut relays: Vec<(Duration, u32)> = (0..u32::try_from(map.node_count()).unwrap_or(0))
        .filter_map(|node| Some((map.section(THIS_RELAY, node, Direction::Down)?.section.rtt, node)))
        .collect();
    relays.sort_unstable();
    for (prefix, target) in requested {
        inner.estimates.request_prefix(*prefix);
        for key in relays.iter().take(MAX_PROBING_RELAYS).filter_map(|(_, node)| map.key(*node)) {
            inner.estimates.queue_target_probe(key, *target);
        }
    }
}

/// Looks up the pending names.
fn resolve_pending(inner: &Arc<SelectorShared>, resolver: &mut Option<(Arc<Config>, Rc<Resolver>)>) {
    let Some((config, waiting)) =
        inner.with_state(|state| Some((Arc::clone(&state.config), state.names.take_pending())))
    else {
        return;
    };
    if !resolver.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, &config)) {
        *resolver = Some((Arc::clone(&config), Rc::new(Resolver::new(&config.dns_servers))));
    }
    for (name, (_, names)) in waiting.into_iter().zip(iter::repeat_with(|| resolver.clone()).flatten()) {
        let inner = Arc::clone(inner);
        tokio::task::spawn_local(async move {
            let address = first_address(&names, &name).await;
            let now = inner.estimates.now();
            inner.with_state(|state| {
                state.names.end_lookup(&name, address, now);
                Some(())
            });
        });
    }
}

/// Returns an address of a name. An IPv4 address is preferred, because IPv4 prefixes cover smaller networks.
async fn first_address(names: &Resolver, name: &str) -> Option<IpAddr> {
    let lookup = names.lookup(name, LOOKUP_TIMEOUT);
    let (v4, v6) = tokio::join!(lookup.v4, lookup.v6);
    v4.into_iter().chain(v6).flatten().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::estimates::{EstimateStore, PeerId};
    use crate::path::selector::tests::{AUTO, config, key, sample, state, target_paths};

    const TARGET: &str = "192.0.2.7:443";

    /// The shared state of a selector with `relays` relays, the nearest last.
    fn shared(relays: u8) -> SelectorShared {
        let estimates = Arc::new(EstimateStore::new(std::time::Instant::now()));
        for number in 1..=relays {
            let measured = sample(1000 - u64::from(number), 1e6);
            estimates.record_session(PeerId::Relay(key(number)), None, &measured, &measured, 0);
        }
        let shared = SelectorShared {
            state: std::sync::Mutex::new(Some(state(
                config(relays, AUTO),
                &EstimateStore::new(std::time::Instant::now()),
            ))),
            estimates,
            wake: tokio::sync::Notify::new(),
            stopped: std::sync::atomic::AtomicBool::new(false),
        };
        refresh_map(&shared);
        shared
    }

    fn map(shared: &SelectorShared) -> Arc<NetworkMap> {
        Arc::clone(shared.lock().as_ref().unwrap().chooser.map())
    }

    #[test]
    fn nearest_relays_probe_the_targets_of_sessions() {
        let shared = shared(20);
        target_paths(shared.lock().as_mut().unwrap(), TARGET);
        refresh_map(&shared);
        let probes = |number| shared.estimates.take_target_probes(&key(number));
        let probing: Vec<u8> = (1..=20).filter(|number| probes(*number) == [TARGET.parse().unwrap()]).collect();
        assert_eq!(probing, (5..=20).collect::<Vec<_>>());
        assert_eq!(shared.estimates.requested_prefixes(None).0, ["192.0.2.0/24".parse().unwrap()]);
    }

    #[test]
    fn map_is_refreshed_only_after_a_selection() {
        let shared = shared(2);
        let first = map(&shared);
        assert!(first.section(THIS_RELAY, 1, Direction::Down).is_some(), "the section has an estimate");
        refresh_map(&shared);
        assert!(Arc::ptr_eq(&first, &map(&shared)), "no selection since the last refresh");
        target_paths(shared.lock().as_mut().unwrap(), TARGET);
        refresh_map(&shared);
        assert!(!Arc::ptr_eq(&first, &map(&shared)));
    }

    #[test]
    fn draining_relay_is_removed_from_the_map() {
        let (shared, mut draining) = (shared(2), config(2, AUTO));
        draining.draining.push(key(1));
        shared.lock().as_mut().unwrap().apply_config(&Arc::new(draining));
        refresh_map(&shared);
        let sections = [1, 2].map(|node| map(&shared).section(THIS_RELAY, node, Direction::Down).is_some());
        assert_eq!((sections, map(&shared).find(&key(1))), ([false, true], Some(1)), "the relay keeps its number");
    }
}
