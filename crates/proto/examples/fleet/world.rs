//! A fleet and its targets on the globe: where people live, as far from each other as light in glass needs, and more.

use std::net::IpAddr;
use std::time::Duration;

use ekiden_proto::aqm;
use ekiden_proto::direction::Direction;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::map::{MapEntry, NetworkMap, THIS_RELAY};
use ekiden_proto::path::model::{CongestionControl, Connection, SectionModel};
use ekiden_proto::path::prefix::Prefix;

/// Population centres: latitude, longitude, millions of people, to the nearest degree and million.
const CENTRES: [(f64, f64, f64); 40] = [
    (36.0, 140.0, 37.0),
    (35.0, 136.0, 19.0),
    (34.0, 131.0, 6.0),
    (37.0, 127.0, 26.0),
    (31.0, 121.0, 29.0),
    (40.0, 116.0, 22.0),
    (23.0, 114.0, 45.0),
    (25.0, 121.0, 7.0),
    (14.0, 121.0, 15.0),
    (1.0, 104.0, 6.0),
    (-6.0, 107.0, 11.0),
    (14.0, 101.0, 11.0),
    (11.0, 107.0, 9.0),
    (19.0, 73.0, 21.0),
    (29.0, 77.0, 33.0),
    (13.0, 78.0, 14.0),
    (24.0, 90.0, 23.0),
    (25.0, 67.0, 17.0),
    (25.0, 55.0, 4.0),
    (36.0, 51.0, 9.0),
    (41.0, 29.0, 16.0),
    (30.0, 31.0, 22.0),
    (6.0, 3.0, 16.0),
    (-1.0, 37.0, 5.0),
    (-26.0, 28.0, 10.0),
    (56.0, 38.0, 13.0),
    (52.0, 13.0, 4.0),
    (50.0, 8.0, 6.0),
    (49.0, 2.0, 11.0),
    (52.0, 0.0, 14.0),
    (40.0, -4.0, 7.0),
    (45.0, 9.0, 5.0),
    (41.0, -74.0, 19.0),
    (42.0, -88.0, 9.0),
    (33.0, -97.0, 8.0),
    (34.0, -118.0, 13.0),
    (19.0, -99.0, 22.0),
    (5.0, -74.0, 11.0),
    (-23.0, -47.0, 22.0),
    (-34.0, 151.0, 5.0),
];

/// Degrees around a centre in which its people live.
const SCATTER: f64 = 2.0;

/// Radius of the Earth, and the speed of light in glass, in km and km/s.
const EARTH: f64 = 6371.0;
const LIGHT: f64 = 2.0e5;

/// The way of packets is longer than the line of sight by this factor in the median (Bozkurt and others, "Dissecting
/// latency in the Internet's fiber infrastructure", arXiv 2018), with a random deviation.
const INFLATION: f64 = 2.1;
const SPREAD: f64 = 0.3;

/// Relays that have measured the last section to a prefix, the nearest ones.
const NEAREST: usize = 8;

/// A place on the globe, as a unit vector.
type Place = [f64; 3];

/// Relays and targets, and the figures of all sections.
pub struct World {
    relays: Vec<Place>,
    targets: Vec<Place>,
}

impl World {
    /// One of so many relays, this one included, and prefixes; the same `seed`, the same world.
    pub fn new(relays: usize, prefixes: usize, seed: u64) -> Self {
        let places = |kind: u64, count: usize| (0..count as u64).map(|number| place(seed ^ kind, number)).collect();
        Self { relays: places(1, relays), targets: places(2, prefixes) }
    }

    /// Its map: every relay knows its sections to `neighbours` random others, and to this relay's first.
    pub fn map(&self, neighbours: usize) -> NetworkMap {
        let mut map = NetworkMap::new(key(0), "here");
        for number in 1..self.relays.len() as u32 {
            map.add_node(key(number), &format!("relay{number}"));
        }
        let count = self.relays.len() as u64;
        for from in 0..count {
            for to in (0..count).filter(|to| has_measured(from, *to, count, neighbours)) {
                let pair = from << 32 | to;
                let section = section(self.relays[from as usize], self.relays[to as usize], pair, true);
                set(section, from == 0, |direction, known| map.set_section(from as u32, to as u32, direction, known));
            }
        }
        map
    }

    /// Adds the last sections to all prefixes: of this relay, and of those nearest to them.
    pub fn add_targets(&self, map: &mut NetworkMap) {
        for (number, target) in (0_u64..).zip(&self.targets) {
            let mut near: Vec<(f64, usize)> =
                self.relays.iter().enumerate().skip(1).map(|(at, relay)| (-cosine(*relay, *target), at)).collect();
            let nearest = NEAREST.min(near.len());
            if nearest < near.len() {
                near.select_nth_unstable_by(nearest, |one, other| one.0.total_cmp(&other.0));
            }
            let prefix = prefix(number);
            for relay in near[..nearest].iter().map(|(_, at)| *at).chain([THIS_RELAY as usize]) {
                let section = section(self.relays[relay], *target, 1 << 63 | number << 16 | relay as u64, false);
                set(section, relay == 0, |direction, known| {
                    map.set_last_section(relay as u32, prefix, direction, known)
                });
            }
        }
    }

    pub fn prefixes(&self) -> u64 {
        self.targets.len() as u64
    }
}

/// The prefix of a number.
pub fn prefix(number: u64) -> Prefix {
    Prefix::from(IpAddr::from((0x0b00_0000 + ((number as u32) << 8)).to_be_bytes()))
}

fn has_measured(from: u64, to: u64, count: u64, neighbours: usize) -> bool {
    let share = neighbours as f64 / (count - 1) as f64;
    from != to && (from == 0 || fraction(aqm::random_bits(from, to)) < share)
}

fn key(number: u32) -> PublicKey {
    let mut key = [3; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    PublicKey(key)
}

/// Both directions alike, but for chance.
fn set(section: SectionModel, own: bool, mut set: impl FnMut(Direction, &MapEntry)) {
    for direction in [Direction::Down, Direction::Up] {
        set(direction, &MapEntry { section, confidence: 0.9, is_own: own });
    }
}

/// Between 0 and 1.
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// About the normal distribution (Irwin and Hall).
fn normal(seed: u64) -> f64 {
    (0..12).map(|number| fraction(aqm::random_bits(seed, number))).sum::<f64>() - 6.0
}

/// The place of a user.
fn place(seed: u64, number: u64) -> Place {
    let all: f64 = CENTRES.iter().map(|centre| centre.2).sum();
    let mut left = fraction(aqm::random_bits(seed, number)) * all;
    let centre = CENTRES.iter().find(|centre| {
        left -= centre.2;
        left < 0.0
    });
    let (latitude, longitude, _) = *centre.unwrap_or(&CENTRES[0]);
    let around = |salt: u64| SCATTER * normal(aqm::random_bits(seed ^ salt, number));
    let (latitude, longitude) = ((latitude + around(10)).to_radians(), (longitude + around(11)).to_radians());
    [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
}

fn cosine(one: Place, other: Place) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>().clamp(-1.0, 1.0)
}

/// The properties of the section between two places: loss grows with the distance.
fn section(one: Place, other: Place, pair: u64, relays: bool) -> SectionModel {
    let distance = EARTH * cosine(one, other).acos();
    let inflation = (INFLATION * (SPREAD * normal(pair)).exp()).max(1.0);
    let access = Duration::from_micros(if relays { 300 } else { 3000 });
    let random = fraction(aqm::random_bits(pair, 1));
    // From one in a million next door to one in a thousand around half the globe, and three times more or less.
    let loss = 1e-6 * 10_f64.powf(3.0 * distance / 20_000.0 + random - 0.5);
    SectionModel {
        rtt: Duration::from_secs_f64(2.0 * distance * inflation / LIGHT) + access,
        loss: if relays { loss } else { 3.0 * loss },
        window: Some(4 << 20),
        line_rate: Some([12.5e6, 25e6, 125e6][(random * 3.0) as usize]),
        congestion: CongestionControl::Cubic,
        mss: 1448,
        connection: Connection::ready_if(relays),
    }
}
