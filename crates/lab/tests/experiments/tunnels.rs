//! Single transfers and concurrent flows through programs between two sites: packet tunnels, `ssh -L`, ekiden as a
//! forwarder, and transparent relays.

use ekiden_testing::skipped;

use super::fixture::{ExperimentFixture, bytes_crossed, ekiden, is_skipped, stderr_text, with_two_routers};

/// The experiment with a line of 50 Mbit/s and 2 ms in each direction between two routers, and a treatment for each
/// program, which runs on both routers. The workload is a file or four flows.
fn with_tunnels(programs: &[&str]) -> String {
    let treatment = |program: &&str| {
        let more = match *program {
            "ekiden" => "mode = \"tcp\"\nsections = true\nencrypt = true\nprofile = { base = \"longhaul\" }",
            _ => "",
        };
        format!("[treatment.{program}]\nprogram = \"{program}\"\n{more}\n")
    };
    let names: String = programs.iter().map(|program| format!(", \"{program}\"")).collect();
    let flows = "protocol = \"flows\", connections = 4, short = { bytes = \"2KiB\", every = \"100ms\" }, \
                 time = { quick = \"2s\", full = \"2s\" }, warm_up = \"1s\", chain = [\"relay\", \"other\"]";
    let text = with_two_routers("rate = \"50Mbit/s\"\ndelay = \"2ms\"")
        .replace("[treatment.relay]\nprogram = \"RELAY\"\n", &programs.iter().map(treatment).collect::<String>())
        .replace(", \"relay\"]\nblocks", &format!("{names}]\nlateness_limit = \"1s\"\nblocks"));
    format!(
        "{text}\n[[factor]]\nname = \"what\"\nlevels = [{{ name = \"file\" }}, {{ name = \"flows\", set = {{ workload = {{ {flows} }} }} }}]\n"
    )
}

fn metric(run: &serde_json::Value, key: &str) -> f64 {
    run["metrics"][key].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn every_tunnel_program_carries_files_and_flows() {
    let mut programs = vec!["ssh", "vtun", "openvpn"];
    if ekiden().is_some() {
        programs.push("ekiden");
    } else {
        skipped("in part: there is no ekiden beside the laboratory (cargo build)");
    }
    let fixture = ExperimentFixture::new();
    fixture.write(&with_tunnels(&programs));
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 2 * (1 + programs.len()), "{}", stderr_text(&output));
    let direct = runs.iter().find(|run| run["treatment"] == "direct" && run["levels"]["what"] == "file").unwrap();
    for run in &runs {
        let is_file = run["levels"]["what"] == "file";
        if is_file && run["treatment"] != "direct" {
            // Encryption adds bytes to every packet or record.
            assert!(
                bytes_crossed(run) > bytes_crossed(direct) + 2_000,
                "{} {}",
                bytes_crossed(run),
                bytes_crossed(direct)
            );
        }
        if !is_file {
            // At least three of the four flows transfer data, and no flow has all of the rate, which would be a Jain's
            // index of 1/4. The least rate is that of TCP over TCP after losses.
            assert!(metric(run, "stalled") < 0.5 && metric(run, "jain") > 0.25, "{run}");
            assert!(metric(run, "mbit_s") >= 1.0, "{run}");
            // Bytes that are in buffers at the beginning of the measurement can raise its rate above that of the line.
            // They hardly affect the average since the start.
            let last = run["timeline"].as_array().unwrap().last().unwrap();
            assert!(last[1].as_f64().unwrap() * 8.0 / last[0].as_f64().unwrap() < 50e6, "{run}");
            // The handshake and the response take two round trips of 4 ms. The default queue of 1000 packets adds up to
            // 240 ms to each, and a lost SYN the initial retransmission timeout of 1 s.
            assert!((8.0..1500.0).contains(&metric(run, "completion_ms")), "{run}");
        }
    }
}

/// The experiment with a treatment for each program as two transparent relays. The workload is a stream, or a file that
/// wget downloads.
fn transparent(programs: &[&str]) -> String {
    let treatment = |program: &&str| format!("[treatment.{program}]\nprogram = \"{program}\"\ntransparent = true\n");
    let stream = "protocol = \"stream\", time = { quick = \"1s\", full = \"1s\" }, chain = [\"relay\", \"other\"]";
    let names: String = programs.iter().map(|program| format!(", \"{program}\"")).collect();
    let levels = format!(
        "[[factor]]\nname = \"what\"\nlevels = [{{ name = \"file\" }}, {{ name = \"stream\", set = {{ workload = {{ {stream} }} }} }}]\n"
    );
    let text = with_two_routers("")
        .replace("[workload]", "[workload]\nagent = \"wget\"")
        .replace("[treatment.relay]\nprogram = \"RELAY\"\n", &programs.iter().map(treatment).collect::<String>())
        .replace(", \"relay\"]\nblocks", &format!("{names}]\nblocks"));
    format!("{text}\n{levels}")
}

#[test]
fn transparent_relays_carry_files_and_streams() {
    let mut programs = vec!["haproxy"];
    if ekiden().is_some() {
        programs.push("ekiden");
    } else {
        skipped("in part: there is no ekiden beside the laboratory (cargo build)");
    }
    let fixture = ExperimentFixture::new();
    fixture.write(&transparent(&programs));
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 2 + 2 * programs.len(), "{}", stderr_text(&output));
    for run in &runs {
        let figure = |key: &str| run["metrics"][key].as_f64();
        assert!(figure("mbit_s") > Some(0.0), "{run}");
        // A stream has no time to the first byte.
        assert_eq!(figure("first_byte_ms").is_some(), run["levels"]["what"] == "file", "{run}");
    }
}
