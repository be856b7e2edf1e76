use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::path::model::{Congestion, Section};

fn key(number: usize) -> PublicKey {
    let mut key = [5; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    PublicKey(key)
}

fn prefix(number: usize) -> Prefix {
    let number = u32::try_from(number).unwrap() << 8;
    Prefix::from(IpAddr::from(number.to_be_bytes()))
}

fn known(millis: u64) -> Known {
    let section = Section {
        rtt: Duration::from_millis(millis),
        loss: 0.0,
        window: None,
        line: None,
        congestion: Congestion::Cubic,
        mss: 1448,
        warm: true,
    };
    Known { section, confidence: 1.0, own: false }
}

fn millis(known: Option<Known>) -> Option<u128> {
    known.map(|known| known.section.rtt.as_millis())
}

fn map(nodes: usize) -> Map {
    let mut map = Map::new(key(0), "here");
    for number in 1..nodes {
        map.node(key(number), "there");
    }
    map
}

#[test]
fn relays_keep_their_numbers() {
    let mut map = map(4);
    assert_eq!(map.node(key(2), "osaka"), Some(2));
    assert_eq!((map.name(2), map.key(2), map.find(&key(2))), ("osaka", Some(key(2)), Some(2)));
    assert_eq!((map.name(9), map.key(9), map.find(&key(9))), ("?", None, None));
    let mut newer = Map::like(&map);
    newer.node(key(4), "new");
    assert!(map.is_like(&newer) && !newer.is_like(&map));
    assert!(!map.is_like(&Map::new(key(1), "another")));
}

#[test]
fn each_direction_of_a_section_is_known_by_itself() {
    let mut map = map(3);
    map.set_section(0, 1, Direction::Down, &known(10));
    map.set_section(0, 1, Direction::Up, &known(20));
    map.set_section(1, 0, Direction::Down, &known(30));
    assert_eq!(millis(map.section(0, 1, Direction::Down)), Some(10));
    assert_eq!(millis(map.section(0, 1, Direction::Up)), Some(20));
    assert_eq!(millis(map.section(1, 0, Direction::Down)), Some(30));
    assert_eq!(map.section(1, 0, Direction::Up), None);
}

#[test]
fn what_cannot_be_is_not_set() {
    let mut map = map(2);
    map.set_section(1, 1, Direction::Down, &known(1));
    map.set_section(0, 2, Direction::Down, &known(1));
    map.set_section(7, 0, Direction::Down, &known(1));
    map.set_last(2, prefix(1), Direction::Down, &known(1));
    assert!(map.row(0).is_empty() && map.row(1).is_empty() && map.lasts(prefix(1)).is_empty());
}

#[test]
fn the_nearest_relays_to_a_prefix_are_kept_and_this_one() {
    let mut map = map(40);
    map.set_last(0, prefix(1), Direction::Down, &known(500));
    for node in (1..40).rev() {
        map.set_last(node, prefix(1), Direction::Down, &known(node.into()));
    }
    assert_eq!(map.lasts(prefix(1)).len(), MOST_LAST);
    assert_eq!(millis(map.last(0, prefix(1), Direction::Down)), Some(500));
    assert_eq!(millis(map.last(1, prefix(1), Direction::Down)), Some(1));
    assert_eq!(map.last(39, prefix(1), Direction::Down), None);
}

#[test]
fn it_is_bounded_whoever_fills_it() {
    let mut map = map(MOST_NODES + 10);
    assert_eq!((map.nodes(), map.node(key(MOST_NODES + 1), "one more")), (MOST_NODES, None));
    for number in 0..MOST_PREFIXES + 1000 {
        map.set_last(0, prefix(number), Direction::Down, &known(1));
    }
    assert!(map.last.len() <= MOST_PREFIXES, "{}", map.last.len());
    assert!(map.last(0, prefix(MOST_PREFIXES + 999), Direction::Down).is_some(), "the newest");
}
