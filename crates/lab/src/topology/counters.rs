//! Kernel counters of drops and errors on hosts. Any hidden drop invalidates a run.

use std::collections::BTreeSet;
use std::fs;
use std::io;

/// Returns the drops and errors of the calling thread's network namespace that are not 0, by name. Interfaces other
/// than `ours` are ignored.
///
/// # Errors
/// `/proc/thread-self/net` cannot be read.
pub fn read_drops(ours: &BTreeSet<String>) -> io::Result<Vec<(String, u64)>> {
    // /proc/net belongs to the main thread of the process, not to the calling thread.
    let interfaces = fs::read_to_string("/proc/thread-self/net/dev")?;
    let protocols = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let extensions = fs::read_to_string("/proc/thread-self/net/netstat")?;
    let all = interface_drops(&interfaces, ours).into_iter().chain(checksum_errors(&protocols, &extensions));
    Ok(all.filter(|(_, count)| *count > 0).collect())
}

/// Returns the number of TCP connections opened in the calling thread's network namespace.
///
/// # Errors
/// `/proc/thread-self/net` cannot be read.
pub fn active_opens() -> io::Result<u64> {
    let protocols = fs::read_to_string("/proc/thread-self/net/snmp")?;
    Ok(protocol_values(&protocols)
        .into_iter()
        .find(|(what, _)| what == "Tcp ActiveOpens")
        .map_or(0, |(_, value)| value))
}

/// Counters of TCP's loss recovery, of one host or summed over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryCounters {
    /// Retransmitted segments, for any reason (`RetransSegs`).
    pub retransmitted: u64,
    /// Expired retransmission timeouts (`TCPTimeouts`).
    pub timeouts: u64,
}

impl RecoveryCounters {
    /// Returns the increase since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            retransmitted: self.retransmitted.saturating_sub(before.retransmitted),
            timeouts: self.timeouts.saturating_sub(before.timeouts),
        }
    }
}

impl std::iter::Sum for RecoveryCounters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            retransmitted: sum.retransmitted + one.retransmitted,
            timeouts: sum.timeouts + one.timeouts,
        })
    }
}

/// Returns the counters of loss recovery of the calling thread's network namespace.
///
/// # Errors
/// `/proc/thread-self/net` cannot be read.
pub fn read_recovery() -> io::Result<RecoveryCounters> {
    let protocols = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let extensions = fs::read_to_string("/proc/thread-self/net/netstat")?;
    Ok(recovery(&protocols, &extensions))
}

fn recovery(protocols: &str, extensions: &str) -> RecoveryCounters {
    let value = |text: &str, name: &str| {
        protocol_values(text).into_iter().find(|(what, _)| what == name).map_or(0, |(_, value)| value)
    };
    RecoveryCounters {
        retransmitted: value(protocols, "Tcp RetransSegs"),
        timeouts: value(extensions, "TcpExt TCPTimeouts"),
    }
}

/// Columns of `/proc/net/dev` after the name: 2 and 3 are errors and drops on receive, 10 and 11 on send.
const DROP_COLUMNS: [(usize, &str); 4] = [(2, "rx_errors"), (3, "rx_dropped"), (10, "tx_errors"), (11, "tx_dropped")];

fn interface_drops(text: &str, ours: &BTreeSet<String>) -> Vec<(String, u64)> {
    let rows = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| ours.contains(name.trim()));
    rows.flat_map(|(name, numbers)| {
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        DROP_COLUMNS
            .map(|(column, what)| (format!("{} {what}", name.trim()), numbers.get(column).copied().unwrap_or(0)))
    })
    .collect()
}

const CHECKSUM_COUNTERS: [&str; 3] = ["Tcp InErrs", "Tcp InCsumErrors", "Udp InCsumErrors"];

/// The kernel sends a challenge ACK for a retransmitted SYN+ACK whose answer was lost (RFC 5961 section 4), and also
/// counts that segment in `InErrs`.
const CHALLENGE_ACK_COUNTER: &str = "TcpExt TCPSYNChallenge";

fn checksum_errors(protocols: &str, extensions: &str) -> Vec<(String, u64)> {
    let challenges =
        protocol_values(extensions).into_iter().find(|(what, _)| what == CHALLENGE_ACK_COUNTER).map_or(0, |(_, n)| n);
    let errors = protocol_values(protocols).into_iter().filter(|(what, _)| CHECKSUM_COUNTERS.contains(&what.as_str()));
    let fine = |what: &str| if what == "Tcp InErrs" { challenges } else { 0 };
    errors.map(|(what, count)| (what.clone(), count.saturating_sub(fine(&what)))).collect()
}

/// Returns every value by protocol and name. `/proc/net/snmp` and `netstat` have two lines per protocol: names, then
/// numbers.
fn protocol_values(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let pairs =
        lines.chunks_exact(2).map(|pair| (pair[0].0, pair[0].1.split_whitespace().zip(pair[1].1.split_whitespace())));
    pairs
        .flat_map(|(protocol, values)| {
            values.map(move |(name, value)| (format!("{protocol} {name}"), value.parse().unwrap_or(0)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_by_column() {
        let text = "Inter-|   Receive   |  Transmit\n face |bytes packets errs\n\
            lo: 1 1 9 9 0 0 0 0 1 1 9 9 0 0 0 0\ntunnel: 1 1 9 9 0 0 0 0 1 1 9 9 0 0 0 0\n  wan: 900 8 1 2 0 0 0 0 700 6 3 4 0 0 0 0\n";
        let expected = [("wan rx_errors", 1), ("wan rx_dropped", 2), ("wan tx_errors", 3), ("wan tx_dropped", 4)];
        let ours = BTreeSet::from(["wan".to_owned()]);
        assert_eq!(interface_drops(text, &ours), expected.map(|(what, count)| (what.to_owned(), count)));
    }

    #[test]
    fn recovery_counters_are_read_by_name_and_subtracted() {
        let now = recovery(
            "Tcp: InSegs RetransSegs\nTcp: 100 7\n",
            "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 5 2\nIpExt: InOctets\nIpExt: 9\n",
        );
        assert_eq!(now, RecoveryCounters { retransmitted: 7, timeouts: 2 });
        let before = RecoveryCounters { retransmitted: 3, timeouts: 2 };
        assert_eq!(now.since(before), RecoveryCounters { retransmitted: 4, timeouts: 0 });
        assert_eq!([now, before].into_iter().sum::<RecoveryCounters>().retransmitted, 10);
    }

    #[test]
    fn checksum_errors_are_read_by_name() {
        let text = "Tcp: InSegs InErrs InCsumErrors\nTcp: 10 3 2\nUdp: InDatagrams InCsumErrors\nUdp: 7 1\n";
        let expected = [("Tcp InErrs", 3), ("Tcp InCsumErrors", 2), ("Udp InCsumErrors", 1)];
        assert_eq!(checksum_errors(text, ""), expected.map(|(what, count)| (what.to_owned(), count)));
        let challenged = "TcpExt: SyncookiesSent TCPSYNChallenge\nTcpExt: 5 2\n";
        assert_eq!(checksum_errors(text, challenged)[0], ("Tcp InErrs".to_owned(), 1), "challenge ACKs are subtracted");
    }
}
