//! The pool of one hop, without a keeper.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use ekiden_testing::{TEST_TIMEOUT, skipped};

use super::*;

const AGE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(600);

fn hop_pool(kind: HopKind, most: usize) -> Arc<HopPool> {
    let pool = HopPool::new(&hop("osaka", SocketAddr::from(([127, 0, 0, 1], 1)), kind), &pool_metrics());
    pool.set_bounds(PoolBounds { most, age: AGE, idle: IDLE });
    Arc::new(pool)
}

fn pool(most: usize) -> Arc<HopPool> {
    hop_pool(HopKind::Section(Peering { key: own_key().public_key(), own_key: own_key(), encrypt: false }), most)
}

/// Returns a connection with a completed handshake, and the relay's end of it.
fn connection(listener: &TcpListener) -> (IdleConnection, TcpStream) {
    let address = listener.local_addr().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    let link = SectionLink::new(section_keys().0);
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    (IdleConnection { stream, server: ServerAddr(address), link }, far)
}

fn fill(pool: &Arc<HopPool>, waiting: IdleConnection, now: Instant) {
    pool.claim_places(now).pop().expect("a place").complete(waiting, Duration::from_millis(10), now);
}

#[test]
fn oldest_live_connection_without_unread_data_is_taken() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (pool, now) = (pool(8), Instant::now());
    // Each miss raises the number of places.
    (0..8).for_each(|_| drop(pool.take(now, false)));
    let (closed, far_end) = connection(&listener);
    let (talking, mut far_talking) = connection(&listener);
    let (good, _far_good) = connection(&listener);
    let (later, _far_later) = connection(&listener);
    let wanted = [&good, &later].map(|waiting| waiting.stream.local_addr().unwrap());
    let clones = [&closed, &talking].map(|waiting| waiting.stream.try_clone().unwrap());
    for waiting in [closed, talking, good, later] {
        fill(&pool, waiting, now);
    }
    drop(far_end);
    far_talking.write_all(b"!").unwrap();
    clones
        .each_ref()
        .iter()
        .for_each(|clone| wait_until("the FIN or the unexpected byte", || clone.peek(&mut [0]).is_ok()));
    let taken = [0, 1].map(|_| pool.take(now, false).0.unwrap().stream.local_addr().unwrap());
    assert_eq!(taken, wanted);
    let view = pool.view();
    assert_eq!((view.hits, view.misses, view.stale, view.ready), (2, 8, 2, 0));
}

/// The connection after a session of one byte.
fn used(waiting: IdleConnection, encrypt: bool) -> IdleConnection {
    used_for(waiting, 1, encrypt)
}

fn used_for(waiting: IdleConnection, bytes: u64, encrypt: bool) -> IdleConnection {
    let usage = waiting.link.usage.after_session(bytes, encrypt).unwrap();
    IdleConnection { link: SectionLink { usage, ..waiting.link }, ..waiting }
}

#[test]
fn used_connections_with_equal_encryption_are_taken_first() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (pool, now) = (pool(8), Instant::now());
    let all = [0, 1, 2, 3].map(|_| connection(&listener));
    let addresses = all.each_ref().map(|(waiting, _)| waiting.stream.local_addr().unwrap());
    let ([unused, first, last, encrypted], _far): ([_; 4], [_; 4]) = {
        let [(a, b), (c, d), (e, f), (g, h)] = all;
        ([a, c, e, g], [b, d, f, h])
    };
    fill(&pool, unused, now);
    for (waiting, encrypt) in [(first, false), (last, false), (encrypted, true)] {
        pool.put_back(used(waiting, encrypt), now);
    }
    assert_eq!((pool.view().ready, pool.view().used), (1, 3));
    assert!(pool.claim_places(now).is_empty(), "a used connection is ready for a session, too");
    let mut take = |encrypt| pool.take(now, encrypt).0.map(|taken| taken.stream.local_addr().unwrap());
    assert_eq!(
        [false, false, false, false].map(&mut take),
        [Some(addresses[2]), Some(addresses[1]), Some(addresses[0]), None]
    );
    assert_eq!(take(true), Some(addresses[3]));
    let view = pool.view();
    assert_eq!((view.reused, view.hits, view.misses, view.ready, view.used), (3, 1, 1, 0, 0));
}

#[test]
fn pacing_connection_after_a_small_session_is_closed_on_long_paths() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // The setup time in ms, the congestion control, the bytes of the session, and whether the connection is kept.
    for (setup, control, bytes, is_kept) in [
        (100, "reno", 10_000, true),
        (100, "bbr", 10_000, false),
        (100, "bbr", 100_000, true),
        (2, "bbr", 10_000, true),
    ] {
        let (pool, now) = (pool(8), Instant::now());
        let (waiting, _far) = connection(&listener);
        let place = pool.claim_places(now).pop().expect("a place");
        place.complete(waiting, Duration::from_millis(setup), now);
        let waiting = pool.take(now, false).0.expect("the connection that was made");
        if let Err(error) = ekiden_sys::congestion::set(&waiting.stream, control) {
            skipped(format_args!("in part: this machine has no {control}: {error}"));
            continue;
        }
        pool.put_back(used_for(waiting, bytes, false), now);
        assert_eq!(pool.view().used, usize::from(is_kept), "{setup} ms, {control}, {bytes} bytes");
    }
}

#[test]
fn used_connections_are_bounded_in_number_and_idle_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (pool, now) = (pool(2), Instant::now());
    let (unused, _far_unused) = connection(&listener);
    fill(&pool, unused, now);
    let far = [0, 1, 2].map(|_| {
        let (waiting, far) = connection(&listener);
        pool.put_back(used(waiting, false), now);
        far
    });
    assert_eq!((pool.view().ready, pool.view().used), (0, 2), "unused connections make room, used connections do not");
    assert_eq!(far[2].peek(&mut [0]).unwrap(), 0, "the third was closed");
    pool.remove_dead(now + IDLE * 3 / 4 - Duration::from_millis(1));
    assert_eq!(pool.view().used, 2);
    let [first, ..] = far;
    drop(first);
    wait_until("the end of one used connection", || {
        pool.remove_dead(now);
        pool.view().used == 1
    });
    pool.remove_dead(now + IDLE);
    assert_eq!(pool.view().used, 0, "idle for too long");
}

#[test]
fn all_connections_are_discarded_after_a_long_stop() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (pool, now) = (pool(8), Instant::now());
    let far_ends = [0, 1].map(|_| {
        let (waiting, far) = connection(&listener);
        fill(&pool, waiting, now);
        far
    });
    assert_eq!(pool.view().ready, 2);
    pool.remove_dead(now + AGE * 3 / 4 - Duration::from_millis(1));
    assert_eq!(pool.view().ready, 2, "the connections are young");
    let (waiting, short) = pool.take(now + AGE * 100_000, false);
    assert!(waiting.is_none() && short);
    assert_eq!((pool.view().stale, pool.view().misses), (2, 1));
    for far in far_ends {
        assert_eq!(far.peek(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn dials_are_limited_and_single_while_the_hop_is_down() {
    let (pool, now) = (pool(256), Instant::now());
    assert_eq!(pool.claim_places(now).len(), 2);
    let first = pool.claim_places(now);
    assert!(pool.claim_places(now).is_empty(), "places in progress count");
    drop(first);
    (0..200).for_each(|_| drop(pool.take(now, false)));
    assert_eq!(pool.claim_places(now).len(), 64);
    assert!(pool.on_failure(now) && pool.is_down(now));
    assert!(pool.claim_places(now).is_empty(), "the hop has just failed");
    let retry = pool.retry_at().expect("a time to try again");
    let attempt = pool.claim_places(retry);
    assert_eq!((attempt.len(), pool.retry_at()), (1, None), "the retry is claimed");
    let later = retry + Duration::from_secs(100);
    assert!(pool.claim_places(later).is_empty());
    drop(attempt);
    assert_eq!(pool.claim_places(later).len(), 1);
}

#[test]
fn one_session_may_retry_a_hop_without_a_pool_after_a_delay() {
    let (pool, now) = (hop_pool(HopKind::Http(None), 0), Instant::now());
    assert!(!pool.is_down(now) && pool.claim_places(now).is_empty());
    pool.on_failure(now);
    assert!(pool.is_down(now + Duration::from_secs(3)));
    let later = now + Duration::from_secs(6);
    assert!(!pool.is_down(later) && pool.is_down(later), "only one session");
    assert!(pool.on_success(later, later).is_some() && !pool.is_down(later));
    assert_eq!(pool.retry_at(), None);
}
