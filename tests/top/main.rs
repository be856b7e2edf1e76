//! `ekiden top` on a pseudo-terminal, for a relay with traffic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
mod terminal;

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{Folder, Relay, ekiden, serve};
use terminal::Terminal;

/// `ekiden top` with these arguments, for the relay at `admin`, with terminal variables that do not depend on the
/// caller's environment.
fn top(admin: &Path, arguments: &[&str]) -> Command {
    top_every("100ms", admin, arguments)
}

/// Like `top`, with another refresh interval.
fn top_every(time: &str, admin: &Path, arguments: &[&str]) -> Command {
    let mut command = ekiden();
    command.args(["top", "--every", time, "--admin", &format!("unix:{}", admin.display())]).args(arguments);
    for name in ["NO_COLOR", "LC_CTYPE", "COLUMNS", "LINES"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
    command
}

/// Starts a relay to a server that sends at most 1.6 MB/s (16 KiB every 10 ms), and a client that reads.
fn busy_relay() -> (Relay, std::net::TcpStream) {
    let server = serve(|mut stream| {
        while stream.write_all(&[7; 16 << 10]).is_ok() {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
    let relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{server}?name=door")]);
    let client = relay.connect();
    let mut reader = client.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    (relay, client)
}

/// Whether a line shows a running session with a rate in Mbit/s.
fn is_busy(line: &str) -> bool {
    line.starts_with("      1 127.0.0.1") && line.split_whitespace().skip(3).any(|rate| rate.ends_with('M'))
}

/// Asserts that the program has restored the terminal. The last output may not have arrived yet.
fn assert_restored(terminal: &mut Terminal) {
    assert!(terminal.is_restored(), "the terminal modes are restored");
    terminal.wait_until("the restored screen", |screen| !screen.alternate && screen.cursor_shown);
}

#[test]
fn top_shows_list_and_details_and_q_restores_the_terminal() {
    let (relay, client) = busy_relay();
    let mut terminal = Terminal::start(&top(&relay.admin, &[]), 80, 24);
    terminal.wait_until("a session and its rate", |screen| is_busy(&screen.line(4)));
    assert!(!terminal.is_restored() && terminal.screen.alternate && !terminal.screen.cursor_shown);
    assert!(terminal.screen.line(0).contains("1 session  down "), "{}", terminal.screen.text());
    assert!(terminal.screen.coloured);

    terminal.keys("\r");
    terminal
        .wait_until("the details of the session", |screen| screen.has("Session 1, ") && screen.has("listener door"));
    terminal.wait_until("a plot", |screen| screen.has("rate down") && screen.has("█"));
    terminal.keys("\x1b");
    terminal.wait_until("the list of sessions", |screen| screen.has("LIMITED BY"));
    terminal.keys("/nowhere");
    terminal.wait_until("the empty list", |screen| {
        screen.has("no session matches the filter") && screen.has("filter: nowhere_")
    });
    terminal.keys("\x1b");
    terminal.wait_until("the complete list", |screen| is_busy(&screen.line(4)));
    terminal.keys("\x1b[C\x1b[C");
    terminal.wait_until("another order", |screen| screen.line(1).starts_with("by bytes-down, "));

    terminal.resize(46, 10);
    terminal.wait_until("a smaller screen", |screen| {
        screen.line(9).starts_with("q quit") && screen.line(4).contains("127.0.0.1")
    });
    terminal.resize(120, 30);
    terminal.wait_until("a larger screen", |screen| {
        screen.line(29).starts_with("q quit") && screen.line(3).contains("AGE")
    });

    drop(client.shutdown(std::net::Shutdown::Both));
    terminal.wait_until("the end of the session", |screen| screen.has("no sessions"));
    terminal.keys("q");
    assert_eq!(terminal.end(), Some(0));
    assert_restored(&mut terminal);
}

#[test]
fn top_reconnects_after_a_relay_restart() {
    // The address is a symbolic link to the admin socket of one relay, and later of another.
    let folder = Folder::new();
    let name = folder.0.join("admin.sock");
    let (relay, _client) = busy_relay();
    symlink(&relay.admin, &name).unwrap();
    let mut terminal = Terminal::start(&top(&name, &["--no-color"]), 160, 24);
    terminal.wait_until("a session", |screen| is_busy(&screen.line(4)));

    drop(relay);
    terminal.wait_until("the relay's absence", |screen| {
        screen.line(1).starts_with("no answer from ") && screen.has("Still asking")
    });
    assert!(terminal.screen.line(4).contains("127.0.0.1"), "the last known state:\n{}", terminal.screen.text());

    let (again, _client) = busy_relay();
    std::fs::remove_file(&name).unwrap();
    symlink(&again.admin, &name).unwrap();
    terminal.wait_until("the next relay", |screen| screen.line(1).starts_with("by down") && is_busy(&screen.line(4)));
    assert!(!terminal.screen.coloured, "--no-color");
    terminal.keys("\x03");
    assert_eq!(terminal.end(), Some(0));
    assert_restored(&mut terminal);
}

#[test]
fn signals_restore_the_terminal() {
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for signal in ["TERM", "INT", "HUP"] {
        let mut command = top(&relay.admin, &[]);
        command.env("NO_COLOR", "1");
        let mut terminal = Terminal::start(&command, 80, 24);
        terminal.wait_until("the empty list", |screen| screen.has("no sessions"));
        let sent = Command::new("kill").args(["-s", signal, &terminal.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(terminal.end(), Some(0), "{signal}");
        assert_restored(&mut terminal);
        assert!(!terminal.screen.coloured, "NO_COLOR");
    }
}

#[test]
fn unusable_terminal_and_missing_relay_are_reported() {
    let (relay, _client) = busy_relay();
    let piped = top(&relay.admin, &[]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(piped.stderr).unwrap();
    assert_eq!(piped.status.code(), Some(1));
    assert!(printed.contains("ekiden top --once") && printed.contains("ekiden status"), "{printed}");
    assert!(piped.stdout.is_empty());

    for term in ["dumb", ""] {
        let mut terminal = Terminal::start(top(&relay.admin, &[]).env("TERM", term), 200, 24);
        assert_eq!(terminal.end(), Some(1));
        terminal.wait_until("the message with the remedy", |screen| {
            screen.has("cannot position text") && screen.has("ekiden status")
        });
        assert_restored(&mut terminal);
    }

    let mut terminal = Terminal::start(&top(&PathBuf::from("/nonexistent/admin.sock"), &[]), 200, 24);
    assert_eq!(terminal.end(), Some(1));
    terminal.wait_until("the message with the remedy", |screen| {
        screen.has("no relay answers at unix:/nonexistent/admin.sock (is `ekiden run` up?)")
    });
}

#[test]
fn once_prints_one_plain_text_screen_with_rates() {
    let (relay, _client) = busy_relay();
    // The interval is long enough for the server to send, also on a busy machine.
    let mut command = top_every("2s", &relay.admin, &["--once", "--sort", "age", "--filter", "door"]);
    let output = command.env("COLUMNS", "100").env("LINES", "12").stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 12, "{shown}");
    assert!(lines[1].starts_with("by age, highest first  1 with \"door\""), "{shown}");
    // The first column of this name has the rate; its heading and its values end at the same place.
    let rate_end = lines[3].find("DOWN").expect("the column of the rate") + "DOWN".len() - 1;
    assert!(lines[4].contains("127.0.0.1") && lines[4].chars().nth(rate_end) == Some('M'), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn command_line_errors_are_reported() {
    for (arguments, expected) in [
        (["--sort", "speed"], "expected one of session, client"),
        (["--every", "1ms"], "expected 100ms or more"),
        (["--every", "soon"], "a time like"),
    ] {
        let output = ekiden().arg("top").args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(expected), "{printed}");
    }
}
