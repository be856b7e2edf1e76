//! The answer of `/api/sessions` for people: one table under the other.

mod choices;

use serde_json::Value;

/// The answer of `/api/sessions` as a table for people.
///
/// # Errors
/// When it is no such answer.
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
    let mut out = align_columns(&rows);
    append_table(&mut out, &choices::reason_rows(&answer["sessions"]));
    append_table(&mut out, &choices::choice_rows(&answer["choices"]));
    append_table(&mut out, &limit_rows(&answer["sessions"]));
    append_table(&mut out, &section_rows(&answer["sessions"]));
    append_table(&mut out, &tuning_rows(&answer["sessions"]));
    append_table(&mut out, &lane_rows(&answer["lanes"]));
    append_table(&mut out, &pool_rows(&answer["pools"]));
    append_table(&mut out, &interface_rows(&answer["interfaces"]));
    append_table(&mut out, &fleet_rows(&answer["fleet"]));
    append_table(&mut out, &congestion_rows(&answer["congestion"]));
    if out.lines().count() > rows.len() {
        out.push('\n');
    }
    let (open, idle) = (&answer["pipes_open"], &answer["pipes_idle"]);
    out.push_str(&format!(
        "{} sessions, {open} pipes ({idle} idle), ekiden {}\n",
        rows.len() - 1,
        cell_text(&answer["version"])
    ));
    Ok(out)
}

const SESSION_HEADINGS: [&str; 7] = ["SESSION", "CLIENT", "TARGET", "PATH", "AGE", "UP", "DOWN"];

const SECTION_HEADINGS: [&str; 8] =
    ["SESSION", "SECTION", "CONGESTION", "WINDOW", "QUEUED", "BASE RTT", "RTT", "RETRANS"];

/// Both sections of every session: packets, and times.
fn section_rows(sessions: &Value) -> Vec<[String; 8]> {
    let mut rows = vec![SECTION_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, whose) in [("down", "client"), ("up", "server")] {
            let section = &session[side];
            if section.is_null() {
                continue;
            }
            rows.push([
                cell_text(&session["session"]),
                whose.to_owned(),
                cell_text(&section["congestion"]),
                cell_text(&section["window"]),
                cell_text(&section["queued"]),
                format_milliseconds(&section["base_rtt_seconds"]),
                format_milliseconds(&section["rtt_seconds"]),
                cell_text(&section["retransmitted"]),
            ]);
        }
    }
    rows
}

const TUNING_HEADINGS: [&str; 10] =
    ["SESSION", "SECTION", "RTO", "RTO MIN", "RTO MAX", "DELAYED ACK", "UNSENT", "THIN", "RECORD", "NOT IN FORCE"];

/// The sections that are tuned, and how.
fn tuning_rows(sessions: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![TUNING_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, whose) in [("down", "client"), ("up", "server")] {
            let tuning = &session[side]["tuning"];
            if tuning.is_null() {
                continue;
            }
            rows.push([
                cell_text(&session["session"]),
                whose.to_owned(),
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

/// Settings that are not in force: options that the kernel lacks, and routes that override the socket.
fn not_in_force(tuning: &Value) -> String {
    let route = &tuning["route_rto_min_seconds"];
    let route = (!route.is_null()).then(|| format!("the route has rto_min {}", format_milliseconds(route)));
    let refused = tuning["refused"].as_array().into_iter().flatten().map(cell_text);
    let all: Vec<String> = route.into_iter().chain(refused).collect();
    if all.is_empty() { "-".to_owned() } else { all.join("; ") }
}

const FLEET_HEADINGS: [&str; 5] = ["FLEET", "RELAYS", "DRAINING", "MISSING", "ETCD"];

/// The fleet, if there is one; `ekiden fleet list` shows more.
fn fleet_rows(fleet: &Value) -> Vec<[String; 5]> {
    let mut rows = vec![FLEET_HEADINGS.map(str::to_owned)];
    if !fleet.is_null() {
        let name = if fleet["name"].is_null() { "(reads only)".to_owned() } else { cell_text(&fleet["name"]) };
        let etcd = if fleet["etcd_up"] == true { "up".to_owned() } else { cell_text(&fleet["etcd_trouble"]) };
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

/// The state of the congestion controls that profiles ask for.
fn congestion_rows(all: &Value) -> Vec<[String; 4]> {
    let mut rows = vec![CONGESTION_HEADINGS.map(str::to_owned)];
    for one in all.as_array().into_iter().flatten() {
        rows.push([&one["name"], &one["in_use"], &one["from"], &one["why"]].map(cell_text));
    }
    rows
}

/// Appends a table if it has rows.
fn append_table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    if rows.len() > 1 {
        out.push('\n');
        out.push_str(&align_columns(rows));
    }
}

const LANE_HEADINGS: [&str; 10] =
    ["LISTENER", "LANE BY", "WE HAVE", "STATE", "AGE", "SENT", "RECEIVED", "WAITING", "DROPPED", "DROPPED FOR"];

/// The lanes; all but their age is in packets.
fn lane_rows(lanes: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![LANE_HEADINGS.map(str::to_owned)];
    for lane in lanes.as_array().into_iter().flatten() {
        rows.push([
            cell_text(&lane["listener"]),
            cell_text(&lane["by"]),
            if lane["dialled"] == true { "dialled" } else { "accepted" }.to_owned(),
            if lane["stands"] == true { "stands" } else { "asked" }.to_owned(),
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

/// The dropped packets of each reason.
fn drop_reasons(dropped: &Value) -> String {
    let reasons = dropped.as_object().into_iter().flatten().map(|(why, packets)| format!("{why} {packets}"));
    reasons.collect::<Vec<_>>().join(", ")
}

const POOL_HEADINGS: [&str; 7] = ["RELAY", "STATE", "READY", "WANTED", "HITS", "MISSES", "STALE"];

const INTERFACE_HEADINGS: [&str; 6] = ["INTERFACE", "RATE", "SENDING", "LEVEL", "SENT", "FAIRNESS"];

fn pool_rows(pools: &Value) -> Vec<[String; 7]> {
    let mut rows = vec![POOL_HEADINGS.map(str::to_owned)];
    for pool in pools.as_array().into_iter().flatten() {
        rows.push([
            cell_text(&pool["relay"]),
            if pool["up"] == true { "up" } else { "down" }.to_owned(),
            cell_text(&pool["ready"]),
            cell_text(&pool["wanted"]),
            cell_text(&pool["hits"]),
            cell_text(&pool["misses"]),
            cell_text(&pool["stale"]),
        ]);
    }
    rows
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

fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_bytes(value: &Value) -> String {
    let mut amount = value.as_f64().unwrap_or(0.0);
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return format!("{amount:.0} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

fn format_rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |bits| format!("{:.2} Mbit/s", bits / 1e6))
}

fn format_milliseconds(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{:.1}ms", seconds * 1000.0))
}

const LIMIT_HEADINGS: [&str; 4] = ["SESSION", "BYTES GO", "LIMITED BY", "WHY"];

/// A row for each direction of which something is known.
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
mod tests;
