use std::time::Duration;

use ekiden_proto::event::{CongestionStatus, SectionInfo};
use ekiden_proto::limiting::{Bottleneck, Diagnoses, Diagnosis, LimitingSection};
use serde_json::json;

use super::*;
use crate::shaping::autotune::TuningView;
use crate::status::{InterfaceView, LaneView, PoolView, SectionView};

#[test]
fn sections_and_congestion_controls_have_tables_of_their_own() {
    let info = SectionInfo { rtt: Duration::from_millis(40), retransmitted: 3, ..SectionInfo::default() };
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
    assert_eq!(rows[4], ["7", "server", "ctcp", "70", "17", "30.0ms", "40.0ms", "3"], "{shown}");
    assert_eq!(rows[7], ["vegas", "bbr", "-", "takes", "root"], "{shown}");
}

#[test]
fn tuned_sections_have_a_table_that_says_what_stands_in_the_way() {
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
    let rows: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let at = rows.iter().position(|row| row.contains("DELAYED ACK")).unwrap();
    let values = "44.0ms 28.0ms 1000.0ms - 1 MiB linear";
    let why = "the route has rto_min 3000.0ms; rto_max: no";
    assert_eq!(rows[at + 1], format!("7 client {values} - {why}"), "{shown}");
    assert_eq!(rows[at + 2], format!("7 server {values} 64 KiB -"), "{shown}");
}

#[test]
fn pools_stand_under_the_sessions_where_there_are_any() {
    let without = table(r#"{"version":"1","pipes_open":0,"pipes_idle":0,"sessions":[],"pools":[]}"#).unwrap();
    assert_eq!(without.lines().count(), 2, "{without}");
    let pool = PoolView { relay: "osaka".to_owned(), up: false, ready: 3, wanted: 12, hits: 100, misses: 7, stale: 1 };
    let answer = serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "pools": [pool] });
    let with = table(&answer.to_string()).unwrap();
    let rows: Vec<Vec<&str>> = with.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[2], POOL_HEADINGS, "{with}");
    assert_eq!(rows[3], ["osaka", "down", "3", "12", "100", "7", "1"], "{with}");
    assert!(with.ends_with("\n\n0 sessions, 0 pipes (0 idle), ekiden 1\n"), "{with}");
}

#[test]
fn lanes_stand_there_where_there_are_any() {
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
        ["tunnel", "long", "dialled", "asked", "7s", "20", "10", "1", "3", "late", "1,", "wrong_peer", "2"],
        "{table}"
    );
}

#[test]
fn shared_interfaces_stand_there_too() {
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
    let answer = serde_json::json!({ "version": "1", "pipes_open": 0, "pipes_idle": 0, "interfaces": [busy, idle] });
    let table = table(&answer.to_string()).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[2], INTERFACE_HEADINGS, "{table}");
    assert_eq!(rows[3].join(" "), "wan0 100.00 Mbit/s 3 33.33 Mbit/s 98.77 Mbit/s 0.988", "{table}");
    assert_eq!(rows[4].join(" "), "wan0 100.00 Mbit/s 0 - 0.00 Mbit/s -", "{table}");
}

#[test]
fn each_direction_that_is_held_back_has_a_row() {
    let why = "the client reads 1.00 Mbit/s".to_owned();
    let down = Some(Diagnosis { section: LimitingSection::Down, by: Bottleneck::ClientSlow, why: why.clone() });
    let limits = json!(Diagnoses { down, up: None });
    assert_eq!(limits, json!({ "down": { "section": "down", "by": "client_slow", "why": why }, "up": null }));
    let sessions = json!([{ "session": 7, "limits": limits }, { "session": 8 }]);
    assert_eq!(limit_rows(&sessions)[1..], [["7", "down", "down:client_slow", why.as_str()].map(str::to_owned)]);
}
