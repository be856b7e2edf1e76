//! The sections of sessions: their state, their TLS and their tuning.

use serde_json::Value;

use super::{cell_text, format_bytes, format_milliseconds};

const SECTION_HEADINGS: [&str; 10] =
    ["SESSION", "SECTION", "CONGESTION", "WINDOW", "QUEUED", "BASE RTT", "RTT", "RETRANS", "START", "JUMP"];

/// A row for each section of each session, with packet counts and times.
pub(super) fn section_rows(sessions: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![SECTION_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, peer) in [("down", "client"), ("up", "server")] {
            let section = &session[side];
            if section.is_null() {
                continue;
            }
            rows.push([
                cell_text(&session["session"]),
                peer.to_owned(),
                cell_text(&section["congestion"]),
                cell_text(&section["window"]),
                cell_text(&section["queued"]),
                format_milliseconds(&section["base_rtt_seconds"]),
                format_milliseconds(&section["rtt_seconds"]),
                cell_text(&section["retransmitted"]),
                format_start(section),
                format_jump(&section["jump"]),
            ]);
        }
    }
    rows
}

/// Formats the start of a section: `cold`, `resumed`, or `reused 3 times`.
fn format_start(section: &Value) -> String {
    let start = cell_text(&section["start"]);
    match section["earlier_sessions"].as_u64() {
        None | Some(0) => start,
        Some(1) => format!("{start} once"),
        Some(earlier) => format!("{start} {earlier} times"),
    }
}

/// Formats the jump of a section: its bytes and its outcome.
fn format_jump(jump: &Value) -> String {
    if jump.is_null() {
        return "-".to_owned();
    }
    format!("{} {}", format_bytes(&jump["bytes"]), cell_text(&jump["outcome"]))
}

const TLS_HEADINGS: [&str; 6] = ["SESSION", "SECTION", "TLS", "CIPHER", "BYTES", "HTTP"];

/// A row for each section with TLS, with the way its data crosses the relay.
pub(super) fn tls_rows(sessions: &Value) -> Vec<[String; 6]> {
    let mut rows = vec![TLS_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten().filter(|session| !session["tls"].is_null()) {
        let tls = &session["tls"];
        rows.push([
            cell_text(&session["session"]),
            "client".to_owned(),
            cell_text(&tls["version"]),
            cell_text(&tls["cipher"]),
            cell_text(&tls["transfer"]),
            cell_text(&session["http"]),
        ]);
    }
    rows
}

const TUNING_HEADINGS: [&str; 10] =
    ["SESSION", "SECTION", "RTO", "RTO MIN", "RTO MAX", "DELAYED ACK", "UNSENT", "THIN", "RECORD", "NOT IN FORCE"];

/// A row for each tuned section, with its settings.
pub(super) fn tuning_rows(sessions: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![TUNING_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, peer) in [("down", "client"), ("up", "server")] {
            let tuning = &session[side]["tuning"];
            if tuning.is_null() {
                continue;
            }
            rows.push([
                cell_text(&session["session"]),
                peer.to_owned(),
                format_milliseconds(&tuning["rto_seconds"]),
                format_milliseconds(&tuning["rto_min_seconds"]),
                format_milliseconds(&tuning["rto_max_seconds"]),
                format_milliseconds(&tuning["delack_max_seconds"]),
                format_bytes(&tuning["notsent_lowat"]),
                if tuning["thin_linear_timeouts"] == true { "linear" } else { "doubled" }.to_owned(),
                if tuning["record"].is_null() { "-".to_owned() } else { format_bytes(&tuning["record"]) },
                not_in_force(tuning),
            ]);
        }
    }
    rows
}

/// Lists the reasons why settings are not in force: options that the kernel rejected, and a route that overrides the
/// socket.
fn not_in_force(tuning: &Value) -> String {
    let route = &tuning["route_rto_min_seconds"];
    let route = (!route.is_null()).then(|| format!("the route sets rto_min {}", format_milliseconds(route)));
    let refused = tuning["refused"].as_array().into_iter().flatten().map(cell_text);
    let reasons: Vec<String> = route.into_iter().chain(refused).collect();
    if reasons.is_empty() { "-".to_owned() } else { reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use ekiden_proto::event::SectionInfo;
    use ekiden_proto::resume::SectionStart;
    use serde_json::json;

    use super::*;
    use crate::shaping::autotune::TuningView;
    use crate::status::table::table;

    #[test]
    fn start_cell_shows_kind_and_earlier_sessions() {
        let cells = |earlier_sessions| {
            let section =
                json!(SectionInfo { start: SectionStart { earlier_sessions, jump: None }, ..SectionInfo::default() });
            [format_start(&section), format_jump(&section["jump"])]
        };
        assert_eq!([0, 1, 2].map(cells), [["cold", "-"], ["reused once", "-"], ["reused 2 times", "-"]]);
        assert_eq!(format_start(&json!({})), "-", "an older relay");
    }

    #[test]
    fn tuning_table_shows_values_and_obstacles() {
        let tuned = TuningView {
            rto_min_seconds: Some(0.028),
            rto_max_seconds: Some(1.0),
            rto_seconds: Some(0.044),
            delack_max_seconds: None,
            notsent_lowat: Some(1 << 20),
            thin_linear_timeouts: Some(true),
            record: Some(65_519),
            route_rto_min_seconds: None,
            refused: Vec::new(),
        };
        let hindered = TuningView {
            record: None,
            route_rto_min_seconds: Some(3.0),
            refused: vec!["rto_max: no".into()],
            ..tuned.clone()
        };
        let answer = serde_json::json!({
            "version": "1", "pipes_open": 0, "pipes_idle": 0,
            "sessions": [{ "session": 7, "down": { "tuning": hindered }, "up": { "tuning": tuned } }],
        });
        let shown = table(&answer.to_string()).unwrap();
        let rows: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let at = rows.iter().position(|row| row.contains("DELAYED ACK")).unwrap();
        let values = "44.0ms 28.0ms 1000.0ms - 1 MiB linear";
        let why = "the route sets rto_min 3000.0ms; rto_max: no";
        assert_eq!(rows[at + 1], format!("7 client {values} - {why}"), "{shown}");
        assert_eq!(rows[at + 2], format!("7 server {values} 64 KiB -"), "{shown}");
    }
}
