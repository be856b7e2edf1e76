//! What holds sessions back.

use serde_json::Value;

use super::cell_text;

const LIMIT_HEADINGS: [&str; 4] = ["SESSION", "BYTES GO", "LIMITED BY", "WHY"];

/// A row for each direction of which something is known.
pub(super) fn limit_rows(sessions: &Value) -> Vec<[String; 4]> {
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
    use ekiden_proto::limiting::{Bottleneck, Diagnoses, Diagnosis, LimitingSection};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_direction_that_is_held_back_has_a_row() {
        let why = "the client reads 1.00 Mbit/s".to_owned();
        let down = Some(Diagnosis { section: LimitingSection::Down, by: Bottleneck::ClientSlow, why: why.clone() });
        let limits = json!(Diagnoses { down, up: None });
        assert_eq!(limits, json!({ "down": { "section": "down", "by": "client_slow", "why": why }, "up": null }));
        let sessions = json!([{ "session": 7, "limits": limits }, { "session": 8 }]);
        assert_eq!(limit_rows(&sessions)[1..], [["7", "down", "down:client_slow", why.as_str()].map(str::to_owned)]);
    }
}
