use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::path::model::{CongestionControl, SectionModel};

fn key(number: usize) -> PublicKey {
    let mut key = [5; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    PublicKey(key)
}

fn prefix(number: usize) -> Prefix {
    let number = u32::try_from(number).unwrap() << 8;
    Prefix::from(IpAddr::from(number.to_be_bytes()))
}

fn known(millis: u64) -> MapEntry {
    let section = SectionModel {
        rtt: Duration::from_millis(millis),
        loss: 0.0,
        window: None,
        line_rate: None,
        congestion: CongestionControl::Cubic,
        mss: 1448,
        is_warm: true,
    };
    MapEntry { section, confidence: 1.0, is_own: false }
}

fn millis(known: Option<MapEntry>) -> Option<u128> {
    known.map(|known| known.section.rtt.as_millis())
}

fn map(nodes: usize) -> NetworkMap {
    let mut map = NetworkMap::new(key(0), "here");
    for number in 1..nodes {
        map.add_node(key(number), "there");
    }
    map
}

#[test]
fn relays_keep_their_numbers() {
    let mut map = map(4);
    assert_eq!(map.add_node(key(2), "osaka"), Some(2));
    assert_eq!((map.name(2), map.key(2), map.find(&key(2))), ("osaka", Some(key(2)), Some(2)));
    assert_eq!((map.name(9), map.key(9), map.find(&key(9))), ("?", None, None));
    let mut newer = NetworkMap::empty_like(&map);
    newer.add_node(key(4), "new");
    assert!(map.is_prefix_of(&newer) && !newer.is_prefix_of(&map));
    assert!(!map.is_prefix_of(&NetworkMap::new(key(1), "another")));
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
    map.set_last_section(2, prefix(1), Direction::Down, &known(1));
    assert!(
        map.sections_from(0).is_empty() && map.sections_from(1).is_empty() && map.last_sections(prefix(1)).is_empty()
    );
}

#[test]
fn the_nearest_relays_to_a_prefix_are_kept_and_this_one() {
    let mut map = map(40);
    map.set_last_section(0, prefix(1), Direction::Down, &known(500));
    for node in (1..40).rev() {
        map.set_last_section(node, prefix(1), Direction::Down, &known(node.into()));
    }
    assert_eq!(map.last_sections(prefix(1)).len(), MAX_LAST_SECTIONS);
    assert_eq!(millis(map.last_section(0, prefix(1), Direction::Down)), Some(500));
    assert_eq!(millis(map.last_section(1, prefix(1), Direction::Down)), Some(1));
    assert_eq!(map.last_section(39, prefix(1), Direction::Down), None);
}

#[test]
fn it_is_bounded_whoever_fills_it() {
    let mut map = map(MAX_NODES + 10);
    assert_eq!((map.node_count(), map.add_node(key(MAX_NODES + 1), "one more")), (MAX_NODES, None));
    for number in 0..MAX_PREFIXES + 1000 {
        map.set_last_section(0, prefix(number), Direction::Down, &known(1));
    }
    assert!(map.last_sections.len() <= MAX_PREFIXES, "{}", map.last_sections.len());
    assert!(map.last_section(0, prefix(MAX_PREFIXES + 999), Direction::Down).is_some(), "the newest");
}
