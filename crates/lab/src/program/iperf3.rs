//! iperf3 for measured streams and for cross traffic, with counts of each connection per second.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::ProgramInfo;
use super::service::{LaunchSpec, Service};
use crate::topology::network::HostHandle;

/// Program and package of iperf3.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "iperf3", package: "iperf3", executable: "iperf3", version_arguments: &["--version"] };

/// Port of measured streams.
pub const PORT: u16 = 5201;

/// First port of cross traffic.
const CROSS_TRAFFIC_PORT: u16 = 5301;

/// Duration of cross traffic, in seconds: longer than any run.
const MAX_SECONDS: &str = "3600";

/// One stream of cross traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossTraffic {
    /// Number of TCP connections that send without pause.
    Tcp(u32),
    /// Rate of a UDP stream, in bits per second.
    Udp(u64),
}

/// Returns the arguments of a server that reports in JSON, locally and to clients.
#[must_use]
pub fn server_arguments(port: u16) -> Vec<String> {
    ["--server", "--json", "--port", &port.to_string()].map(str::to_owned).into()
}

fn target_arguments(server: SocketAddr) -> Vec<String> {
    ["--client", &server.ip().to_string(), "--port", &server.port().to_string()].map(str::to_owned).into()
}

/// Amount of data of a measured stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAmount {
    /// Sends for this duration.
    Time(Duration),
    /// Sends this number of bytes.
    Bytes(u64),
}

/// Returns the arguments of a client that sends to `server` and retrieves the server's report.
#[must_use]
pub fn client_arguments(server: SocketAddr, amount: StreamAmount) -> Vec<String> {
    let mut all = target_arguments(server);
    all.extend(["--json", "--get-server-output"].map(str::to_owned));
    match amount {
        // iperf3 accepts whole seconds only.
        StreamAmount::Time(time) => all.extend(["--time".into(), format!("{:.0}", time.as_secs_f64())]),
        StreamAmount::Bytes(bytes) => all.extend(["--bytes".into(), bytes.to_string()]),
    }
    all
}

/// Returns the arguments of a client that sends over several `connections` with one congestion control.
#[must_use]
pub fn group_client_arguments(server: SocketAddr, connections: u32, congestion: &str, time: Duration) -> Vec<String> {
    let mut all = client_arguments(server, StreamAmount::Time(time));
    all.extend(["--parallel".into(), connections.to_string(), "--congestion".into(), congestion.to_owned()]);
    all
}

/// Final report of a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Iperf3Report {
    /// Error message; `None` after a success.
    error: Option<String>,
    #[serde(default)]
    end: Iperf3End,
    #[serde(rename = "server_output_json")]
    server: Option<Iperf3ServerOutput>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct Iperf3End {
    #[serde(rename = "sum_received")]
    received: Option<Iperf3Sum>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Iperf3ServerOutput {
    #[serde(default)]
    intervals: Vec<Iperf3Interval>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Iperf3Interval {
    sum: Iperf3Sum,
}

/// Bytes and duration of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Iperf3Sum {
    end: f64,
    seconds: f64,
    bytes: u64,
}

/// Received data of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiverStats {
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// Bytes received in that time.
    pub bytes: u64,
    /// Pairs of seconds since the start and bytes received.
    pub timeline: Vec<(f64, u64)>,
}

/// Start of the error message of a client whose server still runs another test.
const SERVER_BUSY: &str = "the server is busy running a test";

impl Iperf3Report {
    /// Parses the JSON report of a client.
    ///
    /// # Errors
    /// The text is not a report.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).with_context(|| format!("iperf3 printed no report: {text:.200}"))
    }

    /// Returns whether the client failed because the server still runs another test.
    #[must_use]
    pub fn is_server_busy(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.starts_with(SERVER_BUSY))
    }

    /// Returns what the server received.
    ///
    /// # Errors
    /// The client failed; the error has iperf3's message. Or the report lacks the received data.
    pub fn into_received(self) -> anyhow::Result<ReceiverStats> {
        if let Some(error) = self.error {
            anyhow::bail!("iperf3: {error}");
        }
        let sum = self.end.received.context("iperf3 did not report the received data")?;
        let (mut timeline, mut bytes) = (vec![(0.0, 0)], 0);
        for Iperf3Interval { sum } in self.server.map(|server| server.intervals).unwrap_or_default() {
            bytes += sum.bytes;
            timeline.push((sum.end, bytes));
        }
        Ok(ReceiverStats { seconds: sum.seconds, bytes: sum.bytes, timeline })
    }
}

/// Starts stream `number` of a run's cross traffic.
///
/// # Errors
/// iperf3 is not installed, or does not start.
pub fn start_cross_traffic(
    [from, to]: [&HostHandle; 2],
    traffic: CrossTraffic,
    number: u16,
    folder: &Path,
) -> anyhow::Result<[Service; 2]> {
    let executable = PROGRAM.find()?;
    let port = CROSS_TRAFFIC_PORT + number;
    let launch = |role: &str, arguments: Vec<String>, port| LaunchSpec {
        name: format!("iperf3-{role}-{number}"),
        executable: executable.clone(),
        arguments,
        port,
    };
    // The readiness probe does no harm: the server discards a connection that is not a test.
    let server = Service::start(to, launch("server", server_arguments(port), Some(port)), folder)?;
    let mut send = target_arguments(SocketAddr::new(to.address(), port));
    send.extend(["--time".into(), MAX_SECONDS.into()]);
    match traffic {
        CrossTraffic::Tcp(flows) => send.extend(["--parallel".into(), flows.to_string()]),
        CrossTraffic::Udp(rate) => send.extend(["--udp".into(), "--bitrate".into(), rate.to_string()]),
    }
    let client = Service::start(from, launch("client", send, None), folder)?;
    Ok([server, client])
}

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
    /// Number of retransmitted packets of all connections, over the whole run.
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
        anyhow::ensure!(connections > 0, "the iperf3 server received no data between {from} and {to} s");
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

    const TEXT: &str = r#"{"start":{}, "end":{"sum_sent":{"seconds":2,"bytes":9},
        "sum_received":{"start":0,"end":2.1,"seconds":2.1,"bytes":700,"bits_per_second":2800}},
        "server_output_json":{"intervals":[
            {"streams":[],"sum":{"start":0,"end":1.0,"seconds":1.0,"bytes":300}},
            {"streams":[],"sum":{"start":1.0,"end":2.1,"seconds":1.1,"bytes":400}}]}}"#;

    #[test]
    fn report_uses_the_counters_of_the_receiver() {
        let received = Iperf3Report::parse(TEXT).unwrap().into_received().unwrap();
        assert_eq!((received.seconds, received.bytes), (2.1, 700));
        assert_eq!(received.timeline, [(0.0, 0), (1.0, 300), (2.1, 700)]);
    }

    #[test]
    fn errors_of_iperf3_are_quoted() {
        let received = |text: &str| Iperf3Report::parse(text).and_then(Iperf3Report::into_received);
        let error = |text: &str| received(text).unwrap_err().to_string();
        assert_eq!(error(r#"{"start":{},"error":"the server is busy"}"#), "iperf3: the server is busy");
        assert_eq!(error(r#"{"start":{}}"#), "iperf3 did not report the received data");
        assert!(error("iperf3: parameter error").starts_with("iperf3 printed no report: iperf3: parameter"));
    }

    #[test]
    fn server_with_a_running_test_is_busy() {
        let is_busy = |text: &str| Iperf3Report::parse(text).unwrap().is_server_busy();
        assert!(is_busy(r#"{"start":{},"error":"the server is busy running a test. try again later"}"#));
        assert!(!is_busy(r#"{"start":{},"error":"unable to connect to server"}"#) && !is_busy(TEXT));
    }

    #[test]
    fn an_amount_is_a_time_or_bytes() {
        let command_line = |amount| client_arguments("10.0.0.2:5201".parse().unwrap(), amount).join(" ");
        let time = command_line(StreamAmount::Time(Duration::from_secs(5)));
        assert_eq!(time, "--client 10.0.0.2 --port 5201 --json --get-server-output --time 5");
        assert!(command_line(StreamAmount::Bytes(1024)).ends_with("--bytes 1024"));
    }

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
    fn connection_rates_cover_only_the_measured_time() {
        let pieces = [second(0.0, [1000, 1]), second(1.0, [100, 20]), second(2.0, [300, 20]), second(3.0, [5000, 0])];
        let text = answer(&pieces.join(","));
        let counted = GroupStats::parse(&text, 1.0, 3.0).unwrap();
        assert_eq!((counted.congestion.as_str(), counted.retransmits), ("reno", 7));
        assert_eq!(counted.rates, [200.0, 20.0]);
        assert_eq!(counted.timeline, [(0.0, 0), (1.0, 1001), (2.0, 1121), (3.0, 1441), (4.0, 6441)]);
    }

    #[test]
    fn incomplete_group_reports_are_errors() {
        let error = |text: &str| GroupStats::parse(text, 0.0, 1.0).unwrap_err().to_string();
        assert_eq!(error(r#"{"error":"the server is busy"}"#), "iperf3: the server is busy");
        assert!(error("{}").contains("did not report its congestion control"));
        assert_eq!(error(&answer("")), "the iperf3 server received no data between 0 and 1 s");
        assert!(error("parameter error").starts_with("iperf3 printed no report"));
    }
}
