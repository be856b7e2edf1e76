//! Maps target names to network prefixes. A session does not wait for a lookup: an unknown name is resolved for the
//! next session. A name without a known address has its own placeholder prefix.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ekiden_proto::addr::Host;
use ekiden_proto::path::bounded::BoundedMap;
use ekiden_proto::path::prefix::Prefix;

/// Maximum number of cached names.
const MAX_NAMES: usize = 1 << 16;

/// Maximum number of names with a lookup that is pending or in flight. Further names are ignored until another session
/// requests them.
const MAX_LOOKUPS: usize = 64;

/// Age after which an address is resolved again.
const MAX_AGE: Duration = Duration::from_secs(300);

/// The addresses of known names. Names are stored as hashes, so that the memory of a relay does not reveal the names
/// that users visit.
#[derive(Debug)]
pub struct PrefixCache {
    addresses: BoundedMap<u64, CachedAddress>,
    pending: Vec<Box<str>>,
    /// The names whose lookup has begun and has not ended.
    in_flight: HashSet<Box<str>>,
}

#[derive(Debug, Clone, Copy)]
struct CachedAddress {
    address: IpAddr,
    found_at: Duration,
}

impl PrefixCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self { addresses: BoundedMap::new(MAX_NAMES), pending: Vec::new(), in_flight: HashSet::new() }
    }

    /// Returns the prefix of a host, and queues a lookup for a name without a current address.
    pub fn prefix(&mut self, host: &Host, now: Duration) -> Prefix {
        let name = match host {
            Host::Ip(ip) => return (*ip).into(),
            Host::Name(name) => name,
        };
        let hash = hash(name);
        let cached = self.addresses.get(&hash).copied();
        if cached.is_none_or(|cached| now.saturating_sub(cached.found_at) > MAX_AGE) {
            self.enqueue(name);
        }
        cached.map_or_else(|| placeholder_prefix(hash), |cached| cached.address.into())
    }

    /// Returns the address of a host; `None` for an unknown name.
    #[must_use]
    pub fn address(&self, host: &Host) -> Option<IpAddr> {
        match host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(name) => self.addresses.peek(&hash(name)).map(|cached| cached.address),
        }
    }

    /// Stores the address of a name.
    pub fn insert(&mut self, name: &str, address: IpAddr, now: Duration) {
        self.pending.retain(|waiting| **waiting != *name);
        self.addresses.insert(hash(name), CachedAddress { address, found_at: now });
    }

    /// Takes the names with a pending lookup. Each of them is in flight until [`PrefixCache::end_lookup`].
    pub fn take_pending(&mut self) -> Vec<Box<str>> {
        self.in_flight.extend(self.pending.iter().cloned());
        std::mem::take(&mut self.pending)
    }

    /// Ends a lookup, and stores the address if the lookup has found one.
    pub fn end_lookup(&mut self, name: &str, address: Option<IpAddr>, now: Duration) {
        self.in_flight.remove(name);
        if let Some(address) = address {
            self.insert(name, address, now);
        }
    }

    /// Returns whether names have a pending lookup.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn enqueue(&mut self, name: &str) {
        let has_lookup = self.in_flight.contains(name) || self.pending.iter().any(|waiting| **waiting == *name);
        if !has_lookup && self.pending.len() + self.in_flight.len() < MAX_LOOKUPS {
            self.pending.push(name.into());
        }
    }
}

/// Returns the placeholder prefix of a name without an address: a network in 100::/8, which contains no hosts (RFC
/// 4291, 2.4).
fn placeholder_prefix(hash: u64) -> Prefix {
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
    fn unresolved_name_has_a_prefix_of_its_own() {
        let (mut names, now) = (PrefixCache::new(), Duration::from_secs(9));
        let host = |text: &str| Host::parse(text).unwrap();
        let unknown = names.prefix(&host("a.example"), now);
        assert_ne!(unknown, names.prefix(&host("b.example"), now));
        assert_eq!(unknown, names.prefix(&host("a.example"), now));
        assert_eq!(names.take_pending(), ["a.example".into(), "b.example".into()]);
        assert_eq!(names.prefix(&host("192.0.2.7"), now), "192.0.2.0/24".parse().unwrap());
        assert!(!names.has_pending(), "addresses need no lookup");

        names.end_lookup("a.example", "192.0.2.7".parse().ok(), now);
        assert_eq!(names.address(&host("a.example")), "192.0.2.7".parse().ok());
        assert_eq!(names.prefix(&host("a.example"), now), "192.0.2.0/24".parse().unwrap());
        assert!(!names.has_pending());
        names.prefix(&host("a.example"), now + 2 * MAX_AGE);
        assert!(names.has_pending(), "the address may have changed");
    }

    /// Only the names that waited for the start of their lookup were counted, so that names whose name servers do not
    /// answer had lookups in flight without limit, several for one name.
    #[test]
    fn lookups_are_unique_and_bounded() {
        let (mut names, now) = (PrefixCache::new(), Duration::ZERO);
        let ask = |names: &mut PrefixCache, name: &str| names.prefix(&Host::parse(name).unwrap(), now);
        for number in 0..1000 {
            ask(&mut names, &format!("n{number}.example"));
        }
        let taken = names.take_pending();
        assert_eq!(taken.len(), MAX_LOOKUPS);
        ask(&mut names, "a.example");
        assert!(!names.has_pending(), "all lookups are in flight");
        for name in &taken[..2] {
            names.end_lookup(name, None, now);
        }
        for name in ["a.example", "a.example", &taken[2]] {
            ask(&mut names, name);
        }
        assert_eq!(names.take_pending(), ["a.example".into()], "the last name is in flight");
        ask(&mut names, "b.example");
        names.insert("b.example", "192.0.2.7".parse().unwrap(), now);
        assert!(!names.has_pending(), "the name was resolved meanwhile");
    }
}
