//! In which prefix the targets of a name lie. A session does not wait for that: what is not known yet is looked up for the
//! next one, and a name without an address is a place of its own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ekiden_proto::addr::Host;
use ekiden_proto::path::bounded::Bounded;
use ekiden_proto::path::prefix::Prefix;

/// Names remembered at most.
const MOST_NAMES: usize = 1 << 16;

/// Names that wait to be looked up, at most; the next session asks again.
const MOST_WAITING: usize = 64;

/// An address is looked up again after this long.
const OLD: Duration = Duration::from_secs(300);

/// What is known of names. They are kept as hashes: nobody reads here where people went.
#[derive(Debug)]
pub struct Names {
    known: Bounded<u64, Found>,
    waiting: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    address: IpAddr,
    at: Duration,
}

impl Names {
    /// None is known.
    #[must_use]
    pub fn new() -> Self {
        Self { known: Bounded::new(MOST_NAMES), waiting: Vec::new() }
    }

    /// Where a host lies.
    pub fn prefix(&mut self, host: &Host, now: Duration) -> Prefix {
        let name = match host {
            Host::Ip(ip) => return (*ip).into(),
            Host::Name(name) => name,
        };
        let hash = hash(name);
        let found = self.known.get(&hash).copied();
        if found.is_none_or(|found| now.saturating_sub(found.at) > OLD) {
            self.wants(name);
        }
        found.map_or_else(|| nowhere(hash), |found| found.address.into())
    }

    /// An address of it, where one is known.
    #[must_use]
    pub fn address(&self, host: &Host) -> Option<IpAddr> {
        match host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(name) => self.known.peek(&hash(name)).map(|found| found.address),
        }
    }

    /// Notes where it does.
    pub fn learn(&mut self, name: &str, address: IpAddr, now: Duration) {
        self.waiting.retain(|waiting| **waiting != *name);
        self.known.insert(hash(name), Found { address, at: now });
    }

    /// The names to look up.
    pub fn take_waiting(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn wants(&mut self, name: &str) {
        if self.waiting.len() < MOST_WAITING && !self.waiting.iter().any(|waiting| **waiting == *name) {
            self.waiting.push(name.into());
        }
    }
}

/// Stands for the place of a name without an address: a network of 100::/8, where no host is (RFC 4291, 2.4).
fn nowhere(hash: u64) -> Prefix {
    let network = 1 << 120 | u128::from(hash & 0xff_ffff_ffff) << 80;
    IpAddr::from(Ipv6Addr::from_bits(network)).into()
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_place_of_its_own_until_it_has_an_address() {
        let (mut names, now) = (Names::new(), Duration::from_secs(9));
        let host = |text: &str| Host::parse(text).unwrap();
        let unknown = names.prefix(&host("a.example"), now);
        assert_ne!(unknown, names.prefix(&host("b.example"), now));
        assert_eq!(unknown, names.prefix(&host("a.example"), now));
        assert_eq!(names.take_waiting(), ["a.example".into(), "b.example".into()]);
        assert_eq!(names.prefix(&host("192.0.2.7"), now), "192.0.2.0/24".parse().unwrap());
        assert!(!names.has_waiting(), "addresses need nobody to look them up");

        names.learn("a.example", "192.0.2.7".parse().unwrap(), now);
        assert_eq!(names.address(&host("a.example")), "192.0.2.7".parse().ok());
        assert_eq!(names.prefix(&host("a.example"), now), "192.0.2.0/24".parse().unwrap());
        assert!(!names.has_waiting());
        names.prefix(&host("a.example"), now + 2 * OLD);
        assert!(names.has_waiting(), "it may have moved");
    }

    #[test]
    fn names_wait_once_and_within_a_bound() {
        let (mut names, now) = (Names::new(), Duration::ZERO);
        let ask = |names: &mut Names, name: &str| names.prefix(&Host::parse(name).unwrap(), now);
        for number in 0..1000 {
            ask(&mut names, &format!("n{number}.example"));
        }
        assert_eq!(names.take_waiting().len(), MOST_WAITING);
        ask(&mut names, "a.example");
        ask(&mut names, "a.example");
        names.learn("a.example", "192.0.2.7".parse().unwrap(), now);
        assert!(!names.has_waiting(), "somebody has found out meanwhile");
    }
}
