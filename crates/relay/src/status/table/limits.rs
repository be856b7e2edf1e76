//! What holds sessions back.

use serde_json::Value;

use super::text;

const HEADINGS: [&str; 4] = ["SESSION", "BYTES GO", "LIMITED BY", "WHY"];

/// A row for each direction of which something is known.
pub(super) fn rows(sessions: &Value) -> Vec<[String; 4]> {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for direction in ["down", "up"] {
            let limit = &session["limits"][direction];
            if !limit.is_null() {
                let by = format!("{}:{}", text(&limit["section"]), text(&limit["by"]));
                rows.push([text(&session["session"]), direction.to_owned(), by, text(&limit["why"])]);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use ekiden_proto::limiting::{Bottleneck, Culprit, Limit, Limits};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_direction_that_is_held_back_has_a_row() {
        let why = "the client reads 1.00 Mbit/s".to_owned();
        let down = Some(Limit { section: Culprit::Down, by: Bottleneck::ClientSlow, why: why.clone() });
        let limits = json!(Limits { down, up: None });
        assert_eq!(limits, json!({ "down": { "section": "down", "by": "client_slow", "why": why }, "up": null }));
        let sessions = json!([{ "session": 7, "limits": limits }, { "session": 8 }]);
        assert_eq!(rows(&sessions)[1..], [["7", "down", "down:client_slow", why.as_str()].map(str::to_owned)]);
    }
}
