//! The probable size and direction of a session: from earlier sessions with its host, else from its port.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::addr::Host;
use crate::direction::Direction;

use super::bounded::BoundedMap;

/// Entries at most, one per pair of host and port.
const MAX_HOSTS: usize = 1 << 16;

/// Time after which the weight of a session has halved.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Largest weight of one host and port, in sessions.
const MAX_WEIGHT: f64 = 16.0;

/// The weight of the usual size of a port, in sessions.
const PORT_WEIGHT: f64 = 0.5;

/// The probable size and direction of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferSize {
    /// Bytes in the direction that carries more.
    pub bytes: u64,
    /// The direction that carries more.
    pub direction: Direction,
}

impl TransferSize {
    /// A transfer of `bytes` toward the client.
    #[must_use]
    pub const fn down(bytes: u64) -> Self {
        Self { bytes, direction: Direction::Down }
    }

    /// A transfer of `bytes` toward the server.
    #[must_use]
    pub const fn up(bytes: u64) -> Self {
        Self { bytes, direction: Direction::Up }
    }

    /// The usual size for a port, when the host is unknown.
    #[must_use]
    pub const fn default_for_port(port: u16) -> Self {
        match port {
            // Name service, time, terminals, chat: latency matters more than volume.
            22 | 23 | 53 | 123 | 853 | 3389 | 5900 | 6667 | 6697 => Self::down(8 << 10),
            // Mail: submission and transfer ports carry uploads, mailbox ports downloads.
            25 | 465 | 587 => Self::up(64 << 10),
            110 | 143 | 993 | 995 => Self::down(64 << 10),
            // Copies of whole directory trees.
            20 | 21 | 873 | 989 | 990 | 9418 => Self::down(16 << 20),
            _ => Self::down(1 << 20),
        }
    }
}

/// Sizes of sessions by host and port. Hosts are kept as hashes: the memory of a relay does not reveal where users go.
#[derive(Debug, Clone)]
pub struct TransferHistory {
    hosts: BoundedMap<u64, TransferStats>,
}

/// Mean logarithms of the sizes, and their weight.
#[derive(Debug, Clone, Copy, Default)]
struct TransferStats {
    down: f64,
    up: f64,
    weight: f64,
    updated_at: Duration,
}

impl Default for TransferHistory {
    fn default() -> Self {
        Self { hosts: BoundedMap::new(MAX_HOSTS) }
    }
}

impl TransferHistory {
    /// The probable size of a session to `host` and `port`.
    pub fn predict(&mut self, host: &Host, port: u16, now: Duration) -> TransferSize {
        let usual = TransferSize::default_for_port(port);
        let Some(carried) = self.hosts.get(&host_key(host, port)) else { return usual };
        let weight = carried.weight_at(now);
        let log = carried.down.max(carried.up);
        let mean = (weight * log + PORT_WEIGHT * log2_bytes(usual.bytes)) / (weight + PORT_WEIGHT);
        let direction = if carried.up > carried.down { Direction::Up } else { Direction::Down };
        TransferSize { bytes: mean.exp2().round() as u64, direction }
    }

    /// Records the total bytes of a session to `host` and `port`.
    pub fn record(&mut self, host: &Host, port: u16, down: u64, up: u64, now: Duration) {
        self.hosts.get_or_insert_with(host_key(host, port), TransferStats::default).record(
            log2_bytes(down),
            log2_bytes(up),
            now,
        );
    }
}

impl TransferStats {
    fn weight_at(&self, now: Duration) -> f64 {
        self.weight * (-now.saturating_sub(self.updated_at).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }

    fn record(&mut self, down: f64, up: f64, now: Duration) {
        self.weight = (self.weight_at(now) + 1.0).min(MAX_WEIGHT);
        self.updated_at = self.updated_at.max(now);
        self.down += (down - self.down) / self.weight;
        self.up += (up - self.up) / self.weight;
    }
}

/// Sizes are averaged as logarithms, so one large session among small ones does not dominate the mean.
fn log2_bytes(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

fn host_key(host: &Host, port: u16) -> u64 {
    let mut hasher = DefaultHasher::new();
    (host, port).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = HALF_LIFE;

    fn host(name: &str) -> Host {
        Host::parse(name).unwrap()
    }

    #[test]
    fn a_new_host_carries_what_is_usual_for_the_port() {
        let mut sizes = TransferHistory::default();
        let likely = |sizes: &mut TransferHistory, port| sizes.predict(&host("new.example"), port, DAY).bytes;
        assert!(likely(&mut sizes, 22) < likely(&mut sizes, 443));
        assert!(likely(&mut sizes, 443) < likely(&mut sizes, 873));
        assert_eq!(sizes.predict(&host("mail.example"), 587, DAY).direction, Direction::Up);
    }

    #[test]
    fn what_came_before_tells_what_will() {
        let mut sizes = TransferHistory::default();
        for _ in 0..8 {
            sizes.record(&host("mirror.example"), 443, 64 << 20, 1000, DAY);
            sizes.record(&host("backup.example"), 443, 1000, 8 << 20, DAY);
        }
        let mirror = sizes.predict(&host("mirror.example"), 443, DAY);
        assert!((40 << 20..=64 << 20).contains(&mirror.bytes) && mirror.direction == Direction::Down, "{mirror:?}");
        let backup = sizes.predict(&host("backup.example"), 443, DAY);
        assert!((6 << 20..=8 << 20).contains(&backup.bytes) && backup.direction == Direction::Up, "{backup:?}");
        assert_eq!(sizes.predict(&host("mirror.example"), 80, DAY), TransferSize::default_for_port(80), "another port");
        let later = sizes.predict(&host("mirror.example"), 443, 30 * DAY);
        assert!(later.bytes < 2 << 20, "forgotten in a month: {later:?}");
    }

    #[test]
    fn one_large_session_among_small_ones_is_an_exception() {
        let mut sizes = TransferHistory::default();
        for bytes in [4000, 6000, 5000, 1 << 30, 5000] {
            sizes.record(&host("api.example"), 443, bytes, 500, DAY);
        }
        let likely = sizes.predict(&host("api.example"), 443, DAY);
        assert!(likely.bytes < 1 << 18, "{likely:?}");
    }

    #[test]
    fn nothing_carried_is_little_and_never_fails() {
        let mut sizes = TransferHistory::default();
        sizes.record(&host("192.0.2.1"), 1, 0, 0, Duration::MAX);
        sizes.record(&host("192.0.2.1"), 1, u64::MAX, 0, Duration::ZERO);
        assert!(sizes.predict(&host("192.0.2.1"), 1, Duration::ZERO).bytes > 0);
    }
}
