//! Transfers of a fixed amount in blocks of one size, by the writer and the sink of the laboratory.

use serde_json::Value;

use crate::fixture::{ExperimentFixture, SMALL, ekiden, is_skipped, stderr_text};

/// The experiment with two workloads of blocks, one without a pause and one with a pause of 5 ms between blocks, and a
/// delay of 10 ms on the second link.
fn with_blocks(text: &str) -> String {
    let at_once = r#"protocol = "blocks", amount = "300000B", block = "17B", chain = ["relay"]"#;
    let paused = r#"protocol = "blocks", amount = "640B", block = "64B", pause = "5ms", chain = ["relay"]"#;
    let text = text.replace(
        "protocol = \"http\"\nprogram = \"nginx\"\nfile = \"1MB\"\nchain = [\"relay\"]",
        &at_once.replace(", ", "\n"),
    );
    let text = text.replace("ends = [\"relay\", \"server\"]", "ends = [\"relay\", \"server\"]\ndelay = \"10ms\"");
    // These tests do not depend on lateness. A stricter limit would invalidate runs on a busy machine.
    let text = text.replace("blocks = {", "lateness_limit = \"1s\"\nblocks = {");
    format!(
        "{text}\n[[factor]]\nname = \"how\"\nlevels = [{{ name = \"at once\" }}, {{ name = \"paused\", set = {{ workload = {{ {paused} }} }} }}]\n"
    )
}

/// The keys of the treatment with a forwarder: ekiden if it has been built, else HAProxy.
fn forwarder_treatment() -> String {
    let Some(ekiden) = ekiden() else { return "program = \"haproxy\"".into() };
    format!(
        r#"program = "command"
command = ["{}", "run", "--admin", "off", "-L", "tcp://0.0.0.0:8000/{{next}}?allow_open=true&allow_private=true"]
ready = "tcp:8000""#,
        ekiden.display()
    )
}

#[test]
fn blocks_are_timed_directly_and_through_a_forwarder() {
    let fixture = ExperimentFixture::new();
    fixture.write(&with_blocks(&SMALL.replace("program = \"RELAY\"", &forwarder_treatment())));
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 4, "{}", stderr_text(&output));
    for run in &runs {
        let figure = |key: &str| run["metrics"][key].as_f64();
        let (write, completion) = (figure("write_s").unwrap(), figure("completion_s").unwrap());
        // The completion includes the delay of 10 ms between the last write and the arrival of its data.
        assert!(write > 0.0 && completion >= 0.01, "{run}");
        let paused = run["levels"]["how"] == "paused";
        assert_eq!(figure("bytes"), Some(if paused { 640.0 } else { 300_000.0 }), "{run}");
        assert_eq!(figure("block_ms").is_some(), paused, "{run}");
        if paused {
            assert!(write >= 0.045, "nine pauses: {run}");
            assert!((10.0..1000.0).contains(&figure("block_ms").unwrap()), "{run}");
            assert!(figure("block_p99_ms") >= figure("block_ms"), "{run}");
        }
    }
}

#[test]
fn packet_log_has_every_packet_drop_and_retransmission() {
    let fixture = ExperimentFixture::new();
    let lossy = "delay = \"5ms\"\nloss = { model = \"pattern\", every = 100, lost = [60] }\nreverse = { loss = false }";
    let text = with_blocks(SMALL)
        .replace("delay = \"10ms\"", lossy)
        .replace("ends = [\"client\", \"relay\"]", "ends = [\"client\", \"relay\"]\ndelay = \"1ms\"")
        .replace("block = \"17B\"", "block = \"640B\"\npacket_log = [\"near\", \"far\"]");
    let Some(run) = direct_run(&fixture, &text) else { return };
    let [near, far] = [0, 1].map(|link| &run["sequences"][link]);
    assert_eq!((&near["from"], &far["from"]), (&"client".into(), &"relay".into()), "the direction of the data");
    let dropped = far["dropped"].as_u64().unwrap();
    // 300,000 bytes are more than 200 packets. One in 100 is lost, and the client retransmits it.
    assert!(dropped >= 1 && far["sent_again"].as_u64().unwrap() >= dropped, "{far}");
    let count = |sequence: &Value, key: &str| sequence[key].as_u64().unwrap();
    assert_eq!(count(near, "dropped"), 0, "{near}");
    // Every packet of the second link has passed the first. Both logs count each packet of a superpacket.
    assert!(count(near, "packets") >= count(far, "packets"), "{near} {far}");
    assert!(count(near, "sent_again") >= count(far, "sent_again"), "{near} {far}");

    let folder = fixture.path().join("results/small-quick/packets/direct");
    let table = std::fs::read_to_string(folder.join("far-relay-server.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.iter().filter(|row| row[2] == "wire loss").count() as u64, dropped, "{table}");
    // Packets that are in flight at the end of the run have no time of delivery.
    for row in rows.iter().filter(|row| !row[1].is_empty()) {
        let micros = |column: usize| row[column].parse::<f64>().unwrap();
        assert!(micros(1) - micros(0) >= 5000.0, "a delay of 5 ms: {row:?}");
    }
    let first = rows.iter().find(|row| row[6] == "S").unwrap();
    assert!(first[4].starts_with("10.100.") && first[5].ends_with(":5101"), "{first:?}");
    assert!(folder.join("near-relay-client.csv").exists());
    let page = std::fs::read_to_string(fixture.path().join("results/small-quick/report.html")).unwrap();
    assert!(page.contains("Sequence numbers over time"));
}

#[test]
fn capped_writing_completes_at_the_cap() {
    let fixture = ExperimentFixture::new();
    // 300 kB take 2.4 s at 1 Mbit/s.
    let slow = with_blocks(SMALL).replace("delay = \"10ms\"", "delay = \"10ms\"\nrate = \"1Mbit/s\"");
    let capped = slow.replace("block = \"17B\"", "block = \"640B\"\ncap = \"1s\"");
    let Some(run) = direct_run(&fixture, &capped) else { return };
    assert_eq!(run["metrics"]["completion_s"], 1.0, "{run}");
}

/// Runs the direct treatment of `text` once, without its factors. None if the system cannot run a lab.
fn direct_run(fixture: &ExperimentFixture, text: &str) -> Option<Value> {
    fixture.write(text.split("[[factor]]").next().unwrap());
    let output = fixture.run(&["--blocks", "1", "--no-check", "--only", "direct"]);
    if is_skipped(&output) {
        return None;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 1, "{}", stderr_text(&output));
    runs.into_iter().next()
}
