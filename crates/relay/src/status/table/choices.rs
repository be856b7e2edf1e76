//! The choices of the path selector, and their alternatives.

use serde_json::Value;

use super::{cell_text, format_bytes, format_milliseconds};

const REASON_HEADINGS: [&str; 5] = ["SESSION", "CHOSEN", "PREDICTED", "REASON", "WHY"];

/// A row for each session whose path the selector has chosen, with the reason.
pub(super) fn reason_rows(sessions: &Value) -> Vec<[String; 5]> {
    let mut rows = vec![REASON_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        let chosen = &session["chosen"];
        if !chosen.is_null() {
            rows.push([
                cell_text(&session["session"]),
                cell_text(&session["path"]),
                if chosen["predicted_seconds"].is_null() {
                    "-".into()
                } else {
                    format_milliseconds(&chosen["predicted_seconds"])
                },
                cell_text(&chosen["reason"]),
                cell_text(&chosen["why"]),
            ]);
        }
    }
    rows
}

const CHOICE_HEADINGS: [&str; 8] =
    ["TARGETS", "SIZE", "MOSTLY", "PATH", "CANDIDATE", "PREDICTED", "RATE", "CONFIDENCE"];

/// Rows for each network of targets: the chosen path and all candidates, the best candidate first.
pub(super) fn choice_rows(choices: &Value) -> Vec<[String; 8]> {
    let mut rows = vec![CHOICE_HEADINGS.map(str::to_owned)];
    for choice in choices.as_array().into_iter().flatten() {
        let mut choice_cells = [
            cell_text(&choice["prefix"]),
            format_bytes(&choice["likely_bytes"]),
            cell_text(&choice["likely_direction"]),
            cell_text(&choice["path"]),
        ];
        for candidate in choice["candidates"].as_array().into_iter().flatten() {
            let [prefix, size, mostly, path] = choice_cells;
            let suffix = if candidate["out"] == true { " (out)" } else { "" };
            rows.push([
                prefix,
                size,
                mostly,
                path,
                cell_text(&candidate["path"]) + suffix,
                format_milliseconds(&candidate["predicted_seconds"]),
                format!("{}/s", format_bytes(&candidate["rate"])),
                format!("{:.2}", candidate["confidence"].as_f64().unwrap_or(0.0)),
            ]);
            choice_cells = Default::default();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::table::align_columns;

    #[test]
    fn every_candidate_has_a_row_under_its_targets() {
        let candidate = |path: &str, out| json!({ "path": path, "predicted_seconds": 1.5, "rate": 2_097_152.0, "confidence": 0.75, "out": out });
        let choice = json!([{
            "prefix": "192.0.2.0/24", "likely_bytes": 1 << 20, "likely_direction": "down", "path": "osaka",
            "candidates": [candidate("osaka", false), candidate("direct", true)],
        }]);
        let expected = "\
TARGETS       SIZE   MOSTLY  PATH   CANDIDATE     PREDICTED  RATE     CONFIDENCE
192.0.2.0/24  1 MiB  down    osaka  osaka         1500.0ms   2 MiB/s  0.75
                                    direct (out)  1500.0ms   2 MiB/s  0.75
";
        assert_eq!(align_columns(&choice_rows(&choice)), expected);
    }

    #[test]
    fn reason_rows_list_sessions_with_a_choice() {
        let chosen = json!({ "reason": "best", "why": "osaka: 1.2 s predicted for 8 MiB", "predicted_seconds": 1.2 });
        let sessions = json!([{ "session": 7, "path": "osaka", "chosen": chosen }, { "session": 8, "chosen": null }]);
        let rows = reason_rows(&sessions);
        assert_eq!(rows[1], ["7", "osaka", "1200.0ms", "best", "osaka: 1.2 s predicted for 8 MiB"]);
        assert_eq!(rows.len(), 2);
    }
}
