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
    let pools = pools(&answer["pools"]);
    if pools.len() > 1 {
        out.push('\n');
        out.push_str(&aligned(&pools));
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

const HEADINGS: [&str; 9] =
    ["SESSION", "CLIENT", "TARGET", "PATH", "AGE", "UP", "DOWN", "CLIENT RTT/RETRANS", "SERVER RTT/RETRANS"];

const POOL_HEADINGS: [&str; 7] = ["RELAY", "STATE", "READY", "WANTED", "HITS", "MISSES", "STALE"];

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
        assert!(with.ends_with("0 sessions, 0 pipes (0 idle), ekiden 1\n"), "{with}");
    }
}
