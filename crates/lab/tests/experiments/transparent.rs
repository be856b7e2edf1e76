//! Relays that neither client nor server knows of.

use crate::scene::{ExperimentFixture, SMALL, ekiden, is_skipped, stderr_text};

/// A file by wget, and a stream, past two relays that neither client nor server knows of.
fn transparent(programs: &[&str]) -> String {
    let treatment = |program: &&str| format!("[treatment.{program}]\nprogram = \"{program}\"\ntransparent = true\n");
    let chain = "chain = [\"relay\", \"other\"]";
    let stream = format!("protocol = \"stream\", time = {{ quick = \"1s\", full = \"1s\" }}, {}", chain);
    let names: String = programs.iter().map(|program| format!(", \"{program}\"")).collect();
    let levels = format!(
        "[[factor]]\nname = \"what\"\nlevels = [{{ name = \"file\" }}, {{ name = \"stream\", set = {{ workload = {{ {stream} }} }} }}]\n"
    );
    let text = SMALL
        .replace("[host.server]", "[host.other]\nforward = true\n[host.server]")
        .replace(
            "ends = [\"relay\", \"server\"]",
            "ends = [\"relay\", \"other\"]\n[link.last]\nends = [\"other\", \"server\"]",
        )
        .replace("chain = [\"relay\"]", &format!("agent = \"wget\"\n{chain}"))
        .replace("[treatment.relay]\nprogram = \"RELAY\"\n", &programs.iter().map(treatment).collect::<String>())
        .replace(", \"relay\"]\nblocks", &format!("{names}]\nblocks"));
    format!("{text}\n{levels}")
}

#[test]
fn relays_that_nobody_knows_of_carry_files_and_streams() {
    let mut programs = vec!["haproxy"];
    if ekiden().is_some() {
        programs.push("ekiden");
    } else {
        eprintln!("skipped, but for haproxy: there is no ekiden beside the laboratory (cargo build)");
    }
    let scene = ExperimentFixture::new();
    scene.write(&transparent(&programs));
    let output = scene.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = scene.runs();
    assert_eq!(runs.len(), 2 + 2 * programs.len(), "{}", stderr_text(&output));
    for run in &runs {
        let figure = |key: &str| run["metrics"][key].as_f64();
        assert!(figure("mbit_s") > Some(0.0), "{run}");
        // Nobody waits for the first byte of a stream.
        assert_eq!(figure("first_byte_ms").is_some(), run["levels"]["what"] == "file", "{run}");
    }
}
