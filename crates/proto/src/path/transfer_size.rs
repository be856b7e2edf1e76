//! The probable size and direction of a session, from earlier sessions with its host, or else from its port.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::addr::Host;
use crate::direction::Direction;

use super::bounded::BoundedMap;
use super::experience::SizeClass;

/// Maximum number of entries, one for each pair of host and port.
const MAX_HOSTS: usize = 1 << 16;

/// Number of recent sessions that count, for each pair of host and port.
const MAX_SESSIONS: usize = 12;

/// The weight of a session relative to the next newer one: after three large downloads from a host of small ones, the
/// next session is expected to be large.
const SESSION_DECAY: f64 = 0.85;

/// Time after the last session in which the weights of all sessions halve.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);

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

    /// The usual size for a port, if the host is unknown.
    #[must_use]
    pub const fn default_for_port(port: u16) -> Self {
        match port {
            // Name service, time, terminals, chat: latency matters more than volume.
            22 | 23 | 53 | 123 | 853 | 3389 | 5900 | 6667 | 6697 => Self::down(8 << 10),
            // Mail: submission and transfer ports carry uploads, mailbox ports downloads.
            25 | 465 | 587 => Self::up(64 << 10),
            110 | 143 | 993 | 995 => Self::down(64 << 10),
            // Copies of whole directory trees are large downloads.
            20 | 21 | 873 | 989 | 990 | 9418 => Self::down(16 << 20),
            _ => Self::down(1 << 20),
        }
    }
}

/// Sizes of sessions by host and port. Hosts are stored as hashes, so the memory of a relay does not reveal the hosts
/// that users connect to.
#[derive(Debug, Clone)]
pub struct TransferHistory {
    hosts: BoundedMap<u64, RecentSessions>,
}

/// Sizes and main directions of the last sessions with one host and port, the newest first.
#[derive(Debug, Clone, Default)]
struct RecentSessions {
    sessions: VecDeque<(SizeClass, Direction)>,
    updated_at: Duration,
}

impl Default for TransferHistory {
    fn default() -> Self {
        Self { hosts: BoundedMap::new(MAX_HOSTS) }
    }
}

impl TransferHistory {
    /// Returns the probable size and direction of a session to `host` and `port`: the median of the last sessions, and
    /// the direction of most of them. A median follows a lasting change within a few sessions, and ignores a single
    /// exception.
    pub fn predict(&mut self, host: &Host, port: u16, now: Duration) -> TransferSize {
        let port_default = TransferSize::default_for_port(port);
        let Some(recent) = self.hosts.get(&host_key(host, port)) else { return port_default };
        let mut weighted = recent.weighted(now);
        weighted.push((SizeClass::for_bytes(port_default.bytes), port_default.direction, PORT_WEIGHT));
        weighted.sort_by_key(|(size, ..)| *size);
        let half_weight = weighted.iter().map(|(.., weight)| weight).sum::<f64>() / 2.0;
        let up_weight: f64 = weighted.iter().filter(|it| it.1 == Direction::Up).map(|(.., weight)| weight).sum();
        let mut weight_below = 0.0;
        let median = weighted.iter().find(|(.., weight)| {
            weight_below += weight;
            weight_below >= half_weight
        });
        TransferSize {
            bytes: median.map_or(port_default.bytes, |(size, ..)| size.bytes()),
            direction: if up_weight > half_weight { Direction::Up } else { Direction::Down },
        }
    }

    /// Records the total bytes of a session to `host` and `port`.
    pub fn record(&mut self, host: &Host, port: u16, down: u64, up: u64, now: Duration) {
        let direction = if up > down { Direction::Up } else { Direction::Down };
        let recent = self.hosts.get_or_insert_with(host_key(host, port), RecentSessions::default);
        recent.sessions.truncate(MAX_SESSIONS - 1);
        recent.sessions.push_front((SizeClass::for_bytes(down.max(up)), direction));
        recent.updated_at = recent.updated_at.max(now);
    }
}

impl RecentSessions {
    /// The sessions with their weights at time `now`.
    fn weighted(&self, now: Duration) -> Vec<(SizeClass, Direction, f64)> {
        let age = now.saturating_sub(self.updated_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let weights = std::iter::successors(Some((-age).exp2()), |weight| Some(weight * SESSION_DECAY));
        self.sessions.iter().zip(weights).map(|((size, direction), weight)| (*size, *direction, weight)).collect()
    }
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
    fn new_host_gets_the_default_size_of_its_port() {
        let mut sizes = TransferHistory::default();
        let predicted_size = |sizes: &mut TransferHistory, port| sizes.predict(&host("new.example"), port, DAY).bytes;
        assert!(predicted_size(&mut sizes, 22) < predicted_size(&mut sizes, 443));
        assert!(predicted_size(&mut sizes, 443) < predicted_size(&mut sizes, 873));
        assert_eq!(sizes.predict(&host("mail.example"), 587, DAY).direction, Direction::Up);
    }

    #[test]
    fn prediction_follows_earlier_sessions() {
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
        assert!(later.bytes < 2 << 20, "no longer counts after a month: {later:?}");
    }

    #[test]
    fn single_large_session_does_not_change_the_prediction() {
        let mut sizes = TransferHistory::default();
        for bytes in [4000, 6000, 5000, 1 << 30, 5000] {
            sizes.record(&host("api.example"), 443, bytes, 500, DAY);
        }
        let predicted_size = sizes.predict(&host("api.example"), 443, DAY);
        assert!(predicted_size.bytes < 1 << 18, "{predicted_size:?}");
    }

    /// The host has served small answers, and now serves files.
    #[test]
    fn three_large_sessions_change_the_prediction() {
        let mut sizes = TransferHistory::default();
        let mut after = |bytes| {
            sizes.record(&host("files.example"), 443, bytes, 500, DAY);
            sizes.predict(&host("files.example"), 443, DAY).bytes
        };
        let small = [2000, 2000, 2000, 2000].map(&mut after);
        assert_eq!(small[3], 2048);
        let large = [8 << 20, 8 << 20, 8 << 20].map(&mut after);
        assert!(large[0] < 8 << 20 && large[2] == 8 << 20, "{large:?}");
    }

    #[test]
    fn extreme_sessions_give_a_positive_prediction() {
        let mut sizes = TransferHistory::default();
        sizes.record(&host("192.0.2.1"), 1, 0, 0, Duration::MAX);
        sizes.record(&host("192.0.2.1"), 1, u64::MAX, 0, Duration::ZERO);
        assert!(sizes.predict(&host("192.0.2.1"), 1, Duration::ZERO).bytes > 0);
    }
}
