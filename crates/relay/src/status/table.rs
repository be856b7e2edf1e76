//! The answer of `/api/sessions` for people: one table under the other.

mod choices;
mod limits;

use serde_json::Value;

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
    below(&mut out, &choices::reasons(&answer["sessions"]));
    below(&mut out, &choices::standing(&answer["choices"]));
    below(&mut out, &limits::rows(&answer["sessions"]));
    below(&mut out, &sections(&answer["sessions"]));
    below(&mut out, &tunings(&answer["sessions"]));
    below(&mut out, &lanes(&answer["lanes"]));
    below(&mut out, &pools(&answer["pools"]));
    below(&mut out, &interfaces(&answer["interfaces"]));
    below(&mut out, &fleet(&answer["fleet"]));
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

const TUNING_HEADINGS: [&str; 10] =
    ["SESSION", "SECTION", "RTO", "RTO MIN", "RTO MAX", "DELAYED ACK", "UNSENT", "THIN", "RECORD", "NOT IN FORCE"];

/// The sections that are tuned, and how.
fn tunings(sessions: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![TUNING_HEADINGS.map(str::to_owned)];
    for session in sessions.as_array().into_iter().flatten() {
        for (side, whose) in [("down", "client"), ("up", "server")] {
            let tuning = &session[side]["tuning"];
            if tuning.is_null() {
                continue;
            }
            rows.push([
                text(&session["session"]),
                whose.to_owned(),
                milliseconds(&tuning["rto_seconds"]),
                milliseconds(&tuning["rto_min_seconds"]),
                milliseconds(&tuning["rto_max_seconds"]),
                milliseconds(&tuning["delack_max_seconds"]),
                bytes(&tuning["notsent_lowat"]),
                if tuning["thin_linear_timeouts"] == true { "linear" } else { "doubled" }.to_owned(),
                if tuning["record"].is_null() { "-".to_owned() } else { bytes(&tuning["record"]) },
                not_in_force(tuning),
            ]);
        }
    }
    rows
}

/// What stands in the way: options that the kernel lacks, and a route that wins over the socket.
fn not_in_force(tuning: &Value) -> String {
    let route = &tuning["route_rto_min_seconds"];
    let route = (!route.is_null()).then(|| format!("the route has rto_min {}", milliseconds(route)));
    let refused = tuning["refused"].as_array().into_iter().flatten().map(text);
    let all: Vec<String> = route.into_iter().chain(refused).collect();
    if all.is_empty() { "-".to_owned() } else { all.join("; ") }
}

const FLEET_HEADINGS: [&str; 5] = ["FLEET", "RELAYS", "DRAINING", "MISSING", "ETCD"];

/// The fleet, where there is one; `ekiden fleet list` says more.
fn fleet(fleet: &Value) -> Vec<[String; 5]> {
    let mut rows = vec![FLEET_HEADINGS.map(str::to_owned)];
    if !fleet.is_null() {
        let name = if fleet["name"].is_null() { "(reads only)".to_owned() } else { text(&fleet["name"]) };
        let etcd = if fleet["etcd_up"] == true { "up".to_owned() } else { text(&fleet["etcd_trouble"]) };
        rows.push([name, text(&fleet["relays"]), text(&fleet["draining"]), text(&fleet["missing"]), etcd]);
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

const LANE_HEADINGS: [&str; 10] =
    ["LISTENER", "LANE BY", "WE HAVE", "STATE", "AGE", "SENT", "RECEIVED", "WAITING", "DROPPED", "DROPPED FOR"];

/// The lanes; all but their age is in packets.
fn lanes(lanes: &Value) -> Vec<[String; 10]> {
    let mut rows = vec![LANE_HEADINGS.map(str::to_owned)];
    for lane in lanes.as_array().into_iter().flatten() {
        rows.push([
            text(&lane["listener"]),
            text(&lane["by"]),
            if lane["dialled"] == true { "dialled" } else { "accepted" }.to_owned(),
            if lane["stands"] == true { "stands" } else { "asked" }.to_owned(),
            format!("{:.0}s", lane["seconds"].as_f64().unwrap_or(0.0)),
            text(&lane["packets_sent"]),
            text(&lane["packets_received"]),
            text(&lane["waiting"]),
            text(&lane["packets_dropped"]),
            reasons(&lane["dropped_for"]),
        ]);
    }
    rows
}

/// The dropped packets of each reason.
fn reasons(dropped: &Value) -> String {
    let reasons = dropped.as_object().into_iter().flatten().map(|(why, packets)| format!("{why} {packets}"));
    reasons.collect::<Vec<_>>().join(", ")
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
            rate(&interface["rate_bits_per_second"]),
            text(&interface["sending"]),
            rate(&interface["level_bits_per_second"]),
            rate(&interface["sent_bits_per_second"]),
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
mod tests;
