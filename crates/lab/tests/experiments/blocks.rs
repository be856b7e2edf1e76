//! A fixed amount in blocks of one size, by the laboratory's own writer and sink.

use crate::scene::{SMALL, Scene, ekiden, impossible, said};

/// A level with all of it at once, and one with a pause between blocks, directly and past a forwarder.
fn written(text: &str) -> String {
    let at_once = r#"protocol = "blocks", amount = "300000B", block = "17B", chain = ["relay"]"#;
    let paused = r#"protocol = "blocks", amount = "640B", block = "64B", pause = "5ms", chain = ["relay"]"#;
    let text = text.replace(
        "protocol = \"http\"\nprogram = \"nginx\"\nfile = \"1MB\"\nchain = [\"relay\"]",
        &at_once.replace(", ", "\n"),
    );
    let text = text.replace("ends = [\"relay\", \"server\"]", "ends = [\"relay\", \"server\"]\ndelay = \"10ms\"");
    format!(
        "{text}\n[[factor]]\nname = \"how\"\nlevels = [{{ name = \"at once\" }}, {{ name = \"paused\", set = {{ workload = {{ {paused} }} }} }}]\n"
    )
}

/// A forwarder: ekiden if it has been built, else haproxy.
fn forwarder() -> String {
    let Some(ekiden) = ekiden() else { return "program = \"haproxy\"".into() };
    format!(
        r#"program = "command"
command = ["{}", "run", "--admin", "off", "-L", "tcp://0.0.0.0:8000/{{next}}?allow_open=true&allow_private=true"]
ready = "tcp:8000""#,
        ekiden.display()
    )
}

#[test]
fn blocks_are_written_and_timed_directly_and_past_a_forwarder() {
    let scene = Scene::new();
    scene.write(&written(&SMALL.replace("program = \"RELAY\"", &forwarder())));
    let output = scene.run(&["--blocks", "1", "--no-check"]);
    if impossible(&output) {
        return;
    }
    let runs = scene.runs();
    assert_eq!(runs.iter().filter(|run| run["invalid"].is_null()).count(), 4, "{}", said(&output));
    for run in &runs {
        let figure = |key: &str| run["metrics"][key].as_f64();
        let (write, completion) = (figure("write_s").unwrap(), figure("completion_s").unwrap());
        // The last byte is written before it is there, 10 ms away.
        assert!(write > 0.0 && completion >= 0.01, "{run}");
        let paused = run["levels"]["how"] == "paused";
        assert_eq!(figure("bytes"), Some(if paused { 640.0 } else { 300_000.0 }), "{run}");
        assert_eq!(figure("block_ms").is_some(), paused, "{run}");
        if paused {
            assert!(write >= 0.045, "nine pauses: {run}");
            assert!((10.0..100.0).contains(&figure("block_ms").unwrap()), "{run}");
            assert!(figure("block_p99_ms") >= figure("block_ms"), "{run}");
        }
    }
}
