//! Output, warnings and errors of `ekiden plan`.

mod harness;

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use harness::{Folder, accept, connect, ekiden, server, signal, unused_address};
use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    ekiden().arg("plan").args(arguments).output().expect("ekiden runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

const MASUYA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/plan-masuya.toml");

/// Throughput of 8 MiB from Tokyo to Yoron in Mbit/s, by relays, in descending order (Masuya and Shimozono, 2014,
/// table 4).
const PUBLISHED: [(&[&str], f64); 4] = [(&["kagoshima"], 65.8), (&["fukuoka"], 58.6), (&[], 48.2), (&["osaka"], 48.1)];

/// The plan proposes the relay with the largest published gain, the paths have the published order, and the predicted
/// rates differ from the published rates by less than 20 %.
#[test]
fn example_plan_matches_the_published_results() {
    let output = plan(&[MASUYA, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["one_relay_more"][0]["places"], serde_json::json!(["kagoshima"]), "{plan:#}");
    let paths = plan["traffic"][0]["paths"].as_array().expect("paths");
    let at_8_mib = plan["sizes"].as_array().unwrap().iter().position(|size| *size == 8 << 20).unwrap();
    let mut before = f64::INFINITY;
    for (relays, published) in PUBLISHED {
        let path = paths.iter().find(|path| path["relays"] == serde_json::json!(relays)).expect("the path");
        let seconds = path["completion_ms"][at_8_mib].as_f64().unwrap() / 1e3;
        let predicted = f64::from(8 << 20) * 8.0 / 1e6 / seconds;
        assert!((predicted / published - 1.0).abs() < 0.2, "{relays:?}: {predicted} for {published}");
        assert!(predicted < before, "{relays:?} is faster than the path before");
        before = predicted;
    }
}

#[test]
fn the_table_is_readable_in_80_columns() {
    let output = plan(&[MASUYA]);
    let table = text(&output.stdout);
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    for part in ["yoron -> tokyo", "direct", "via +kagoshima", "Put the next relay at kagoshima", "3 estimated (~)"] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
}

#[test]
fn picture_is_written_as_svg() {
    let folder = Folder::new();
    let picture = folder.0.join("plan.svg");
    let output = plan(&[MASUYA, "--picture", picture.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(&picture).expect("the picture");
    for part in ["<svg ", "21.2 ms", ">yoron<", ">kagoshima<", "up to 1.", "</svg>"] {
        assert!(svg.contains(part), "{part} is missing");
    }
    let nowhere = plan(&[MASUYA, "--picture", "/nonexistent/plan.svg"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("cannot write the picture to /nonexistent/plan.svg"));
}

#[test]
fn all_errors_are_reported_with_their_lines() {
    let folder = Folder::new();
    let file = folder.write(
        "plan.toml",
        "version = 1
[[site]]
name = \"a\"
role = \"client\"
[[site]]
name = \"b\"
role = \"rely\"
[[site]]
name = \"c\"
role = \"server\"
[rtt.a]
b = \"10ms\"
c = \"-3ms\"
a = \"1ms\"
d = \"5ms\"
[rtt.b]
a = \"30ms\"
[rtt.c]
a = \"4s\"
b = \"20ms\"
[[traffic]]
from = \"a\"
to = \"x\"
wieght = 2
[[section]]
between = [\"a\", \"b\"]
congestion = \"BBR\"
",
    );
    let output = plan(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let errors = text(&output.stderr);
    for (line, part) in [
        (7, "site[2].role = \"rely\": expected \"client\""),
        (13, "rtt.a.c = \"-3ms\": expected a time above zero"),
        (14, "rtt.a.a = \"a\": expected another site"),
        (15, "rtt.a.d = \"d\": expected a site"),
        (17, "rtt.b.a = \"30ms\": expected \"10ms\", the value of rtt.a.b"),
        (19, "rtt.c.a = \"4000ms\": expected not 80 times as long as by b"),
        (23, "traffic[1].to = \"x\": expected a site"),
        (24, "traffic[1].wieght"),
        // Regression: the model took any other name for cubic.
        (27, "section[1].congestion = \"BBR\": expected \"reno\", \"cubic\", \"ctcp\" or \"bbr\""),
    ] {
        let expected = format!("plan.toml:{line}: {part}");
        assert!(errors.contains(&expected), "{expected} is missing in:\n{errors}");
    }
    assert_eq!(errors.lines().count(), 9, "{errors}");
}

#[test]
fn much_shorter_detour_is_only_a_warning() {
    let folder = Folder::new();
    let file = folder.write(
        "plan.toml",
        "version = 1\n[[site]]\nname = \"a\"\nrole = \"client\"\n[[site]]\nname = \"b\"\nrole = \"relay\"\n[[site]]\n\
         name = \"c\"\nrole = \"server\"\n[rtt.a]\nb = \"20ms\"\nc = \"400ms\"\n[rtt.b]\nc = \"20ms\"\n",
    );
    let output = plan(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let warned = text(&output.stderr);
    assert!(warned.contains("plan.toml:13: warning: rtt.a.c = \"400ms\": expected not 10 times as long"), "{warned}");
    assert!(text(&output.stdout).contains("via b is"));
}

/// A refused connection also yields a round-trip time. If the host cannot be reached and the plan has no position of
/// the site, the plan fails with a reason.
#[test]
fn round_trips_from_the_local_site_are_measured() {
    let (_listener, open) = server();
    let refuses = unused_address();
    let folder = Folder::new();
    let text_of = |address: &str| {
        format!(
            "version = 1\nhere = \"a\"\n[[site]]\nname = \"a\"\nrole = \"client\"\n[[site]]\nname = \"b\"\nrole = \"relay\"\n\
             address = \"{refuses}\"\n[[site]]\nname = \"c\"\nrole = \"server\"\naddress = \"{address}\"\n[rtt.b]\n\
             c = \"1ms\"\na = \"measured\"\n[rtt.c]\na = \"measured\"\n"
        )
    };
    let file = folder.write("plan.toml", text_of(&open.to_string()));
    let output = plan(&[file.to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan_of: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trips = plan_of["round_trips"].as_array().unwrap();
    let measured: Vec<_> = trips.iter().filter(|trip| trip["origin"] == "measured").collect();
    assert_eq!(measured.len(), 2, "{trips:?}");
    assert!(measured.iter().all(|trip| trip["rtt_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms < 1000.0)));

    let file = folder.write("plan.toml", text_of("no-such-name.invalid:1"));
    let output = plan(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("a -> c: the round trip could not be measured: set rtt.a.c"), "{errors}");
}

/// The command printed a plan in which estimates replaced the round trips that it had not measured.
#[test]
fn interrupted_measurement_prints_no_plan() {
    let (listener, open) = server();
    // A listener with a full accept queue does not answer further SYNs.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let silent = full.local_addr().unwrap().as_socket().unwrap();
    let _first = connect(silent);
    let folder = Folder::new();
    let picture = folder.0.join("plan.svg");
    let file = folder.write(
        "plan.toml",
        format!(
            "version = 1\nhere = \"a\"\nmeasured = true\n[[site]]\nname = \"a\"\nrole = \"client\"\nposition = [0, 0]\n\
             [[site]]\nname = \"b\"\nrole = \"relay\"\nposition = [0, 1]\naddress = \"{open}\"\n[[site]]\nname = \"c\"\n\
             role = \"server\"\nposition = [0, 2]\naddress = \"{silent}\"\n"
        ),
    );
    let mut command = ekiden();
    command.arg("plan").arg(file).arg("--picture").arg(&picture).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().expect("ekiden runs");
    // After five connections to b, the command waits for an answer from c.
    for _ in 0..5 {
        accept(&listener);
    }
    signal(child.id(), "INT");
    let output = child.wait_with_output().expect("ekiden ends");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(130), String::new()));
    assert!(!picture.exists());
}

/// Both sites have positions of distant cities but are on this host: the measured round trip is shorter than the time
/// that light needs.
#[test]
fn implausible_measured_round_trip_is_a_warning() {
    let (_listener, address) = server();
    let folder = Folder::new();
    let file = folder.write(
        "plan.toml",
        format!(
            "version = 1\nhere = \"yoron\"\n[[site]]\nname = \"yoron\"\nrole = \"client\"\nposition = [27.05, 128.43]\n[[site]]\n\
             name = \"tokyo\"\nrole = \"server\"\nposition = [35.68, 139.77]\naddress = \"{address}\"\n[rtt.tokyo]\n\
             yoron = \"measured\"\n"
        ),
    );
    let output = plan(&[file.to_str().unwrap()]);
    let errors = text(&output.stderr);
    assert!(errors.contains("warning: yoron - tokyo, as measured: expected at least 9.6ms"), "{errors}");
    assert_eq!(output.status.code(), Some(0), "a warning only: the position may be wrong");
}
