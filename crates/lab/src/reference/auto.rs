//! Reference model of the fair queue, following the specification at the head of the emulator's `queue/auto.rs`: in
//! 128-bit
//! integers, with a map of connections instead of a hash table.

use std::collections::BTreeMap;

use ekiden_proto::aqm::mix;
use ekiden_proto::units::Rate;

use super::{OutcomeLog, QueueModel, amount, fits, limit_value};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{AutoSettings, QueueLimit};
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::{Ecn, Packet};

const MS: i128 = 1_000_000;
const RANGE: i128 = 6000 * MS;
const R: i128 = 1 << 29;

/// The state of a connection.
#[derive(Clone, Copy, Default)]
struct ConnectionState {
    lead: i128,
    recent: i128,
    last_seen: i128,
    last_hit: Option<(i128, i128)>,
    bytes: i128,
    rate: i128,
    epoch: i128,
    doublings: u32,
}

/// Counters of an epoch.
#[derive(Default)]
struct EpochCounts {
    busy: i128,
    active: i128,
    heavy: i128,
    light: i128,
    leads: i128,
    above: i128,
    below: i128,
    highest: Option<i128>,
}

pub struct AutoModel {
    settings: AutoSettings,
    capacity: i128,
    waiting: Vec<Packet>,
    /// By set and way: the tag, and the state of the connection.
    table: BTreeMap<(u64, usize), (u32, ConnectionState)>,
    counts: EpochCounts,
    previous_highest: Option<i128>,
    epoch: i128,
    epoch_start: i128,
    last: i128,
    average: i128,
    bar: i128,
    pause: i128,
    mean: i128,
    level: i128,
    fair: i128,
    crowd: i128,
}

/// The state of the queue at an arrival.
struct ArrivalState {
    now: i128,
    w: i128,
    q: i128,
}

impl AutoModel {
    pub fn new(settings: AutoSettings, rate: Rate) -> Self {
        let capacity = (i128::from(rate.bits_per_second()) / 8).max(1);
        Self {
            settings,
            capacity,
            waiting: Vec::new(),
            table: BTreeMap::new(),
            counts: EpochCounts::default(),
            previous_highest: None,
            epoch: 0,
            epoch_start: 0,
            last: 0,
            average: 0,
            bar: 0,
            pause: 0,
            mean: 0,
            level: capacity,
            fair: capacity,
            crowd: 256,
        }
    }

    fn time_of(&self, bytes: i128) -> i128 {
        (bytes * ((1_000_000_000 << 16) / self.capacity) / (1 << 16)).min(1 << 36)
    }

    fn half(&self) -> i128 {
        let limit = i128::from(limit_value(self.settings.limit));
        self.time_of(if matches!(self.settings.limit, QueueLimit::Bytes(_)) { limit } else { limit * 1500 }) / 2
    }

    fn price(&self) -> i128 {
        (1_000_000_000 << 16) / self.fair.max(1)
    }

    fn reference(&self) -> i128 {
        let p = self.time_of(1500).min(1 << 30) * self.crowd / 256;
        let target = i128::try_from(self.settings.target.0.as_nanos()).unwrap_or(i128::MAX);
        target.max((80 * p).min(40 * MS)).max(6 * p).min(self.half()).max(1)
    }

    fn urgent(&self) -> i128 {
        (4 * self.reference() + 100 * MS).min(self.half() * 3 / 2).max(1)
    }

    fn end_epoch(&mut self, now: i128) {
        let counts = std::mem::take(&mut self.counts);
        let elapsed = now - self.epoch_start;
        let micros = (elapsed / 1000).min(100_000_000);
        let least = self.capacity / counts.active.max(1);
        let left = (self.capacity * micros / 1_000_000 - counts.light).max(0);
        let most = (left / counts.heavy.max(1) * 1_000_000 / micros).max(least).min(self.capacity);
        let change = self.level * ((counts.above - counts.below).abs() / elapsed).min(1024) / 10_240;
        self.level += if counts.above > counts.below { -change } else { change };
        self.level = self.level.max(least).min(most);
        self.fair = if self.level < self.fair { self.level } else { self.fair + (self.level - self.fair) / 10 }.max(1);
        self.crowd = (self.crowd + 256 * counts.heavy.max(1)) / 2;
        if counts.heavy > 0 {
            self.mean += counts.leads / counts.heavy - RANGE;
        }
        (self.previous_highest, self.epoch, self.epoch_start) = (counts.highest, self.epoch + 1, now);
    }

    /// Updates all state except the connections to `now`.
    fn observe(&mut self, now: i128) -> ArrivalState {
        if self.epoch == 0 {
            (self.epoch, self.epoch_start, self.last) = (1, now, now);
        }
        if now - self.epoch_start >= 1 << 28 {
            self.end_epoch(now);
        }
        let passed = (now - self.last).min(1 << 30);
        self.last = now;
        let bytes: i128 = self.waiting.iter().map(|packet| i128::from(packet.bytes)).sum();
        let w = self.time_of(bytes);
        let step = (w - self.average).abs() * (passed.min(1 << 27) / 128) / (1 << 20);
        self.average += if w > self.average { step } else { -step };
        let q = w.min(self.average);
        let reference = self.reference();
        if q >= reference {
            let x = 1024 * (q - reference).min(4 * reference) / reference;
            self.counts.above += passed * x;
            self.bar -= if now < self.pause { 0 } else { passed * x / 512 };
        } else {
            let x = 1024 * (reference - q) / reference;
            self.counts.below += passed * x;
            self.bar += passed * x / 512;
        }
        if let Some(highest) = self.counts.highest.max(self.previous_highest) {
            self.bar = self.bar.min(highest + 100 * MS);
        }
        self.bar = self.bar.max(self.mean - 1000 * MS);
        ArrivalState { now, w, q }
    }

    /// The set and way of the connection in the table; the connection is inserted if absent.
    fn find_or_insert(&mut self, flow: u32, now: i128) -> (u64, usize) {
        let (set, tag) = ((mix(u64::from(flow)) >> 32) % 2048, flow | 1);
        let entry = |way| self.table.get(&(set, way));
        if let Some(way) = (0..8).find(|way| entry(*way).is_some_and(|(stored, _)| *stored == tag)) {
            return (set, way);
        }
        let oldest =
            (0..8).min_by_key(|way| entry(*way).map_or(0, |(_, connection)| connection.last_seen)).unwrap_or(0);
        let fresh = ConnectionState { lead: self.mean - 500 * MS, last_seen: now, ..ConnectionState::default() };
        let previous =
            entry(oldest).map(|(_, connection)| *connection).filter(|connection| now - connection.last_seen <= 1 << 30);
        self.table.insert((set, oldest), (tag, previous.unwrap_or(fresh)));
        (set, oldest)
    }

    fn update_connection(&mut self, connection: &mut ConnectionState, now: i128) {
        let idle = now - connection.last_seen;
        connection.last_seen = now;
        connection.lead = (connection.lead - idle).clamp(self.mean - RANGE, self.mean + RANGE);
        connection.recent = connection.recent * R / (R + idle.min(1 << 40));
        if connection.epoch != self.epoch {
            self.count(connection);
        }
        if connection.recent > R * 6 / 10 {
            self.counts.highest = self.counts.highest.max(Some(connection.lead));
        }
    }

    fn count(&mut self, connection: &mut ConnectionState) {
        let portion = self.fair * 275 / 1024;
        if connection.epoch > 0 {
            self.counts.active += 1;
            connection.rate =
                if connection.rate == 0 { connection.bytes } else { (connection.rate + connection.bytes) / 2 };
        }
        if 2 * connection.rate >= portion || connection.last_hit.is_some() && 10 * connection.rate >= portion {
            self.counts.heavy += 1;
            self.counts.leads += connection.lead - self.mean + RANGE;
        } else {
            self.counts.light += connection.bytes;
        }
        (connection.bytes, connection.epoch) = (0, self.epoch);
    }

    /// Whether the connection should be hit, without regard to the time since its last hit.
    fn is_due(&self, connection: &ConnectionState, finding: &ArrivalState) -> bool {
        let &ArrivalState { now, w, q } = finding;
        let (reference, urgent) = (self.reference(), self.urgent());
        let score = connection.lead + 6 * (connection.recent - R);
        if connection.recent <= R * 6 / 10 || q <= reference / 2 {
            return false;
        }
        if connection.doublings < 3 && (20 * w < 19 * self.average || now < self.pause && q <= urgent) {
            return false;
        }
        if q <= reference {
            return connection.recent > R && connection.lead.min(score) > self.mean + 1200 * MS;
        }
        let lower = if q > urgent { RANGE / 1024 * (1024 * (q - urgent) / urgent).min(1 << 14) } else { 0 };
        score > self.bar - lower
    }

    fn is_hit(&mut self, connection: &mut ConnectionState, finding: &ArrivalState) -> bool {
        if !self.is_due(connection, finding) {
            return false;
        }
        let mut patience = (600 * MS + 2 * finding.w).min(1500 * MS);
        if connection.recent > 2 * R {
            patience = patience * 2 * R / connection.recent;
        }
        let since = connection.last_hit.map_or(i128::from(u64::MAX), |(at, _)| finding.now - at);
        connection.doublings -= u32::try_from(since >> 31).unwrap_or(u32::MAX).min(connection.doublings);
        let wait = patience >> connection.doublings;
        if since < wait && connection.doublings < 6 {
            return false;
        }
        if since < 2 * wait && connection.last_hit.is_some_and(|(_, recent)| 10 * connection.recent > 9 * recent) {
            connection.doublings += 1 + u32::from(connection.recent > R * 3 / 2) + u32::from(connection.recent > 4 * R);
            connection.doublings = connection.doublings.min(6);
        }
        connection.last_hit = Some((finding.now, connection.recent));
        if connection.doublings < 3 {
            self.pause = finding.now + (patience << 18) / (self.crowd * self.crowd).max(1 << 18);
        }
        true
    }

    fn admit(&mut self, connection: &mut ConnectionState, packet: Packet) {
        let bytes = i128::from(packet.bytes);
        if connection.bytes < 6000 && connection.bytes + bytes >= 6000 {
            self.counts.busy += 1;
            let equal = self.capacity / self.counts.busy;
            if self.average > self.reference() && 2 * equal < self.fair {
                (self.fair, self.level, self.crowd) = (equal.max(1), equal, 256 * self.counts.busy);
            }
        }
        let cost = bytes.min(1 << 17) * self.price() / (1 << 16);
        connection.lead += cost;
        connection.recent = (connection.recent + cost).min(8 * R);
        connection.bytes += bytes;
        self.waiting.push(packet);
    }
}

impl QueueModel for AutoModel {
    fn arrive(&mut self, mut packet: Packet, journal: &mut OutcomeLog) {
        let finding = self.observe(i128::from(packet.at));
        let key = self.find_or_insert(packet.flow, finding.now);
        let (tag, mut connection) = self.table[&key];
        self.update_connection(&mut connection, finding.now);
        let hit = self.is_hit(&mut connection, &finding);
        if hit && !(self.settings.ecn && packet.ecn != Ecn::NotCapable && connection.doublings < 6) {
            journal.record_drop(&packet, packet.at, DropCause::Early);
        } else if !fits(&self.waiting, &packet, self.settings.limit) {
            journal.record_drop(&packet, packet.at, DropCause::Full);
        } else {
            packet.ecn = if hit { Ecn::Marked } else { packet.ecn };
            self.admit(&mut connection, packet);
        }
        self.table.insert(key, (tag, connection));
    }

    fn take(&mut self, _now: Nanos, _journal: &mut OutcomeLog) -> Option<Packet> {
        (amount(&self.waiting, QueueLimit::Packets(1)) > 0).then(|| self.waiting.remove(0))
    }
}
