//! Level, redaction and rate limit of the log.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use harness::*;
use serde_json::Value;

/// Loopback addresses that appear in log lines only as the address of the client or of the server.
const CLIENT: [u8; 4] = [127, 9, 8, 7];
const SERVER: [u8; 4] = [127, 6, 5, 4];

/// Starts a web server at [`SERVER`] that answers each connection with a page.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::from(SERVER), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage");
        }
    });
    address
}

/// Runs a SOCKS5 session from [`CLIENT`] to its end. Returns the reply code of the relay.
fn session(relay: SocketAddr, to: SocketAddr) -> u8 {
    match socks5_from(CLIENT, relay, to) {
        Ok(mut stream) => {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            assert!(read_remaining(&mut stream).0.ends_with(b"page"));
            0
        }
        Err(code) => code,
    }
}

/// Requests a page from [`CLIENT`] through the HTTP proxy. Returns the whole response.
fn page(relay: SocketAddr, from: SocketAddr) -> String {
    let mut stream = connect_from(CLIENT, relay);
    write!(stream, "GET http://{from}/page HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n").unwrap();
    String::from_utf8(read_remaining(&mut stream).0).unwrap()
}

/// Starts a relay with the log settings `log` and a listener named `door`.
fn start(log: &str, arguments: &[&str]) -> (Relay, SocketAddr, Folder) {
    let folder = Folder::new();
    let text = format!("version = 1\n{log}\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n");
    let file = folder.write("ekiden.toml", text);
    let mut command = ekiden();
    let socket = folder.0.join("admin");
    command.args(["run", "-c"]).arg(file).args(arguments).args(["--admin", &format!("unix:{}", socket.display())]);
    // The log may be empty, so the address comes from the admin listener.
    let relay = Relay::start_with_admin(&mut command, 0, socket.clone());
    // The socket file exists from bind(2) on, but connections succeed only after listen(2).
    eventually("the admin listener", || UnixStream::connect(&socket).ok());
    let address = eventually("the address of the listener", || {
        let events: Value = serde_json::from_str(&relay.ask("/api/events")).unwrap();
        let lines = events.as_array().unwrap().iter().filter_map(|event| event["line"].as_str());
        let mut found = lines.filter(|line| line.contains(" listening listener=door "));
        found.next()?.split("address=").nth(1)?.trim().parse().ok()
    });
    (relay, address, folder)
}

/// Stops the relay after all sessions have ended. Returns all its events.
fn stop_and_read_events(relay: &mut Relay) -> Vec<Value> {
    eventually("all sessions to end", || relay.sessions().is_empty().then_some(()));
    relay.signal("TERM");
    assert_eq!(relay.exit_code(), Some(0));
    relay.remaining_events()
}

fn event_names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn every_notation_of_level_off_silences_the_log() {
    for (log, arguments) in
        [("log = \"off\"", &[][..]), ("[log]\nlevel = \"off\"", &[]), ("log = \"sessions\"", &["--log-level", "off"])]
    {
        let (mut relay, address, _folder) = start(log, arguments);
        assert_eq!(session(address, origin()), 0);
        assert_eq!(session(address, unused_address()), 5);
        assert_eq!(stop_and_read_events(&mut relay), [Value::Null; 0], "{log} {arguments:?}");
    }
}

#[test]
fn problems_level_logs_failed_sessions_and_relay_events() {
    let (mut relay, address, _folder) = start("log = \"problems\"", &[]);
    assert_eq!(session(address, origin()), 0);
    assert!(page(address, origin()).starts_with("HTTP/1.1 200"));
    assert_eq!(session(address, unused_address()), 5);
    assert!(page(address, unused_address()).starts_with("HTTP/1.1 502"));
    let events = stop_and_read_events(&mut relay);
    let fields_of = |name: &str, field: &str| -> Vec<Value> {
        events.iter().filter(|event| event["event"] == name).map(|event| event[field].clone()).collect()
    };
    assert_eq!(fields_of("closed", "end"), ["refused"; 2]);
    assert_eq!(fields_of("request", "status"), [502]);
    for word in ["listening", "draining", "stopped"] {
        assert!(event_names(&events).contains(&word), "no {word} in {events:#?}");
    }
}

#[test]
fn redact_hides_clients_and_targets() {
    for format in ["json", "text"] {
        for (redact, hidden, shown) in [
            ("[]", &[][..], &["127.9.8.7", "127.6.5.4"][..]),
            ("[\"client\"]", &["127.9.8.7"], &["127.6.5.4"]),
            ("[\"target\"]", &["127.6.5.4"], &["127.9.8.7"]),
            ("[\"client\", \"target\"]", &["127.9.8.7", "127.6.5.4"], &[]),
        ] {
            let text = log_text(format, redact);
            let lines: Vec<&str> =
                text.lines().filter(|line| line.contains("closed") || line.contains("request")).collect();
            assert!(lines.len() >= 5, "{text}");
            for address in hidden {
                assert!(!text.contains(address), "{address} in spite of {redact}:\n{text}");
            }
            for address in shown {
                assert!(text.contains(address), "no {address} with {redact}:\n{text}");
            }
        }
    }
}

/// Runs two SOCKS5 sessions and two HTTP requests, one of each to a refusing target. Returns the log of the relay.
fn log_text(format: &str, redact: &str) -> String {
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[log]\nformat = \"{format}\"\nredact = {redact}\n[[listener]]\nname = \"door\"\n\
         bind = \"127.0.0.1:0\"\nkind = \"auto\"\n[admin]\nbind = \"off\"\n"
    );
    let file = folder.write("ekiden.toml", text);
    let mut child = KillOnDrop(ekiden().args(["run", "-c"]).arg(file).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.0.stdout.take().unwrap()));
    let mut text = String::new();
    let mut next = |text: &mut String| {
        let line = lines.next()?.unwrap();
        text.push_str(&line);
        text.push('\n');
        Some(line)
    };
    let address = loop {
        let line = next(&mut text).expect("a line with the address");
        let found = line.split(['=', '"', ' ']).find_map(|word| word.parse::<SocketAddr>().ok());
        if let (true, Some(address)) = (line.contains("door"), found) {
            break address;
        }
    };
    let closed_port = SocketAddr::from((SERVER, free_port()));
    assert_eq!((session(address, origin()), session(address, closed_port)), (0, 5));
    assert!(page(address, origin()).starts_with("HTTP/1.1 200"));
    assert!(page(address, closed_port).starts_with("HTTP/1.1 502"));
    while text.matches("closed session=").count() + text.matches("\"event\":\"closed\"").count() < 4 {
        next(&mut text).expect("four sessions end");
    }
    signal(child.0.id(), "TERM");
    while next(&mut text).is_some() {}
    assert!(child.0.wait().unwrap().success());
    text
}

/// Regression: each failed handshake wrote a line, without a limit.
#[test]
fn failed_handshakes_do_not_flood_the_log() {
    const MANY: u64 = 600;
    let mut relay = Relay::listen(&["socks://127.0.0.1:0"]);
    let began = Instant::now();
    for _ in 0..MANY {
        let mut stream = relay.connect();
        stream.write_all(b"not SOCKS at all").unwrap();
        let _ = stream.read(&mut [0; 16]);
    }
    // The limit applies per source, so the line of another source is written.
    let mut other = connect_from(CLIENT, relay.address());
    other.write_all(b"not SOCKS at all").unwrap();
    let _ = other.read(&mut [0; 16]);
    relay.next(|event| event["client"].as_str().is_some_and(|client| client.starts_with("127.9.8.7:")));
    let closed = |relay: &Relay| {
        let metrics = relay.ask("/metrics");
        let lines = metrics.lines().filter_map(|line| line.strip_prefix("ekiden_sessions_closed_total{"));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    eventually("all sessions in the metrics", || (closed(&relay) == MANY + 1).then_some(()));
    let seconds = began.elapsed().as_secs() + 1;
    let summary = relay.next(|event| event["event"] == "suppressed");
    assert_eq!(summary["reason"], "bad_handshake", "{summary}");
    assert!(summary["seconds"].as_f64().unwrap() > 0.0, "{summary}");
    relay.signal("TERM");
    let mut events = relay.remaining_events();
    events.push(summary);
    let events_named = |word: &str| events.iter().filter(move |event| event["event"] == word).collect::<Vec<_>>();
    let written = events_named("closed").len() as u64;
    let suppressed: u64 = events_named("suppressed").iter().map(|event| event["lines"].as_u64().unwrap()).sum();
    // The line of the other source is not counted, because `next` has already returned it.
    assert_eq!(written + suppressed, MANY, "each session is a line or is counted: {:?}", event_names(&events));
    // A source may cause a burst of 50 lines, and then one line per second.
    assert!((50..=50 + seconds).contains(&written), "{written} lines of one source in {seconds} s");
    assert!(events_named("suppressed").len() as u64 <= seconds + 2, "more than one summary per second");
}

/// Regression: at its end, the relay waited without a deadline until its log was written.
#[test]
fn stalled_reader_of_the_log_does_not_prevent_the_end() {
    let (_reader, mut output) = UnixStream::pair().unwrap();
    output.set_nonblocking(true).unwrap();
    while output.write_all(&[b'\n'; 4096]).is_ok() {}
    // The relay shares this flag.
    output.set_nonblocking(false).unwrap();
    let folder = Folder::new();
    let socket = folder.0.join("admin");
    let mut command = ekiden();
    command.args(["run", "-L", "socks://127.0.0.1:0", "--admin", &format!("unix:{}", socket.display())]);
    let mut child = KillOnDrop(command.stdout(OwnedFd::from(output)).spawn().unwrap());
    eventually("the admin listener", || UnixStream::connect(&socket).ok());
    signal(child.0.id(), "TERM");
    assert!(eventually("the end of the relay", || child.0.try_wait().unwrap()).success());
}

#[test]
fn check_validates_the_log_settings() {
    let folder = Folder::new();
    let check = |text: &str| {
        let text = format!("version = 1\n{text}\n[[listener]]\nbind = \"127.0.0.1:0\"\n");
        let file = folder.write("ekiden.toml", text);
        let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).arg("check").arg(file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for good in
        ["log = \"problems\"", "[log]\nlevel = \"sessions\"\nredact = [\"client\", \"target\"]\nformat = \"json\""]
    {
        assert_eq!(check(good).0, Some(0), "{good}: {}", check(good).1);
    }
    for (bad, expected) in [
        ("log = \"on\"", &["log", "problems"][..]),
        ("[log]\nlevel = \"debug\"", &["log.level", "sessions", "problems", "off"]),
        ("[log]\nredact = [\"server\"]", &["log.redact", "client", "target"]),
    ] {
        let (code, printed) = check(bad);
        assert_eq!(code, Some(2), "{bad}: {printed}");
        assert!(expected.iter().all(|word| printed.contains(word)), "{bad}: {printed}");
    }
}
