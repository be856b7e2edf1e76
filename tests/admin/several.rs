//! Several relays of one user: each has its own socket, and commands find the relay that is meant, or ask.

use crate::harness::*;

/// A relay with the default admin socket, below `runtime`.
fn start(runtime: &Folder, socket: &str) -> Relay {
    let mut command = ekiden();
    command.args(["run", "-L", "auto://127.0.0.1:0"]).env("XDG_RUNTIME_DIR", &runtime.0);
    Relay::begin(&mut command, 1, runtime.0.join(socket))
}

fn status(runtime: &Folder, arguments: &[&str]) -> (bool, String) {
    let mut command = ekiden();
    let output = command.arg("status").args(arguments).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn each_relay_of_a_user_answers_and_status_asks_which() {
    let runtime = Folder::new();
    let first = start(&runtime, "ekiden.sock");
    assert!(status(&runtime, &[]).0);
    let second = start(&runtime, "ekiden-2.sock");
    let (_listener, target) = server();
    let _open = socks5(second.address(), target).unwrap();
    assert!(first.sessions().is_empty());
    let (is_answered, said) = status(&runtime, &[]);
    assert!(!is_answered, "{said}");
    for socket in ["ekiden.sock", "ekiden-2.sock"] {
        let option = format!("--admin unix:{}/{socket}  process ", runtime.0.display());
        let line = said.lines().find(|line| line.contains(&option)).unwrap_or_else(|| panic!("no {socket}: {said}"));
        assert!(line.ends_with("-L auto://127.0.0.1:0"), "{line}");
    }
    let (is_answered, said) = status(&runtime, &["--admin", &format!("unix:{}/ekiden-2.sock", runtime.0.display())]);
    assert!(is_answered && said.contains(&target.to_string()), "{said}");
    drop(first);
    let (is_answered, said) = status(&runtime, &[]);
    assert!(is_answered, "the only one that is left: {said}");
    // The socket of the first one is free again.
    let _third = start(&runtime, "ekiden.sock");
}
