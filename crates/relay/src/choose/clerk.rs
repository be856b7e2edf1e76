//! The thread behind the chooser: draws the map anew while sessions ask, and looks up where names lie, so that no session
//! has to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, iter};

use ekiden_proto::direction::Direction;
use ekiden_proto::path::candidates::Fronts;
use ekiden_proto::path::map::{HERE, Map};
use ekiden_proto::path::prefix::Prefix;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use super::Inner;
use crate::config::Config;
use crate::dial::Names;

/// How often a map is drawn while there is something new.
const APART: Duration = Duration::from_secs(2);

/// Relays that look at a target, at most.
const MOST_LOOKS: usize = 16;

/// How long a name server has.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts it; it ends with the relay.
///
/// # Errors
/// The kernel's.
pub fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("chooser".to_owned());
    thread.spawn(move || LocalSet::new().block_on(&runtime, run(inner)))
}

async fn run(inner: Arc<Inner>) {
    let mut resolver: Option<(Arc<Config>, Rc<Names>)> = None;
    let mut next = Instant::now();
    while !inner.has_ended() {
        if Instant::now() >= next {
            draw(&inner);
            next = Instant::now() + APART;
        }
        look_up(&inner, &mut resolver);
        tokio::select! {
            () = inner.woken() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Draws the map anew. The work is done beside the lock.
fn draw(inner: &Inner) {
    let Some((config, before, costs, trust, asked)) = inner.with(|state| {
        let (stirred, asked) = (std::mem::take(&mut state.stirred), state.take_asked());
        let chooser = &state.chooser;
        let (config, map) = (Arc::clone(&state.config), Arc::clone(chooser.map()));
        stirred.then(|| (config, map, *chooser.costs(), chooser.trust().clone(), asked))
    }) else {
        return;
    };
    let Some(map) = inner.book.map(&config, Some(&before)) else { return };
    let map = Arc::new(map);
    ask_others(inner, &map, &asked);
    let fronts = Fronts::of(&map, &costs, &trust);
    inner.with(|state| {
        state.chooser.adopt(map, fronts);
        Some(())
    });
}

/// Has the nearest relays say what they know of networks where sessions go, and look where they have not been.
fn ask_others(inner: &Inner, map: &Map, asked: &HashMap<Prefix, SocketAddr>) {
    let mut relays: Vec<(Duration, u32)> = (0..u32::try_from(map.nodes()).unwrap_or(0))
        .filter_map(|node| Some((map.section(HERE, node, Direction::Down)?.section.rtt, node)))
        .collect();
    relays.sort_unstable();
    for (prefix, target) in asked {
        inner.book.wants(*prefix);
        for key in relays.iter().take(MOST_LOOKS).filter_map(|(_, node)| map.key(*node)) {
            inner.book.look(key, *target);
        }
    }
}

/// Looks up the names that wait for it.
fn look_up(inner: &Arc<Inner>, resolver: &mut Option<(Arc<Config>, Rc<Names>)>) {
    let Some((config, waiting)) = inner.with(|state| Some((Arc::clone(&state.config), state.names.take_waiting())))
    else {
        return;
    };
    if !resolver.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, &config)) {
        *resolver = Some((Arc::clone(&config), Rc::new(Names::new(&config.dns_servers))));
    }
    for (name, (_, names)) in waiting.into_iter().zip(iter::repeat_with(|| resolver.clone()).flatten()) {
        let inner = Arc::clone(inner);
        tokio::task::spawn_local(async move {
            if let Some(address) = first_address(&names, &name).await {
                inner.learn(&name, address);
            }
        });
    }
}

/// An address of a name: an IPv4 one where there is one, because those prefixes are smaller.
async fn first_address(names: &Names, name: &str) -> Option<IpAddr> {
    let lookup = names.lookup(name, PATIENCE);
    let (v4, v6) = tokio::join!(lookup.v4, lookup.v6);
    v4.into_iter().chain(v6).flatten().next()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{AUTO, config, key, sample, state, ways};
    use super::*;
    use crate::measure::{Book, Place};

    const TARGET: &str = "192.0.2.7:443";

    /// A chooser with so many relays, the nearest last.
    fn inner(relays: u8) -> Inner {
        let book = Arc::new(Book::new(std::time::Instant::now()));
        for number in 1..=relays {
            let seen = sample(1000 - u64::from(number), 1e6);
            book.note(Place::Relay(key(number)), None, (&seen, &seen), 0);
        }
        let inner = Inner {
            state: std::sync::Mutex::new(Some(state(config(relays, AUTO), &Book::new(std::time::Instant::now())))),
            book,
            wake: tokio::sync::Notify::new(),
            ended: std::sync::atomic::AtomicBool::new(false),
        };
        draw(&inner);
        inner
    }

    fn map(inner: &Inner) -> Arc<Map> {
        Arc::clone(inner.lock().as_ref().unwrap().chooser.map())
    }

    #[test]
    fn where_sessions_go_the_nearest_relays_look() {
        let inner = inner(20);
        ways(inner.lock().as_mut().unwrap(), TARGET);
        draw(&inner);
        let looks = |number| inner.book.take_looks(&key(number));
        let looking: Vec<u8> = (1..=20).filter(|number| looks(*number) == [TARGET.parse().unwrap()]).collect();
        assert_eq!(looking, (5..=20).collect::<Vec<_>>());
        assert_eq!(inner.book.wanted(None).0, ["192.0.2.0/24".parse().unwrap()]);
    }

    #[test]
    fn the_map_is_drawn_while_somebody_asks() {
        let inner = inner(2);
        let first = map(&inner);
        assert!(first.section(HERE, 1, Direction::Down).is_some(), "what the book knows");
        draw(&inner);
        assert!(Arc::ptr_eq(&first, &map(&inner)), "nobody has asked since");
        ways(inner.lock().as_mut().unwrap(), TARGET);
        draw(&inner);
        assert!(!Arc::ptr_eq(&first, &map(&inner)));
    }

    #[test]
    fn who_drains_leaves_the_map() {
        let (inner, mut draining) = (inner(2), config(2, AUTO));
        draining.draining.push(key(1));
        inner.lock().as_mut().unwrap().serve(&Arc::new(draining));
        draw(&inner);
        let sections = [1, 2].map(|node| map(&inner).section(HERE, node, Direction::Down).is_some());
        assert_eq!((sections, map(&inner).find(&key(1))), ([false, true], Some(1)), "its number stays");
    }
}
