//! What a running relay tells about itself: the answer of `/api/sessions`, read again by `ekiden status`.

use std::os::fd::AsFd;

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::SectionInfo;
use ekiden_proto::wire::section::TraceId;
use ekiden_sys::congestion;
use ekiden_sys::tcp_info::tcp_info;
use serde::Serialize;
use serde_json::Value;

use crate::congestion::{Controls, Telemetry};

/// One session that is open now.
#[derive(Debug, Clone, Serialize)]
pub struct SessionView {
    /// Number of the session.
    pub session: u64,
    /// The listener it came in by.
    pub listener: String,
    /// Who connected.
    pub client: ClientAddr,
    /// The user name, where the listener asks for one.
    pub user: Option<String>,
    /// The relay that has sent it, by its name or its key.
    pub peer: Option<String>,
    /// Its name on all relays it goes through.
    pub trace: Option<TraceId>,
    /// Where the client wants to go.
    pub target: Option<Target>,
    /// What was dialled for it.
    pub server: Option<ServerAddr>,
    /// Names of the hops, or `direct`.
    pub path: String,
    /// Age.
    pub seconds: f64,
    /// Bytes toward the server so far.
    pub bytes_up: u64,
    /// Bytes toward the client so far.
    pub bytes_down: u64,
    /// The client's section.
    pub down: Option<SectionView>,
    /// The server's section.
    pub up: Option<SectionView>,
}

/// One section that is open now.
#[derive(Debug, Clone, Serialize)]
pub struct SectionView {
    /// What the kernel knows of every connection.
    #[serde(flatten)]
    pub info: SectionInfo,
    /// Its congestion control.
    pub congestion: String,
    /// Congestion window, packets.
    pub window: u32,
    /// The round trip without queues.
    pub base_rtt_seconds: f64,
    /// Its packets in the path's queues, as estimated.
    pub queued: u32,
    /// What its congestion control says, where that is one of ours.
    pub told: Option<Telemetry>,
}

impl SectionView {
    /// That of `socket`; none when the kernel knows nothing of it.
    pub fn of(socket: impl AsFd + Copy, controls: &Controls) -> Option<Self> {
        let info = tcp_info(socket.as_fd()).ok()?;
        let congestion = congestion::of(socket).ok()?;
        let told = controls.telemetry(&congestion, socket.as_fd()).filter(|told| told.rounds > 0);
        let (window, base_rtt, queued) = match told {
            Some(told) => (told.window, told.base_rtt, told.queued),
            None => (info.cwnd, info.min_rtt, queued(&info)),
        };
        Some(Self { info, congestion, window, base_rtt_seconds: base_rtt.as_secs_f64(), queued, told })
    }
}

/// Packets in queues, of a connection that uses its window: what the window has beyond one round trip without queues
/// (Brakmo, Peterson: TCP Vegas, 1995).
fn queued(info: &SectionInfo) -> u32 {
    let (rtt, base) = (info.rtt.as_micros(), info.min_rtt.as_micros());
    if base == 0 {
        return 0;
    }
    let beyond = u128::from(info.cwnd) * rtt.saturating_sub(base) / rtt.max(1);
    u32::try_from(beyond).unwrap_or(u32::MAX)
}

/// The pool of one next relay.
#[derive(Debug, Clone, Serialize)]
pub struct PoolView {
    /// The relay's name.
    pub relay: String,
    /// Whether it could be reached the last time somebody tried.
    pub up: bool,
    /// Connections that are ready.
    pub ready: usize,
    /// How many there should be.
    pub wanted: usize,
    /// Sessions that got one.
    pub hits: u64,
    /// Sessions that had to dial.
    pub misses: u64,
    /// Connections that had died when a session came.
    pub stale: u64,
}

/// An interface whose rate sections share.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// Its name.
    pub interface: String,
    /// What is shared, in bits a second, with the headers of all packets.
    pub rate_bits: u64,
    /// Sections that send now.
    pub sending: usize,
    /// What each can have for one unit of weight, in bits a second; none while nobody wants that much.
    pub level_bits: Option<u64>,
    /// What they sent in the last second, in bits a second.
    pub sent_bits: u64,
    /// How alike the rates of those were in the last second that were held back, for their weights (Jain's index: 1 is
    /// alike); none when there were fewer than two.
    pub fairness: Option<f64>,
}

/// The answer of `/api/sessions` as a table for people.
///
/// # Errors
/// When it is no such answer.
pub fn table(json: &str) -> Result<String, serde_json::Error> {
    let answer: Value = serde_json::from_str(json)?;
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for session in answer["sessions"].as_array().into_iter().flatten() {
        rows.push([
            text(&session["session"]),
            text(&session["client"]),
            text(&session["target"]),
            text(&session["path"]),
            format!("{:.0}s", session["seconds"].as_f64().unwrap_or(0.0)),
            bytes(&session["bytes_up"]),
            bytes(&session["bytes_down"]),
        ]);
    }
    let mut out = aligned(&rows);
    below(&mut out, &sections(&answer["sessions"]));
    below(&mut out, &pools(&answer["pools"]));
    below(&mut out, &interfaces(&answer["interfaces"]));
    below(&mut out, &congestion(&answer["congestion"]));
    if out.lines().count() > rows.len() {
        out.push('\n');
    }
    let (open, idle) = (&answer["pipes_open"], &answer["pipes_idle"]);
    out.push_str(&format!(
        "{} sessions, {open} pipes ({idle} idle), ekiden {}\n",
        rows.len() - 1,
        text(&answer["version"])
    ));
    Ok(out)
}

const HEADINGS: [&str; 7] = ["SESSION", "CLIENT", "TARGET", "PATH", "AGE", "UP", "DOWN"];

const SECTION_HEADINGS: [&str; 8] =
    ["SESSION", "SECTION", "CONGESTION", "WINDOW", "QUEUED", "BASE RTT", "RTT", "RETRANS"];

/// Both sections of every session: packets, and times.
fn sections(sessions: &Value) -> Vec<[String; 8]> {
    let mut rows = vec![SECTION_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, whose) in [("down", "client"), ("up", "server")] {
            let section = &session[side];
            if section.is_null() {
                continue;
            }
            rows.push([
                text(&session["session"]),
                whose.to_owned(),
                text(&section["congestion"]),
                text(&section["window"]),
                text(&section["queued"]),
                milliseconds(&section["base_rtt_seconds"]),
                milliseconds(&section["rtt_seconds"]),
                text(&section["retransmitted"]),
            ]);
        }
    }
    rows
}

const CONGESTION_HEADINGS: [&str; 4] = ["ASKED FOR", "IN USE", "FROM", "WHY"];

/// What became of the congestion controls that profiles ask for.
fn congestion(all: &Value) -> Vec<[String; 4]> {
    let mut rows = vec![CONGESTION_HEADINGS.map(str::to_owned)];
    for one in all.as_array().into_iter().flatten() {
        rows.push([&one["name"], &one["in_use"], &one["from"], &one["why"]].map(text));
    }
    rows
}

/// A table under another, where it has any rows.
fn below<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    if rows.len() > 1 {
        out.push('\n');
        out.push_str(&aligned(rows));
    }
}

const POOL_HEADINGS: [&str; 7] = ["RELAY", "STATE", "READY", "WANTED", "HITS", "MISSES", "STALE"];

const INTERFACE_HEADINGS: [&str; 6] = ["INTERFACE", "RATE", "SENDING", "LEVEL", "SENT", "FAIRNESS"];

fn pools(pools: &Value) -> Vec<[String; 7]> {
    let mut rows = vec![POOL_HEADINGS.map(str::to_owned)];
    for pool in pools.as_array().into_iter().flatten() {
        rows.push([
            text(&pool["relay"]),
            if pool["up"] == true { "up" } else { "down" }.to_owned(),
            text(&pool["ready"]),
            text(&pool["wanted"]),
            text(&pool["hits"]),
            text(&pool["misses"]),
            text(&pool["stale"]),
        ]);
    }
    rows
}

fn interfaces(interfaces: &Value) -> Vec<[String; 6]> {
    let mut rows = vec![INTERFACE_HEADINGS.map(str::to_owned)];
    for interface in interfaces.as_array().into_iter().flatten() {
        rows.push([
            text(&interface["interface"]),
            rate(&interface["rate_bits"]),
            text(&interface["sending"]),
            rate(&interface["level_bits"]),
            rate(&interface["sent_bits"]),
            interface["fairness"].as_f64().map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}")),
        ]);
    }
    rows
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn bytes(value: &Value) -> String {
    let mut amount = value.as_f64().unwrap_or(0.0);
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return format!("{amount:.0} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |bits| format!("{:.2} Mbit/s", bits / 1e6))
}

fn milliseconds(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{:.1}ms", seconds * 1000.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_proto::event::Congestion;

    use super::*;

    #[test]
    fn sections_and_congestion_controls_have_tables_of_their_own() {
        let info = SectionInfo { rtt: Duration::from_millis(40), retransmitted: 3, ..SectionInfo::default() };
        let told = None;
        let view =
            SectionView { info, congestion: "ctcp".to_owned(), window: 70, base_rtt_seconds: 0.03, queued: 17, told };
        let asked = Congestion {
            name: "vegas".to_owned(),
            in_use: "bbr".to_owned(),
            from: None,
            why: Some("takes root".to_owned()),
        };
        let answer = serde_json::json!({
            "version": "1", "pipes_open": 0, "pipes_idle": 0,
            "sessions": [{ "session": 7, "down": null, "up": view }], "congestion": [asked],
        });
        let shown = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[4], ["7", "server", "ctcp", "70", "17", "30.0ms", "40.0ms", "3"], "{shown}");
        assert_eq!(rows[7], ["vegas", "bbr", "-", "takes", "root"], "{shown}");
    }

    #[test]
    fn queues_are_what_the_window_has_beyond_a_round_trip() {
        let info = |cwnd, rtt, min_rtt| {
            let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(min_rtt));
            queued(&SectionInfo { cwnd, rtt, min_rtt, ..SectionInfo::default() })
        };
        assert_eq!([info(100, 40, 30), info(100, 30, 30), info(100, 30, 40), info(9, 0, 0)], [25, 0, 0, 0]);
    }

    #[test]
    fn pools_stand_under_the_sessions_where_there_are_any() {
        let without = table(r#"{"version":"1","pipes_open":0,"pipes_idle":0,"sessions":[],"pools":[]}"#).unwrap();
        assert_eq!(without.lines().count(), 2, "{without}");
        let pool =
            PoolView { relay: "osaka".to_owned(), up: false, ready: 3, wanted: 12, hits: 100, misses: 7, stale: 1 };
        let answer = serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "pools": [pool] });
        let with = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = with.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], POOL_HEADINGS, "{with}");
        assert_eq!(rows[3], ["osaka", "down", "3", "12", "100", "7", "1"], "{with}");
        assert!(with.ends_with("\n\n0 sessions, 0 pipes (0 idle), ekiden 1\n"), "{with}");
    }

    #[test]
    fn shared_interfaces_stand_there_too() {
        let busy = InterfaceView {
            interface: "wan0".to_owned(),
            rate_bits: 100_000_000,
            sending: 3,
            level_bits: Some(33_333_333),
            sent_bits: 98_765_432,
            fairness: Some(0.9876),
        };
        let idle = InterfaceView { sending: 0, level_bits: None, sent_bits: 0, fairness: None, ..busy.clone() };
        let answer =
            serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "interfaces": [busy, idle] });
        let table = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], INTERFACE_HEADINGS, "{table}");
        assert_eq!(rows[3].join(" "), "wan0 100.00 Mbit/s 3 33.33 Mbit/s 98.77 Mbit/s 0.988", "{table}");
        assert_eq!(rows[4].join(" "), "wan0 100.00 Mbit/s 0 - 0.00 Mbit/s -", "{table}");
    }
}
