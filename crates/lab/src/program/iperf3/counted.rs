//! What the receiver of several connections counted of each, second by second.

use anyhow::Context;
use serde::Deserialize;

/// A client's answer, as far as it is about several connections.
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

/// What came over one connection in one interval: seconds since the start, and bytes.
#[derive(Debug, Clone, Copy, Deserialize)]
struct StreamInterval {
    start: f64,
    end: f64,
    bytes: u64,
}

/// What came over the connections of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupStats {
    /// The congestion control that the kernel said the sending sockets had.
    pub congestion: String,
    /// Bytes in a second over each connection, in the time that counts.
    pub rates: Vec<f64>,
    /// Packets that were sent again, in all the time.
    pub retransmits: u64,
    /// Seconds since the start, and bytes over all connections by then.
    pub timeline: Vec<(f64, u64)>,
}

/// Intervals end within this of a whole second.
const MAX_BOUNDARY_ERROR: f64 = 0.5;

impl GroupStats {
    /// Reads the JSON object that a client printed. What counts is what came between `from` and `to`, in whole seconds of the
    /// receiver's clock, which starts with the first connection.
    ///
    /// # Errors
    /// It failed, with its own words; or it printed something else, or nothing of the time that counts.
    pub fn parse(text: &str, from: f64, to: f64) -> anyhow::Result<Self> {
        let answer: GroupReport =
            serde_json::from_str(text).with_context(|| format!("iperf3 printed no answer: {text:.200}"))?;
        if let Some(error) = answer.error {
            anyhow::bail!("iperf3: {error}");
        }
        let congestion =
            answer.end.sender_tcp_congestion.context("iperf3 does not say which congestion control it had")?;
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
        assert!(error("{}").contains("does not say which congestion control"));
        assert_eq!(error(&answer("")), "iperf3's server counted nothing between 0 and 1 s");
        assert!(error("parameter error").starts_with("iperf3 printed no answer"));
    }
}
