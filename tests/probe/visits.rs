//! Two consecutive visits: the second visit uses the section of the first.

use std::io::Write;
use std::net::TcpStream;

use serde_json::Value;

use super::fixture::*;
use super::harness::*;

const VISIT: usize = 1 << 20;

/// Answers one request with the requested range of the file, and closes the connection.
fn answer_partially(mut stream: TcpStream) {
    if !has_request(&stream) {
        return;
    }
    let head = read_head(&mut stream);
    let is_part = head.contains(&format!("\r\nRange: bytes=0-{}\r\n", VISIT - 1));
    let (status, length) = if is_part { ("206 Partial Content", VISIT) } else { ("200 OK", LONG) };
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    // The probe closes when it has enough bytes.
    let _ = stream.write_all(&vec![b'x'; length]);
}

fn visits<'v>(report: &'v Value, name: &str) -> &'v Value {
    let found = candidate(report, name);
    assert_eq!(found["error"], Value::Null, "{found:#}");
    &found["visits"]
}

/// Returns whether the times of both visits are more than zero.
fn has_times(visits: &Value) -> bool {
    ["first_ms", "second_ms"].iter().all(|key| visits[key].as_f64().is_some_and(|time| time > 0.0))
}

#[test]
fn the_second_visit_uses_the_section_of_the_first() {
    let (own, folder) = (Key::new(), Folder::new());
    let (plain, plain_key) = relay(&own, "allow_private = true\n");
    let (sealed, sealed_key) = relay(&own, "allow_private = true\n");
    // `direct` is the only path of a route: a session of the daemon would never use these relays.
    let relays = table("plain", plain.address(), &plain_key.public)
        + &table("sealed", sealed.address(), &sealed_key.public)
        + "encrypt = true\n[[route]]\npath = [\"direct\"]\n";
    let file = caller_config(&folder, &own, &relays);
    let url = format!("http://{}/file", serve(answer_partially));
    let output = probe(&[&url, "-c", &file, "--json"]);
    let report = json(&output);
    for (name, reuse) in [("direct", false), ("via plain", true), ("via sealed", true)] {
        let visits = visits(&report, name);
        assert_eq!((&visits["bytes"], &visits["reuse"]), (&VISIT.into(), &reuse.into()), "{name}: {visits}");
        assert!(has_times(visits), "{name}: {visits}");
    }
    let printed = text(&output.stderr);
    assert!(
        printed.contains("two visits of 1MiB per path, and real traffic of at most 2 s or 24MiB per path"),
        "{printed}"
    );

    let printed = text(&probe(&[&url, "-c", &file]).stdout);
    assert!(printed.lines().any(|line| line == "  visits of 1MiB        1st ms   2nd ms"), "{printed}");
    assert!(printed.replace("\n  ", " ").contains("For the second visit relays reuse their connections"), "{printed}");
    assert!(!printed.contains("no reuse") && printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
}

/// The server ignores the requested range: a small file arrives completely and leaves the section reusable, and the
/// probe aborts the transfer of a large file.
#[test]
fn interrupted_visit_leaves_no_reusable_section() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\n");
    let file = caller_config(&folder, &own, &table("near", near.address(), &key.public));
    let small = serve(|stream| answer(stream, 200_000, 100_000, std::time::Duration::ZERO));
    let report = json(&probe(&[&format!("http://{small}/file"), "-c", &file, "--json"]));
    let found = visits(&report, "via near");
    assert_eq!((&found["bytes"], &found["reuse"]), (&200_000.into(), &true.into()), "{found}");

    let url = format!("http://{}/file", serve(answer_fast));
    let report = json(&probe(&[&url, "-c", &file, "--json"]));
    let found = visits(&report, "via near");
    assert_eq!((&found["bytes"], &found["reuse"]), (&VISIT.into(), &false.into()), "{found}");
    assert!(has_times(found), "{found}");
    let printed = text(&probe(&[&url, "-c", &file]).stdout);
    assert!(printed.lines().any(|line| line.starts_with("  via near ") && line.ends_with("  no reuse")), "{printed}");
    assert!(printed.contains("  No reuse: "), "{printed}");
}

#[test]
fn visits_are_predicted_where_there_is_no_file() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\n");
    let file = caller_config(&folder, &own, &table("near", near.address(), &key.public));
    let address = serve(answer_fast);
    let report = json(&probe(&[&address.to_string(), "-c", &file, "--json"]));
    let direct = visits(&report, "direct");
    assert!(has_times(direct), "{direct}");
    assert_eq!((&direct["first_ms"], &direct["reuse"]), (&direct["second_ms"], &false.into()), "{direct}");
    let near = visits(&report, "via near");
    assert_eq!(near["reuse"], true);
    assert!(has_times(near) && near["second_ms"].as_f64() <= near["first_ms"].as_f64(), "{near}");
    let printed = text(&probe(&[&address.to_string(), "-c", &file]).stdout);
    assert!(printed.replace("\n  ", " ").contains("Mbit/s, sizes and visits are predicted"), "{printed}");
}
