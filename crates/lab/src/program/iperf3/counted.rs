//! Per-connection counts of an iperf3 receiver with several connections, second by second.

use anyhow::Context;
use serde::Deserialize;

/// Fields of an iperf3 client report with several connections.
#[derive(Debug, Deserialize)]
struct GroupReport {
    error: Option<String>,
    #[serde(default)]
    end: GroupEnd,
    #[serde(rename = "server_output_json")]
    server: Option<GroupServerOutput>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupEnd {
    sum_sent: Option<GroupSum>,
    sender_tcp_congestion: Option<String>,
}

#[derive(Debug, Deserialize)]
struct GroupSum {
    retransmits: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct GroupServerOutput {
    #[serde(default)]
    intervals: Vec<GroupInterval>,
}

#[derive(Debug, Deserialize)]
struct GroupInterval {
    streams: Vec<StreamInterval>,
}

/// Bytes of one connection in one interval. Times are seconds since the start.
#[derive(Debug, Clone, Copy, Deserialize)]
struct StreamInterval {
    start: f64,
    end: f64,
    bytes: u64,
}

/// Received data of a group of connections.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupStats {
    /// Congestion control of the sending sockets, as reported by the kernel.
    pub congestion: String,
    /// Mean rate of each connection in the counted time, in bytes per second.
    pub rates: Vec<f64>,
    /// Retransmitted packets, over the whole run.
    pub retransmits: u64,
    /// Pairs of seconds since the start and total bytes received.
    pub timeline: Vec<(f64, u64)>,
}

/// Maximum deviation of interval boundaries from whole seconds, in seconds.
const MAX_BOUNDARY_ERROR: f64 = 0.5;

impl GroupStats {
    /// Parses the JSON report of a client. Counts data received between `from` and `to`, in whole seconds of the
    /// receiver's clock, which starts with the first connection.
    ///
    /// # Errors
    /// The client failed, the text is not a report, or no data is in the counted time.
    pub fn parse(text: &str, from: f64, to: f64) -> anyhow::Result<Self> {
        let answer: GroupReport =
            serde_json::from_str(text).with_context(|| format!("iperf3 printed no report: {text:.200}"))?;
        if let Some(error) = answer.error {
            anyhow::bail!("iperf3: {error}");
        }
        let congestion = answer.end.sender_tcp_congestion.context("iperf3 did not report its congestion control")?;
        let intervals = answer.server.map(|server| server.intervals).unwrap_or_default();
        let counts = |interval: &&GroupInterval| {
            interval
                .streams
                .first()
                .is_some_and(|piece| piece.start > from - MAX_BOUNDARY_ERROR && piece.end < to + MAX_BOUNDARY_ERROR)
        };
        let counted: Vec<&GroupInterval> = intervals.iter().filter(counts).collect();
        let connections = counted.first().map_or(0, |interval| interval.streams.len());
        let rate = |connection: usize| {
            let pieces = || counted.iter().filter_map(|interval| interval.streams.get(connection));
            let time: f64 = pieces().map(|piece| piece.end - piece.start).sum();
            #[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
            let bytes = pieces().map(|piece| piece.bytes).sum::<u64>() as f64;
            if time > 0.0 { bytes / time } else { 0.0 }
        };
        anyhow::ensure!(connections > 0, "iperf3's server counted nothing between {from} and {to} s");
        let retransmits = answer.end.sum_sent.and_then(|sent| sent.retransmits).unwrap_or_default();
        let rates = (0..connections).map(rate).collect();
        Ok(Self { congestion, rates, retransmits, timeline: timeline(&intervals) })
    }
}

fn timeline(intervals: &[GroupInterval]) -> Vec<(f64, u64)> {
    let mut points = vec![(0.0, 0)];
    let mut bytes = 0;
    for interval in intervals {
        bytes += interval.streams.iter().map(|piece| piece.bytes).sum::<u64>();
        points.extend(interval.streams.first().map(|piece| (piece.end, bytes)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(server: &str) -> String {
        format!(
            r#"{{"start":{{}}, "end":{{"sum_sent":{{"retransmits":7,"bytes":9}},"sender_tcp_congestion":"reno"}},
            "server_output_json":{{"intervals":[{server}]}}}}"#
        )
    }

    fn second(from: f64, [a, b]: [u64; 2]) -> String {
        let piece = |bytes: u64| format!(r#"{{"socket":5,"start":{from},"end":{},"bytes":{bytes}}}"#, from + 1.0);
        format!(r#"{{"streams":[{},{}],"sum":{{}}}}"#, piece(a), piece(b))
    }

    #[test]
    fn each_connection_has_a_rate_over_the_time_that_counts() {
        let pieces = [second(0.0, [1000, 1]), second(1.0, [100, 20]), second(2.0, [300, 20]), second(3.0, [5000, 0])];
        let text = answer(&pieces.join(","));
        let counted = GroupStats::parse(&text, 1.0, 3.0).unwrap();
        assert_eq!((counted.congestion.as_str(), counted.retransmits), ("reno", 7));
        assert_eq!(counted.rates, [200.0, 20.0]);
        assert_eq!(counted.timeline, [(0.0, 0), (1.0, 1001), (2.0, 1121), (3.0, 1441), (4.0, 6441)]);
    }

    #[test]
    fn what_cannot_be_counted_is_told() {
        let error = |text: &str| GroupStats::parse(text, 0.0, 1.0).unwrap_err().to_string();
        assert_eq!(error(r#"{"error":"the server is busy"}"#), "iperf3: the server is busy");
        assert!(error("{}").contains("did not report its congestion control"));
        assert_eq!(error(&answer("")), "iperf3's server counted nothing between 0 and 1 s");
        assert!(error("parameter error").starts_with("iperf3 printed no report"));
    }
}
