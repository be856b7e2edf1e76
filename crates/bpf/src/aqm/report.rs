//! The output of `show`: text and JSON.

use std::fmt;
use std::time::Duration;

use ekiden_proto::share::jain_index_of as jain;
use ekiden_proto::units::Bytes;
use serde::Serialize;

use super::reading::{Connection, ConnectionDelta, Counters};
use super::settings::{AqmMode, AqmSettings};

/// How many connections are shown.
const MAX_SHOWN: usize = 10;

/// A connection that sends less than this part of the fair rate is not one that shares: it has nothing to send.
const ACTIVE_SHARE: f64 = 0.01;

/// One connection while it was watched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConnectionShare {
    /// The addresses and the counters of the connection.
    #[serde(flatten)]
    pub connection: Connection,
    /// Passed bits a second.
    pub rate: f64,
    /// Marked or dropped bits a second.
    pub hit_rate: f64,
}

/// The activity at one interface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AqmReport {
    /// The name of the interface.
    pub interface: String,
    /// How it is managed.
    pub settings: AqmSettings,
    /// Since the program was attached.
    pub counters: Counters,
    /// For how long it was watched, in seconds; all below is about that time.
    pub watched: f64,
    /// The backlog before the last packet, in bytes.
    pub waiting: u64,
    /// How long packets waited on average, in milliseconds.
    pub mean_delay_ms: f64,
    /// Passed bits a second.
    pub throughput: f64,
    /// Connections in the table.
    pub known: usize,
    /// Connections that have sent.
    pub active: usize,
    /// The fair rate of a connection, in bits a second.
    pub fair_rate: f64,
    /// Jain's index of their rates: 1 if all are equal, one over their number if one has all. None without any.
    pub jain: Option<f64>,
    /// The connections with the highest rates, in descending order.
    pub heaviest: Vec<ConnectionShare>,
}

impl AqmReport {
    pub(super) fn new(
        interface: &str,
        settings: &AqmSettings,
        counters: Counters,
        recent: Counters,
        gains: Vec<ConnectionDelta>,
        watch: Duration,
    ) -> Self {
        let seconds = watch.as_secs_f64();
        let drain = settings.drain_rate() as f64;
        let known = gains.len();
        let bits = |bytes: u32| f64::from(bytes) * 8.0 / seconds;
        let shares = gains.into_iter().map(|ConnectionDelta { connection, bytes, hit }| ConnectionShare {
            connection,
            rate: bits(bytes),
            hit_rate: bits(hit),
        });
        let mut shares: Vec<ConnectionShare> = shares.filter(|share| share.rate > 0.0).collect();
        shares.sort_by(|one, other| other.rate.total_cmp(&one.rate));
        let active = count_active(&shares, drain);
        let rates: Vec<f64> = shares[..active].iter().map(|share| share.rate).collect();
        shares.truncate(MAX_SHOWN);
        let mean_waited = recent.waited as f64 / recent.arrived().max(1) as f64;
        Self {
            interface: interface.to_owned(),
            settings: settings.clone(),
            counters,
            watched: seconds,
            waiting: recent.waiting,
            mean_delay_ms: mean_waited * 8000.0 / drain,
            throughput: recent.bytes as f64 * 8.0 / seconds,
            known,
            active,
            fair_rate: drain / active.max(1) as f64,
            jain: jain(&rates),
            heaviest: shares,
        }
    }
}

/// How many of the shares, the heaviest first, are large enough to count.
fn count_active(shares: &[ConnectionShare], line: f64) -> usize {
    let fair = line / shares.len().max(1) as f64;
    shares.iter().filter(|share| share.rate >= fair * ACTIVE_SHARE).count()
}

impl fmt::Display for AqmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, counters, .. } = self;
        let queue = if settings.backlog { "real queue" } else { "counted queue" };
        writeln!(f, "{}: {}, {}, {queue}", self.interface, settings.mode, settings.rate)?;
        if matches!(settings.mode, AqmMode::Auto { .. }) {
            writeln!(f, "  limit {}", settings.limit)?;
        } else {
            writeln!(f, "  limit {}, min {}, max {}, p {}", settings.limit, settings.min, settings.max, settings.p)?;
        }
        writeln!(
            f,
            "  seen {}: passed {}, marked {}, dropped {} (full {}, early {}, forced {}), own {}, not IP {}, missed {}",
            counters.arrived(),
            counters.passed,
            counters.marked,
            counters.dropped(),
            counters.full,
            counters.early,
            counters.forced,
            counters.own,
            counters.other,
            counters.missed
        )?;
        writeln!(
            f,
            "  last {:.1} s: {}, waiting {}, mean delay {:.1} ms",
            self.watched,
            format_rate(self.throughput),
            Bytes(self.waiting),
            self.mean_delay_ms
        )?;
        let jain = self.jain.map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}"));
        writeln!(
            f,
            "  connections: {} active of {} known, fair rate {}, Jain index {jain}",
            self.active,
            self.known,
            format_rate(self.fair_rate)
        )?;
        self.heaviest.iter().try_for_each(|share| writeln!(f, "    {share}"))
    }
}

impl fmt::Display for ConnectionShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { source, destination, protocol, .. } = &self.connection;
        let hit = 100.0 * self.hit_rate / (self.rate + self.hit_rate).max(1.0);
        let protocol = match protocol {
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            number => format!("protocol {number}"),
        };
        write!(f, "{:>12}  {protocol} {source} > {destination}, {hit:.2} % hit", format_rate(self.rate))
    }
}

impl fmt::Display for AqmMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Red => f.write_str("red"),
            Self::Auto { target } => write!(f, "auto, target {target}"),
            Self::Static { heavy } => write!(f, "static, heavy {heavy:?}"),
            Self::Dynamic { rec_int, sta_int, hist_len } => {
                write!(f, "dynamic, rec-int {rec_int}, sta-int {sta_int}, hist-len {hist_len}")
            }
        }
    }
}

/// A rate with three digits.
fn format_rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2} Mbit/s", rate / 1e6),
        rate => format!("{:.1} kbit/s", rate / 1e3),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;

    #[test]
    fn jain_index_is_1_for_equal_rates_and_1_over_n_for_one_sender() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
        assert!((jain(&[7.0; 5]).unwrap() - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]).unwrap() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn connections_with_negligible_rates_are_not_active() {
        let share = |rate| ConnectionShare {
            connection: Connection {
                source: "10.0.0.1:1".parse().unwrap(),
                destination: "10.0.0.2:2".parse().unwrap(),
                protocol: 6,
                bytes: 0,
                hit: 0,
            },
            rate,
            hit_rate: 1e6,
        };
        let shares = [50e6, 40e6, 1000.0].map(share);
        assert_eq!(count_active(&shares, 90e6), 2);
        assert_eq!(count_active(&[], 90e6), 0);
        assert_eq!(shares[0].to_string(), "50.00 Mbit/s  tcp 10.0.0.1:1 > 10.0.0.2:2, 1.96 % hit");
    }
}
