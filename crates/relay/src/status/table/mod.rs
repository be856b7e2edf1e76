//! The response of `/api/sessions` as text tables, one below the other.

mod choices;
mod sections;

use ekiden_proto::quantity::size;
use serde_json::Value;

/// Formats the response of `/api/sessions` as text tables.
///
/// # Errors
/// `json` is not valid JSON.
pub fn table(json: &str) -> Result<String, serde_json::Error> {
    let answer: Value = serde_json::from_str(json)?;
    let mut rows = vec![SESSION_HEADINGS.map(str::to_owned)];
    for session in answer["sessions"].as_array().into_iter().flatten() {
        rows.push([
            cell_text(&session["session"]),
            cell_text(&session["client"]),
            cell_text(&session["target"]),
            cell_text(&session["path"]),
            format!("{:.0}s", session["seconds"].as_f64().unwrap_or(0.0)),
            format_bytes(&session["bytes_up"]),
            format_bytes(&session["bytes_down"]),
        ]);
    }
    let mut output = align_columns(&rows);
    append_table(&mut output, &choices::reason_rows(&answer["sessions"]));
    append_table(&mut output, &choices::choice_rows(&answer["choices"]));
    append_table(&mut output, &limit_rows(&answer["sessions"]));
    append_table(&mut output, &sections::section_rows(&answer["sessions"]));
    append_table(&mut output, &sections::tls_rows(&answer["sessions"]));
    append_table(&mut output, &sections::tuning_rows(&answer["sessions"]));
    append_table(&mut output, &lane_rows(&answer["lanes"]));
    append_table(&mut output, &pool_rows(&answer["pools"]));
    append_table(&mut output, &interface_rows(&answer["interfaces"]));
    append_table(&mut output, &account_rows(&answer["accounts"]));
    append_table(&mut output, &fleet_rows(&answer["fleet"]));
    append_table(&mut output, &congestion_rows(&answer["congestion"]));
    if output.lines().count() > rows.len() {
        output.push('\n');
    }
    let (open, idle) = (&answer["pipes_open"], &answer["pipes_idle"]);
    output.push_str(&format!(
        "{} sessions, {open} pipes ({idle} idle), ekiden {}\n",
        rows.len() - 1,
        cell_text(&answer["version"])
    ));
    Ok(output)
}

const SESSION_HEADINGS: [&str; 7] = ["SESSION", "CLIENT", "TARGET", "PATH", "AGE", "UP", "DOWN"];

const FLEET_HEADINGS: [&str; 5] = ["FLEET", "RELAYS", "DRAINING", "MISSING", "ETCD"];

/// A row with the counts of the fleet, if there is one; `ekiden fleet list` shows more.
fn fleet_rows(fleet: &Value) -> Vec<[String; 5]> {
    let mut rows = vec![FLEET_HEADINGS.map(str::to_owned)];
    if !fleet.is_null() {
        let name = if fleet["name"].is_null() { "(reads only)".to_owned() } else { cell_text(&fleet["name"]) };
        let etcd = if fleet["etcd_up"] == true { "reachable".to_owned() } else { cell_text(&fleet["etcd_trouble"]) };
        rows.push([
            name,
            cell_text(&fleet["relays"]),
            cell_text(&fleet["draining"]),
            cell_text(&fleet["missing"]),
            etcd,
        ]);
    }
    rows
}

const CONGESTION_HEADINGS: [&str; 4] = ["ASKED FOR", "IN USE", "FROM", "WHY"];

/// A row for each congestion control that a profile requests, with its state.
fn congestion_rows(controls: &Value) -> Vec<[String; 4]> {
    let mut rows = vec![CONGESTION_HEADINGS.map(str::to_owned)];
    for control in controls.as_array().into_iter().flatten() {
        rows.push([&control["name"], &control["in_use"], &control["from"], &control["why"]].map(cell_text));
    }
    rows
}

/// Appends a table if it has rows.
fn append_table<const N: usize>(output: &mut String, rows: &[[String; N]]) {
    if rows.len() > 1 {
        output.push('\n');
        output.push_str(&align_columns(rows));
    }
}

const LANE_HEADINGS: [&str; 10] =
    ["LISTENER", "LANE BY", "WE HAVE", "STATE", "AGE", "SENT", "RECEIVED", "WAITING", "DROPPED", "DROPPED FOR"];

/// A row for each lane. Sent, received, waiting and dropped are numbers of packets.
fn lane_rows(lanes: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![LANE_HEADINGS.map(str::to_owned)];
    for lane in lanes.as_array().into_iter().flatten() {
        rows.push([
            cell_text(&lane["listener"]),
            cell_text(&lane["by"]),
            if lane["dialled"] == true { "dialled" } else { "accepted" }.to_owned(),
            if lane["stands"] == true { "open" } else { "opening" }.to_owned(),
            format!("{:.0}s", lane["seconds"].as_f64().unwrap_or(0.0)),
            cell_text(&lane["packets_sent"]),
            cell_text(&lane["packets_received"]),
            cell_text(&lane["waiting"]),
            cell_text(&lane["packets_dropped"]),
            drop_reasons(&lane["dropped_for"]),
        ]);
    }
    rows
}

/// Formats the number of dropped packets for each reason.
fn drop_reasons(dropped: &Value) -> String {
    let reasons = dropped.as_object().into_iter().flatten().map(|(why, packets)| format!("{why} {packets}"));
    reasons.collect::<Vec<_>>().join(", ")
}

const POOL_HEADINGS: [&str; 11] =
    ["RELAY", "STATE", "SESSIONS", "LATENCY", "READY", "USED", "WANTED", "REUSED", "HITS", "MISSES", "STALE"];

const INTERFACE_HEADINGS: [&str; 6] = ["INTERFACE", "RATE", "SENDING", "LEVEL", "SENT", "FAIRNESS"];

fn pool_rows(pools: &Value) -> Vec<[String; 11]> {
    let mut rows = vec![POOL_HEADINGS.map(str::to_owned)];
    for pool in pools.as_array().into_iter().flatten() {
        rows.push([
            cell_text(&pool["relay"]),
            pool_state(pool).to_owned(),
            cell_text(&pool["sessions"]),
            format_milliseconds(&pool["latency_seconds"]),
            cell_text(&pool["ready"]),
            cell_text(&pool["used"]),
            cell_text(&pool["wanted"]),
            cell_text(&pool["reused"]),
            cell_text(&pool["hits"]),
            cell_text(&pool["misses"]),
            cell_text(&pool["stale"]),
        ]);
    }
    rows
}

fn pool_state(pool: &Value) -> &'static str {
    match (pool["up"] == true, pool["slow"] == true) {
        (false, _) => "unreachable",
        (true, true) => "slow",
        (true, false) => "reachable",
    }
}

fn interface_rows(interfaces: &Value) -> Vec<[String; 6]> {
    let mut rows = vec![INTERFACE_HEADINGS.map(str::to_owned)];
    for interface in interfaces.as_array().into_iter().flatten() {
        rows.push([
            cell_text(&interface["interface"]),
            format_rate(&interface["rate_bits_per_second"]),
            cell_text(&interface["sending"]),
            format_rate(&interface["level_bits_per_second"]),
            format_rate(&interface["sent_bits_per_second"]),
            interface["fairness"].as_f64().map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}")),
        ]);
    }
    rows
}

const ACCOUNT_HEADINGS: [&str; 9] =
    ["LIMITS OF", "NAME", "SESSIONS", "RATE", "QUOTA", "USED", "LEFT", "UNTIL", "REFUSED"];

/// A row for each user or listener with a limit.
fn account_rows(accounts: &Value) -> Vec<[String; 9]> {
    let mut rows = vec![ACCOUNT_HEADINGS.map(str::to_owned)];
    let limits = ["max_sessions", "rate_bits_per_second", "quota_bytes"];
    let is_limited = |account: &&Value| limits.iter().any(|limit| !account[limit].is_null());
    for account in accounts.as_array().into_iter().flatten().filter(is_limited) {
        let sessions = cell_text(&account["sessions"]);
        let refused = ["refused_for_sessions", "refused_for_quota"].map(|reason| account[reason].as_u64().unwrap_or(0));
        let bytes = |key: &str| if account[key].is_null() { "-".to_owned() } else { format_bytes(&account[key]) };
        rows.push([
            cell_text(&account["scope"]),
            cell_text(&account["name"]),
            account["max_sessions"].as_u64().map_or_else(|| sessions.clone(), |most| format!("{sessions} of {most}")),
            format_rate(&account["rate_bits_per_second"]),
            account["quota_period"]
                .as_str()
                .map_or_else(|| "-".to_owned(), |period| format!("{}/{period}", bytes("quota_bytes"))),
            bytes("used_bytes"),
            bytes("left_bytes"),
            cell_text(&account["quota_ends"]),
            refused.iter().sum::<u64>().to_string(),
        ]);
    }
    rows
}

fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut output = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        output.push_str(cells.join("  ").trim_end());
        output.push('\n');
    }
    output
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_bytes(value: &Value) -> String {
    // Rates have decimals.
    size(value.as_f64().unwrap_or(0.0).round() as u64)
}

fn format_rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |bits| format!("{:.2} Mbit/s", bits / 1e6))
}

fn format_milliseconds(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{:.1}ms", seconds * 1000.0))
}

const LIMIT_HEADINGS: [&str; 4] = ["SESSION", "BYTES GO", "LIMITED BY", "WHY"];

/// A row for each direction with a known limiting factor.
fn limit_rows(sessions: &Value) -> Vec<[String; 4]> {
    let mut rows = vec![LIMIT_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for direction in ["down", "up"] {
            let limit = &session["limits"][direction];
            if !limit.is_null() {
                let by = format!("{}:{}", cell_text(&limit["section"]), cell_text(&limit["by"]));
                rows.push([cell_text(&session["session"]), direction.to_owned(), by, cell_text(&limit["why"])]);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_proto::event::{CongestionStatus, SectionInfo};
    use ekiden_proto::limiting::{Bottleneck, Diagnoses, Diagnosis, LimitingSection};
    use ekiden_proto::resume::{Jump, ResumeOutcome, SectionStart};
    use serde_json::json;

    use super::*;
    use crate::status::{InterfaceView, LaneView, PoolView, SectionView};

    #[test]
    fn sections_and_congestion_controls_have_tables_of_their_own() {
        let jump = Some(Jump { bytes: 512 << 10, outcome: ResumeOutcome::Unconfirmed });
        let start = SectionStart { earlier_sessions: 0, jump };
        let info = SectionInfo { rtt: Duration::from_millis(40), retransmitted: 3, start, ..SectionInfo::default() };
        let told = None;
        let view = SectionView {
            info,
            congestion: "ctcp".to_owned(),
            window: 70,
            base_rtt_seconds: 0.03,
            queued: 17,
            told,
            tuning: None,
        };
        let asked = CongestionStatus {
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
        let figures = ["7", "server", "ctcp", "70", "17", "30.0ms", "40.0ms", "3"];
        assert_eq!(rows[4], [&figures[..], &["resumed", "512", "KiB", "unconfirmed"]].concat(), "{shown}");
        assert_eq!(rows[7], ["vegas", "bbr", "-", "takes", "root"], "{shown}");
    }

    /// Regression: sizes were rounded to whole units, so 1.4 and 0.6 MiB looked equal.
    #[test]
    fn sizes_have_three_digits() {
        assert_eq!(
            [json!(1_600_117), json!(2.4e6), json!(null)].map(|value| format_bytes(&value)),
            ["1.53 MiB", "2.29 MiB", "0 bytes"]
        );
    }

    #[test]
    fn pool_table_is_shown_only_if_pools_exist() {
        let without = table(r#"{"version":"1","pipes_open":0,"pipes_idle":0,"sessions":[],"pools":[]}"#).unwrap();
        assert_eq!(without.lines().count(), 2, "{without}");
        let counts = PoolView {
            sessions: 5,
            latency_seconds: Some(0.0123),
            ready: 3,
            used: 2,
            wanted: 12,
            reused: 50,
            hits: 100,
            misses: 7,
            stale: 1,
            ..PoolView::default()
        };
        let pool = PoolView { relay: "osaka".to_owned(), ..counts };
        let answer = serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "pools": [pool] });
        let with = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = with.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], POOL_HEADINGS, "{with}");
        assert_eq!(rows[3], ["osaka", "unreachable", "5", "12.3ms", "3", "2", "12", "50", "100", "7", "1"], "{with}");
        assert!(with.ends_with("\n\n0 sessions, 0 pipes (0 idle), ekiden 1\n"), "{with}");
    }

    #[test]
    fn lane_table_lists_lanes() {
        let lane = LaneView {
            listener: "tunnel".to_owned(),
            by: "long".to_owned(),
            dialled: true,
            stands: false,
            seconds: 7.0,
            waiting: 1,
            packets_sent: 20,
            packets_received: 10,
            bytes_sent: 2000,
            bytes_received: 1000,
            packets_dropped: 3,
            dropped_for: [("late", 1), ("wrong_peer", 2)].into(),
        };
        let answer = serde_json::json!({
            "version": "1", "pipes_open": 0, "pipes_idle": 0, "sessions": [], "lanes": [lane],
        });
        let table = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[3],
            ["tunnel", "long", "dialled", "opening", "7s", "20", "10", "1", "3", "late", "1,", "wrong_peer", "2"],
            "{table}"
        );
    }

    #[test]
    fn interface_table_lists_shared_interfaces() {
        let busy = InterfaceView {
            interface: "wan0".to_owned(),
            rate_bits_per_second: 100_000_000,
            sending: 3,
            level_bits_per_second: Some(33_333_333),
            sent_bits_per_second: 98_765_432,
            fairness: Some(0.9876),
        };
        let idle = InterfaceView {
            sending: 0,
            level_bits_per_second: None,
            sent_bits_per_second: 0,
            fairness: None,
            ..busy.clone()
        };
        let answer =
            serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "interfaces": [busy, idle] });
        let table = table(&answer.to_string()).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], INTERFACE_HEADINGS, "{table}");
        assert_eq!(rows[3].join(" "), "wan0 100.00 Mbit/s 3 33.33 Mbit/s 98.77 Mbit/s 0.988", "{table}");
        assert_eq!(rows[4].join(" "), "wan0 100.00 Mbit/s 0 - 0.00 Mbit/s -", "{table}");
    }

    #[test]
    fn each_limited_direction_has_a_row() {
        let why = "the client reads 1 Mbit/s".to_owned();
        let down = Some(Diagnosis { section: LimitingSection::Down, by: Bottleneck::ClientSlow, why: why.clone() });
        let limits = json!(Diagnoses { down, up: None });
        assert_eq!(limits, json!({ "down": { "section": "down", "by": "client_slow", "why": why }, "up": null }));
        let sessions = json!([{ "session": 7, "limits": limits }, { "session": 8 }]);
        assert_eq!(limit_rows(&sessions)[1..], [["7", "down", "down:client_slow", why.as_str()].map(str::to_owned)]);
    }
}
