//! Start, configuration check, reload, drain and status of a relay.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;

use harness::*;

fn config(listeners: &[(&str, SocketAddr)]) -> String {
    let mut text = "version = 1\n".to_owned();
    for (name, target) in listeners {
        text += &format!(
            "[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
        );
    }
    text
}

#[test]
fn a_closed_standard_output_ends_a_command_without_a_message() {
    for arguments in [&["doctor"][..], &["keygen"], &["completions", "bash"]] {
        let output = ekiden().args(arguments).stdout(broken_pipe()).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGPIPE), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn check_reports_every_error_and_sets_the_exit_code() {
    let folder = Folder::new();
    let bad = folder.write(
        "bad.toml",
        "version = 1\nfarward = []\n[limits]\nhead = 64\n[[listener]]\nbind = \"0.0.0.0:1\"\nkind = \"sox\"\n",
    );
    let output = ekiden().arg("check").arg(&bad).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for expected in ["farward", "forward", "limits.head", "listener[1].kind", "allow_open", "bad.toml:2"] {
        assert!(printed.contains(expected), "{expected} is missing in:\n{printed}");
    }
    let good = folder.write("good.toml", config(&[("a", unused_address())]));
    let output = ekiden().arg("check").arg(&good).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn port_in_use_by_another_relay_is_reported() {
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let output =
        ekiden().args(["run", "--admin", "off", "-L", &format!("auto://{}", relay.address())]).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("another ekiden"), "{printed}");
}

#[test]
fn reload_applies_to_new_sessions_only() {
    let folder = Folder::new();
    let file = folder.write("ekiden.toml", config(&[("door", greeter("old"))]));
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let mut running = relay.connect();
    assert_eq!(read_exactly(&mut running, 3), b"old");

    folder.write("ekiden.toml", config(&[("door", greeter("new")), ("second", greeter("two"))]));
    relay.signal("HUP");
    let second = relay.next(|event| event["event"] == "listening" && event["listener"] == "second");
    assert_eq!(relay.next(|event| event["event"] == "reloaded")["listeners"], 2);
    let second = second["address"].as_str().unwrap().parse().unwrap();
    assert_eq!(read_exactly(&mut connect(second), 3), b"two");
    // A worker may still have the old configuration after the event, but accepts each connection.
    eventually("the new target", || (read_exactly(&mut relay.connect(), 3) == b"new").then_some(()));

    running.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut running), b"");
}

#[test]
fn rejected_reload_keeps_the_old_configuration() {
    let folder = Folder::new();
    let file = folder.write("ekiden.toml", config(&[("door", greeter("old"))]));
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    folder.write("ekiden.toml", "version = 1\n[[listener]]\nbind = \"nowhere\"\nkind = \"sox\"\n");
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert_eq!(rejected["mistakes"].as_array().unwrap().len(), 2, "{rejected}");
    assert_eq!(read_exactly(&mut relay.connect(), 3), b"old");

    // The port is in use by a socket of the test.
    let (_taken, address) = server();
    let text = config(&[("door", greeter("new"))]).replace("127.0.0.1:0", &address.to_string());
    folder.write("ekiden.toml", text);
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("cannot listen"), "{rejected}");
    assert_eq!(read_exactly(&mut relay.connect(), 3), b"old");
}

/// Bug: before the new listener failed, the reload had opened a socket of `door` for each further thread, and the
/// connections to these sockets were never accepted.
#[test]
fn rejected_reload_with_more_threads_leaves_no_socket_without_a_worker() {
    let folder = Folder::new();
    let configure = |threads: usize, more: &str| {
        let door = config(&[("door", greeter("old"))]);
        let text = door.replace("version = 1", &format!("version = 1\nthreads = {threads}"));
        folder.write("ekiden.toml", text + more)
    };
    let file = configure(1, "");
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    // The port is in use by a socket of the test.
    let (_taken, address) = server();
    configure(8, &format!("[[listener]]\nname = \"second\"\nbind = \"{address}\"\nkind = \"socks\"\n"));
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("second cannot listen"), "{rejected}");
    // The kernel spreads the connections over all sockets of the listener.
    for _ in 0..50 {
        assert_eq!(read_exactly(&mut relay.connect(), 3), b"old");
    }
}

/// Bug: each worker got the new configuration as soon as its sockets were duplicated. Without descriptors for all
/// workers, the reload was rejected, and the first workers had the new configuration.
#[test]
fn reload_without_free_descriptors_changes_no_worker() {
    const THREADS: usize = 24;
    let folder = Folder::new();
    let configure = |greeting| {
        let door = config(&[("door", greeter(greeting))]);
        folder.write("ekiden.toml", door.replace("version = 1", &format!("version = 1\nthreads = {THREADS}")))
    };
    let file = configure("old");
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    // The answer shows that all threads have started, so their descriptors are counted below.
    assert_eq!(relay.sessions().len(), 0);
    // Enough for one session, and not for the sockets of all workers. A reload lowers the limit by a reserve.
    let files = relay.descriptors() + THREADS / 3;
    let hard = (files..).find(|hard| hard - (hard / 8).min(16) == files).unwrap();
    let mut prlimit = std::process::Command::new("prlimit");
    prlimit.args([format!("--pid={}", relay.id()), format!("--nofile={hard}:{hard}")]);
    assert!(prlimit.status().expect("prlimit runs").success());
    configure("new");
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("Too many open files"), "{rejected}");
    for _ in 0..30 {
        assert_eq!(read_exactly(&mut relay.connect(), 3), b"old");
        eventually("the end of the session", || relay.sessions().is_empty().then_some(()));
    }
}

/// Regression: the check for other programs on the new address found the relay's own socket.
#[test]
fn reload_moves_a_listener_to_an_overlapping_address() {
    let (folder, port) = (Folder::new(), free_port());
    let configure = |ip: &str, target: SocketAddr| {
        let text = config(&[("door", target)]).replace("127.0.0.1:0", &format!("{ip}:{port}"));
        folder.write("ekiden.toml", format!("{text}allow_open = true\nallow_private = true\n"))
    };
    let file = configure("127.0.0.1", greeter("old"));
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    for (ip, greeting) in [("0.0.0.0", "all"), ("127.0.0.1", "one")] {
        configure(ip, greeter(greeting));
        relay.signal("HUP");
        let outcome = relay.next(|event| event["event"] == "reloaded" || event["event"] == "reload_rejected");
        assert_eq!(outcome["event"], "reloaded", "{ip}: {outcome}");
        // A worker may still have the old configuration after the event, but accepts each connection.
        eventually("the new target", || (read_exactly(&mut relay.connect(), 3) == greeting.as_bytes()).then_some(()));
    }
}

#[test]
fn sigterm_lets_running_sessions_finish() {
    let (listener, target) = server();
    let mut relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{target}")]);
    let mut client = relay.connect();
    let mut server = accept(&listener);
    // The polls below connect while some threads may still accept: without the target such a session ends at once.
    close(listener);
    relay.signal("TERM");
    assert_eq!(relay.next(|event| event["event"] == "draining")["open"], 1);
    let address = relay.address();
    eventually("the close of the listener", || std::net::TcpStream::connect(address).is_err().then_some(()));
    server.write_all(b"to the end").unwrap();
    drop(server);
    assert_eq!(read_all(&mut client), b"to the end");
    drop(client);
    assert_eq!(relay.exit_code(), Some(0));
    let events = relay.remaining_events();
    let stopped = events.iter().find(|event| event["event"] == "stopped").unwrap();
    assert_eq!(stopped["aborted"], 0);
}

#[test]
fn status_and_metrics_show_a_running_session() {
    let (listener, target) = server();
    let relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{target}?name=door")]);
    let mut client = relay.connect();
    let mut server = accept(&listener);
    server.write_all(&pattern(1000)).unwrap();
    read_exactly(&mut client, 1000);
    // The relay counts the bytes after it has written them.
    let sessions = eventually("the transferred bytes", || {
        Some(relay.sessions()).filter(|sessions| sessions.iter().any(|session| session["bytes_down"] == 1000))
    });
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["target"], target.to_string());

    let table = relay.status(&[]);
    assert!(table.contains(&target.to_string()) && table.contains("1 sessions"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&relay.status(&["--json"])).unwrap();
    assert_eq!(json["sessions"][0]["session"], sessions[0]["session"]);

    for (series, value) in [
        (r#"ekiden_sessions_open{listener="door"}"#, 1),
        (r#"ekiden_sessions_accepted_total{listener="door"}"#, 1),
        (r#"ekiden_bytes_total{listener="door",direction="down",way="copy"}"#, 1000),
    ] {
        assert_eq!(relay.metric(series), Some(value), "{series}");
    }
}

#[test]
fn status_without_a_relay_reports_an_error() {
    let output = ekiden().args(["status", "--admin", "unix:/nonexistent/ekiden.sock"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no relay answers"));
}

/// Protection against DNS rebinding: a web page can send requests to a loopback port under the host name of the page.
#[test]
fn the_admin_listener_answers_loopback_names_only() {
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let mut stream = std::os::unix::net::UnixStream::connect(&relay.admin).unwrap();
    write!(stream, "GET /api/sessions HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn doctor_reports_kernel_settings_and_built_in_profiles() {
    let output = ekiden().arg("doctor").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    // Whether there are bad findings depends on the machine.
    assert_eq!(output.status.code(), Some(i32::from(printed.contains("\nBAD "))), "{printed}");
    for expected in ["kernel", "send buffer ceiling"] {
        assert!(printed.contains(expected), "{expected} is missing in:\n{printed}");
    }
    for name in ekiden_proto::profile::BUILT_IN {
        let subject = format!(" profile {name} ");
        // The finding about the initial window has the subject of the profile, too.
        let is_finding = |line: &str| line.contains(&subject) && !line.contains("first window");
        assert!(printed.lines().any(is_finding), "{name} is missing in:\n{printed}");
    }
}

#[test]
fn profiles_are_reported_setting_by_setting() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0?profile=longhaul"]);
    let applied = relay.next(|event| event["event"] == "profile_applied" && event["place"] == "auto-0");
    let settings: Vec<_> = applied["settings"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(applied["profile"], "longhaul");
    assert!(settings.iter().any(|setting| setting.starts_with("congestion = bbr: ")), "{settings:?}");
    assert!(settings.contains(&"nodelay = true: applied"), "{settings:?}");
}
