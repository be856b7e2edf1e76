//! The arithmetic floor of the time to the first byte: the least time that the delays of the links allow for a request
//! method. The floor of the last byte adds the transmission time of the file on the slowest line.
//!
//! Round-trip times: `c` between the client and the first relay, `S` over all sections between relays together, `s`
//! between the last relay and the server, `T = c + S + s`. Times are measured at the client, from the start of its
//! first handshake. A one-way delay is half a round-trip time. Relays, programs and queues add no time.
//!
//! The floor of the first byte is:
//!
//! - `2T` for direct connections, forwarders and transparent relays: handshakes end to end or one after another, `T`;
//!   request and response, `T`.
//! - `c + T` for a resource of an HTTP proxy, or of haproxy with `reuse`: handshake, `c`; request and response over
//!   reused connections, `T`.
//! - `2(c + S) + 2T` for SOCKS between all relays: handshake and greeting in every section up to the last relay,
//!   `2(c + S)`; the request takes `(c + S)/2` to the last relay, the handshake with the server `s`, and the reply
//!   `(c + S)/2`, together `T`; then the file, `T`.
//! - `c + 2T` for a tunnel, strict: handshake, `c`; `CONNECT` takes `c/2` to the first relay, OPEN `S/2` to the last
//!   relay, the handshake with the server `s`, and the reply `(S + c)/2`, together `T`; then the file, `T`.
//! - `c + T + max(c, s)` for a tunnel, early: after the handshake, `c`, `CONNECT` takes `c/2` to the first relay, and
//!   the reply "connected" arrives at the client at `2c`. The last relay has connected to the server at
//!   `3c/2 + S/2 + s`, and has received the request at `2c + c/2 + S/2`; the later of the two times is
//!   `3c/2 + S/2 + max(c, s)`. The request then takes `s/2` to the server, and the response `s/2 + S/2 + c/2` to the
//!   client.
//! - the floor of a tunnel plus `c` for SOCKS to the first relay and sections between relays: the greeting takes `c`.
//!
//! Encryption between relays is negotiated before a session begins, so it adds no time.

use super::limit;
use crate::experiment::collect::metric::{COMPLETION, FIRST_BYTE};
use crate::experiment::spec::read::RunSpec;
use crate::experiment::spec::treatment::{RelayProgram, Treatment};
use crate::program::chain;
use crate::program::command::ProxyKind;
use crate::program::server::Protocol;
use crate::topology::{Lab, plan};

/// The floor of a request method on a path.
#[derive(Debug, Clone, PartialEq)]
pub struct ArithmeticFloor {
    /// The formula of the floor.
    pub formula: String,
    /// The least possible time, in milliseconds.
    pub milliseconds: f64,
}

/// The round-trip times of a path, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RoundTrips {
    /// Between the client and the first relay; without relays, between the client and the server.
    client: f64,
    /// Between the first and the last relay.
    between: f64,
    /// Between the last relay and the server; 0 without relays.
    server: f64,
}

impl RoundTrips {
    fn from_spec(spec: &RunSpec) -> Option<Self> {
        let (client, server) = (&spec.workload.client, &spec.workload.server);
        let relays = if spec.treatment.program == RelayProgram::Direct { &[] } else { spec.treatment.chain.as_slice() };
        let (Some(first), Some(last)) = (relays.first(), relays.last()) else {
            return Some(Self { client: round_trip(&spec.lab, client, server)?, between: 0.0, server: 0.0 });
        };
        let between = relays.windows(2).map(|two| round_trip(&spec.lab, &two[0], &two[1])).sum::<Option<f64>>()?;
        let (client, server) = (round_trip(&spec.lab, client, first)?, round_trip(&spec.lab, last, server)?);
        Some(Self { client, between, server })
    }
}

/// Returns the floor of the first byte of the runs. `None` unless the protocol is HTTP, the request method is known,
/// and the links do not change.
#[must_use]
pub fn first_byte_floor(spec: &RunSpec) -> Option<ArithmeticFloor> {
    if spec.workload.protocol != Protocol::Http || !spec.lab.events.is_empty() {
        return None;
    }
    let RoundTrips { client: c, between, server: s } = RoundTrips::from_spec(spec)?;
    let total = c + between + s;
    let (formula, milliseconds) = match request_method(&spec.treatment)? {
        RequestMethod::EndToEnd => ("2T", 2.0 * total),
        RequestMethod::Resource => ("c + T", c + total),
        RequestMethod::SocksPerRelay => ("2(c + S) + 2T", 2.0 * (c + between) + 2.0 * total),
        RequestMethod::Tunnel { early: false } => ("c + 2T", c + 2.0 * total),
        RequestMethod::Tunnel { early: true } => ("c + T + max(c, s)", c + total + c.max(s)),
        RequestMethod::Socks { early: false } => ("2c + 2T", 2.0 * c + 2.0 * total),
        RequestMethod::Socks { early: true } => ("2c + T + max(c, s)", 2.0 * c + total + c.max(s)),
    };
    Some(ArithmeticFloor { formula: formula.to_owned(), milliseconds })
}

/// Returns the floor of the last byte: the floor of the first byte plus the transmission time of the file on the
/// slowest line of the path. It assumes windows of at least the bandwidth-delay product, which never make a sender
/// wait.
#[must_use]
pub fn last_byte_floor(spec: &RunSpec) -> Option<ArithmeticFloor> {
    let ArithmeticFloor { formula, milliseconds } = first_byte_floor(spec)?;
    let bytes = spec.workload.file?.0;
    let relays = if spec.treatment.program == RelayProgram::Direct { &[] } else { spec.treatment.chain.as_slice() };
    let hosts: Vec<&String> =
        std::iter::once(&spec.workload.server).chain(relays.iter().rev()).chain([&spec.workload.client]).collect();
    let rates = hosts.windows(2).map(|pair| limit::section_line_rate(&spec.lab, pair[0], pair[1]));
    let rate = rates.collect::<Option<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
    #[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
    let on_line = 1e3 * bytes as f64 / rate;
    Some(ArithmeticFloor { formula: format!("{formula} + B/R"), milliseconds: milliseconds + on_line })
}

/// Returns the floor of a metric that is the time to the first or to the last byte, of all or of some transfers. `None`
/// for other metrics.
#[must_use]
pub fn metric_floor(spec: &RunSpec, metric: &str) -> Option<ArithmeticFloor> {
    match metric.split_once('.').map_or(metric, |(base, _)| base) {
        FIRST_BYTE => first_byte_floor(spec),
        COMPLETION => last_byte_floor(spec),
        _ => None,
    }
}

/// The request method of a client, and its form between relays.
enum RequestMethod {
    EndToEnd,
    Resource,
    SocksPerRelay,
    Tunnel { early: bool },
    Socks { early: bool },
}

fn request_method(treatment: &Treatment) -> Option<RequestMethod> {
    let is_single_request =
        treatment.program == RelayProgram::Ekiden && (treatment.sections || treatment.chain.len() == 1);
    let early = treatment.early;
    match (treatment.program, chain::proxy_kind(treatment)) {
        (RelayProgram::Haproxy, _) if treatment.reuse => Some(RequestMethod::Resource),
        (RelayProgram::Direct | RelayProgram::Haproxy, _) | (_, ProxyKind::Transparent) => {
            Some(RequestMethod::EndToEnd)
        }
        (RelayProgram::Dante, _) => Some(RequestMethod::SocksPerRelay),
        (RelayProgram::Squid | RelayProgram::Ekiden, ProxyKind::Http) if !treatment.tunnel => {
            Some(RequestMethod::Resource)
        }
        (RelayProgram::Ekiden, ProxyKind::Http) if is_single_request => Some(RequestMethod::Tunnel { early }),
        (RelayProgram::Ekiden, ProxyKind::Socks) if is_single_request => Some(RequestMethod::Socks { early }),
        _ => None,
    }
}

/// Returns the round-trip time in milliseconds; `None` without a route.
fn round_trip(lab: &Lab, a: &str, b: &str) -> Option<f64> {
    plan::round_trip(lab, a, b).map(|seconds| seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec::read::Experiment;

    /// Sections with round trips of 20, 50 and 30 ms; the last has the longer delay in the reverse direction.
    const LINE: &str = r#"
lab = 1
name = "line"
title = "A line"
[host.client]
[host.r1]
forward = true
[host.r2]
forward = true
[host.server]
[link.s1]
ends = ["client", "r1"]
delay = "10ms"
[link.s2]
ends = ["r2", "r1"]
delay = "25ms"
[link.s3]
ends = ["r2", "server"]
delay = "5ms"
reverse = { delay = "25ms" }
[workload]
protocol = "http"
file = "1MB"
chain = ["r1", "r2"]
[treatment.it]
TREATMENT
[experiment]
treatments = ["it"]
blocks = { quick = 1, full = 1 }
"#;

    fn floor(treatment: &str) -> Option<(String, f64)> {
        let experiment = Experiment::parse("line", &LINE.replace("TREATMENT", treatment)).unwrap();
        first_byte_floor(&experiment.cells[0].spec)
            .map(|floor| (floor.formula, (floor.milliseconds * 1e3).round() / 1e3))
    }

    fn ekiden(mode: &str) -> Option<(String, f64)> {
        floor(&format!("program = \"ekiden\"\nsections = true\n{mode}"))
    }

    #[allow(clippy::unnecessary_wraps, reason = "what floor() returns")]
    fn known(formula: &str, milliseconds: f64) -> Option<(String, f64)> {
        Some((formula.to_owned(), milliseconds))
    }

    #[test]
    fn each_request_mode_has_its_floor() {
        assert_eq!(floor("program = \"direct\""), known("2T", 200.0));
        assert_eq!(floor("program = \"haproxy\""), known("2T", 200.0));
        assert_eq!(
            floor("program = \"haproxy\"\nreuse = true"),
            known("c + T", 120.0),
            "HAProxy sends requests as a client does"
        );
        assert_eq!(floor("program = \"squid\""), known("c + T", 120.0));
        assert_eq!(floor("program = \"dante\""), known("2(c + S) + 2T", 340.0));
        assert_eq!(ekiden("mode = \"http\""), known("c + T", 120.0));
        assert_eq!(ekiden("mode = \"http\"\ntunnel = true"), known("c + 2T", 220.0));
        assert_eq!(ekiden("mode = \"http\"\ntunnel = true\nencrypt = true"), known("c + 2T", 220.0));
        assert_eq!(ekiden("mode = \"http\"\ntunnel = true\nearly = true"), known("c + T + max(c, s)", 150.0));
        assert_eq!(ekiden(""), known("2c + 2T", 240.0));
        assert_eq!(ekiden("early = true"), known("2c + T + max(c, s)", 170.0));
    }

    #[test]
    fn unsupported_paths_have_no_floor() {
        assert_eq!(floor("program = \"ekiden\""), None, "a chain of SOCKS relays");
        assert_eq!(floor("program = \"squid\"\ntunnel = true"), None);
        assert_eq!(floor("program = \"command\"\ncommand = [\"x\"]\nready = \"tcp:1\""), None);
        assert_eq!(floor("program = \"direct\"\nset = { \"workload.protocol\" = \"ftp\" }"), None);
        let event = "program = \"direct\"\n[[event]]\nat = \"1s\"\nlink = \"s1\"\nset = { delay = \"1ms\" }";
        assert_eq!(floor(event), None);
    }

    #[test]
    fn single_relay_floor_is_that_of_a_chain_without_inner_sections() {
        let single = floor("program = \"ekiden\"\nmode = \"http\"\ntunnel = true\nchain = [\"r1\"]");
        assert_eq!(single, known("c + 2T", 220.0));
        assert_eq!(ekiden("early = true\nchain = [\"r2\"]"), known("2c + T + max(c, s)", 310.0));
    }

    #[test]
    fn completion_floor_adds_file_transmission_on_the_slowest_line() {
        let text = LINE.replace("TREATMENT", "program = \"squid\"").replace(
            "reverse = { delay = \"25ms\" }",
            "rate = \"500Mbit/s\"\nreverse = { delay = \"25ms\", rate = \"100Mbit/s\" }",
        );
        let spec = Experiment::parse("line", &text).unwrap().cells[0].spec.clone();
        let floor = metric_floor(&spec, "completion_ms.later").unwrap();
        // 1,000,000 bytes in packets of 1448 of 1500, in the server's direction.
        assert_eq!(floor.formula, "c + T + B/R");
        assert!((floor.milliseconds - (120.0 + 80.0 * 1500.0 / 1448.0)).abs() < 1e-9, "{floor:?}");
        assert_eq!(metric_floor(&spec, "first_byte_ms"), first_byte_floor(&spec));
        assert_eq!(metric_floor(&spec, "mb_s"), None);
    }
}
