//! Exhausted limits of sessions, descriptors and pipes: single sessions wait or fail, and the relay keeps running.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;
#[path = "clients/programs.rs"]
mod programs;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use harness::*;
use programs::is_any_missing;

/// A command that runs `ekiden run` with a limit set by `ulimit`.
fn ekiden_with_ulimit(flags: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {flags}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_ekiden"), "run"]).args(arguments);
    command
}

fn config(folder: &Folder, limits: &str, target: SocketAddr) -> String {
    let text = format!(
        "version = 1\nthreads = 1\n[limits]\n{limits}\n\
         [[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    );
    folder.write("ekiden.toml", text).to_str().unwrap().to_owned()
}

#[test]
fn at_the_session_limit_clients_wait_and_none_is_refused() {
    let folder = Folder::new();
    let file = config(&folder, "sessions = 2", echo_server());
    let mut relay = Relay::run(&["-c", &file], 1);
    let (mut first, mut second, mut third) = (relay.connect(), relay.connect(), relay.connect());
    assert_echo(&mut first);
    assert_echo(&mut second);
    let paused = relay.next(|event| event["event"] == "accept_paused");
    assert_eq!(paused["reason"], "session_limit");
    third.write_all(b"echo").unwrap();
    drop(first);
    assert_eq!(read_exactly(&mut third, 4), b"echo");
    relay.next(|event| event["event"] == "accept_resumed");
}

/// A connection that waits at the session limit gets the configuration that is valid when a session ends.
#[test]
fn a_client_that_waits_over_a_reload_reaches_the_new_target() {
    let (folder, old, new) = (Folder::new(), echo_server(), serve(|mut stream| stream.write_all(b"new!").unwrap()));
    let file = config(&folder, "sessions = 1", old);
    let mut relay = Relay::run(&["-c", &file], 1);
    let mut first = relay.connect();
    assert_echo(&mut first);
    relay.next(|event| event["event"] == "accept_paused");
    let mut waiting = relay.connect();
    waiting.write_all(b"echo").unwrap();
    config(&folder, "sessions = 1", new);
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    // The worker answers this request only after it has switched to the new configuration.
    relay.sessions();
    drop(first);
    assert_eq!(read_exactly(&mut waiting, 4), b"new!");
}

#[test]
fn one_client_cannot_exceed_its_session_limit() {
    let folder = Folder::new();
    let file = config(&folder, "sessions_per_client = 2", echo_server());
    let mut relay = Relay::run(&["-c", &file], 1);
    let (mut first, mut second) = (relay.connect(), relay.connect());
    assert_echo(&mut first);
    assert_echo(&mut second);
    assert!(is_reset(&mut relay.connect()));
    assert_eq!(relay.closed()["end"], "client_limit");
    drop(second);
    relay.closed();
    assert_echo(&mut relay.connect());
}

/// 64 descriptors are too few for 40 sessions. Single sessions may fail, but the relay keeps running, and accepts again
/// when descriptors are free. Bug: the lower number of sessions was visible only when accepting paused.
#[test]
fn out_of_descriptors_the_relay_pauses_and_recovers() {
    let folder = Folder::new();
    let file = config(&folder, "sessions = 1000", echo_server());
    let mut relay = Relay::start(&mut ekiden_with_ulimit("-n 64", &["-c", &file]), 1);
    let warning = relay.next(|event| event["event"] == "warning");
    let expected = "limits.sessions is 1000, but the limit of open files suffices for ";
    assert!(warning["message"].as_str().unwrap().starts_with(expected), "{warning}");
    let mut clients: Vec<TcpStream> = (0..40).map(|_| relay.connect()).collect();
    relay.next(|event| event["event"] == "accept_paused");
    assert_echo(&mut clients[0]);
    drop(clients);
    relay.next(|event| event["event"] == "accept_resumed");
    eventually("all sessions to end", || relay.sessions().is_empty().then_some(()));
    assert_echo(&mut relay.connect());
}

/// accept(2) fails with EMFILE although the relay's own count of descriptors is below its limit.
#[test]
fn failed_accept_is_retried() {
    let target = echo_server();
    let url = format!("tcp://127.0.0.1:0/{target}");
    let mut relay = Relay::listen(&[&url]);
    let id = relay.id().to_string();
    let limit = |nofile: &str| Command::new("prlimit").args(["--pid", &id, nofile]).status().unwrap();
    // The process already has more than 3 descriptors, so it can open no further descriptor.
    assert!(limit("--nofile=3:").success());
    let mut client = relay.connect();
    let paused = relay.next(|event| event["event"] == "accept_paused");
    assert_eq!(paused["reason"], "out_of_descriptors");
    assert!(limit("--nofile=1024:").success());
    assert_echo(&mut client);
}

/// The admin listener responds while sessions occupy all descriptors below the limit for sessions.
#[test]
fn admin_listener_responds_without_free_descriptors() {
    let folder = Folder::new();
    let file = config(&folder, "sessions = 1000", echo_server());
    let mut relay = Relay::start(&mut ekiden_with_ulimit("-n 64", &["-c", &file]), 1);
    // This session gets its descriptors before the others, which may fail.
    let mut served = relay.connect();
    assert_echo(&mut served);
    let clients: Vec<TcpStream> = (0..64).map(|_| relay.connect()).collect();
    relay.next(|event| event["event"] == "accept_paused");
    // Sessions may have left some descriptors free. With this limit no descriptor below the limit is free.
    let prlimit = |nofile: &str| {
        let id = relay.id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &id, nofile]).status().unwrap().success());
    };
    prlimit("--nofile=3:");
    for _ in 0..3 {
        assert!(relay.ask("/metrics").contains("ekiden_sessions_open"));
        assert!(!relay.sessions().is_empty());
    }
    // After it has used the reserve, the relay restores the limit for sessions.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", relay.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("3"), "{limits}");
    drop((served, clients));
}

/// The relay sets its soft limit below the hard limit; the descriptors above the soft limit are the reserve.
#[test]
fn descriptors_are_reserved_for_the_admin_listener() {
    let relay = Relay::start(&mut ekiden_with_ulimit("-n 64", &["-L", "auto://127.0.0.1:0"]), 1);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", relay.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["56", "64"], "{files}");
}

/// Creates pipes of 1 MiB until the pipe quota of the user is used up (pipe(7), `pipe-user-pages-soft`), prints `full`,
/// and keeps the pipes open until its standard input is closed.
const PIPE_HOARDER: &str = "
import fcntl, os, sys
pipes = []
try:
    while True:
        pipes.append(os.pipe())
        fcntl.fcntl(pipes[-1][0], 1031, 1 << 20)
except PermissionError:
    print('full', flush=True)
sys.stdin.read()
";

/// An ordinary user may have 64 pipes of 1 MiB, and none if other programs of the same user have used up the quota.
#[test]
fn without_pipes_bytes_are_copied() {
    if ekiden_sys::process::effective_uid() != 0 {
        skipped("only root can become a user whose pipe quota is used up");
        return;
    }
    if is_any_missing(&[PYTHON, "setpriv"]) {
        return;
    }
    // No other process has this user ID, so the quota counts only the pipes of this test.
    let user = (3_000_000_000 - std::process::id()).to_string();
    let as_user = |program: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups", program]);
        command
    };
    let mut hoarder = as_user(PYTHON);
    let mut hoarder = hoarder.args(["-c", PIPE_HOARDER]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 5];
    hoarder.stdout.take().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(&word, b"full\n");

    let sent = pattern(5_000_000);
    let expected = sent.clone();
    let target = serve(move |mut stream| {
        let _ = stream.write_all(&sent);
    });
    let folder = Folder::new();
    let binary = folder.0.join("ekiden");
    // A separate process writes the copy, for the reason given at `Folder::program`.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_ekiden")).arg(&binary).status().unwrap().success());
    let url = format!("tcp://127.0.0.1:0/{target}");
    let mut relay = Relay::start(as_user(binary.to_str().unwrap()).args(["run", "-L", &url]), 1);
    let mut client = relay.connect();
    assert!(read_all(&mut client) == expected);
    drop(client);
    let closed = relay.closed();
    assert_eq!((&closed["bytes_down"], &closed["bytes_spliced"]), (&5_000_000.into(), &0.into()));
    let metrics = relay.ask("/metrics");
    assert!(metrics.contains("# TYPE ekiden_pipe_fallbacks counter\n"), "{metrics}");
    assert!(relay.metric("ekiden_pipe_fallbacks_total") > Some(0), "{metrics}");
    drop(hoarder.stdin.take());
    hoarder.wait().unwrap();
}

#[test]
fn a_thousand_sessions_leave_no_descriptor_behind() {
    let target = echo_server();
    let url = format!("tcp://127.0.0.1:0/{target}");
    let relay = Relay::listen(&[&url]);
    assert_echo(&mut relay.connect());
    eventually("the first session to end", || relay.sessions().is_empty().then_some(()));
    let before = relay.descriptors();
    let block = pattern(200_000);
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| relay.connect()).collect();
    for client in &mut clients {
        client.write_all(&block[..20_000]).unwrap();
    }
    for client in &mut clients {
        assert!(read_exactly(client, 20_000) == block[..20_000]);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(client), b"");
    }
    drop(clients);
    eventually("the release of all descriptors", || (relay.descriptors() <= before).then_some(()));
}
