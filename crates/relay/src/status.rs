//! What a running relay tells about itself: the answer of `/api/sessions`, read again by `ekiden status`.

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::SectionInfo;
use ekiden_proto::wire::section::TraceId;
use serde::Serialize;
use serde_json::Value;

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
    pub down: Option<SectionInfo>,
    /// The server's section.
    pub up: Option<SectionInfo>,
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
            section(&session["down"]),
            section(&session["up"]),
        ]);
    }
    let mut out = aligned(&rows);
    let below = [section_of(&pools(&answer["pools"])), section_of(&interfaces(&answer["interfaces"]))].concat();
    if !below.is_empty() {
        out.push_str(&format!("\n{below}"));
    }
    let (open, idle) = (&answer["pipes_open"], &answer["pipes_idle"]);
    out.push_str(&format!(
        "{} sessions, {open} pipes ({idle} idle), ekiden {}\n",
        rows.len() - 1,
        text(&answer["version"])
    ));
    Ok(out)
}

const HEADINGS: [&str; 9] =
    ["SESSION", "CLIENT", "TARGET", "PATH", "AGE", "UP", "DOWN", "CLIENT RTT/RETRANS", "SERVER RTT/RETRANS"];

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

/// A table that is left out when it has nothing but headings, and the empty line behind it.
fn section_of<const N: usize>(rows: &[[String; N]]) -> String {
    if rows.len() > 1 { aligned(rows) + "\n" } else { String::new() }
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

fn section(value: &Value) -> String {
    match value["rtt_seconds"].as_f64() {
        Some(rtt) => format!("{:.1}ms/{}", rtt * 1000.0, value["retransmitted"]),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
