//! Several relays of one user: each has its own admin socket, and `ekiden status` needs `--admin` to select a relay.

use crate::harness::*;

/// Starts a relay with the default admin socket below `runtime`, which must be named `socket`.
fn start(runtime: &Folder, socket: &str) -> Relay {
    let mut command = ekiden();
    command.args(["run", "-L", "auto://127.0.0.1:0"]).env("XDG_RUNTIME_DIR", &runtime.0);
    Relay::start_with_admin(&mut command, 1, runtime.0.join(socket))
}

fn status(runtime: &Folder, arguments: &[&str]) -> (bool, String) {
    let mut command = ekiden();
    let output = command.arg("status").args(arguments).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn status_lists_the_relays_of_a_user_to_select_from() {
    let runtime = Folder::new();
    let first = start(&runtime, "ekiden.sock");
    assert!(status(&runtime, &[]).0);
    let second = start(&runtime, "ekiden-2.sock");
    let (_listener, target) = server();
    let _open = socks5(second.address(), target).unwrap();
    assert!(first.sessions().is_empty());
    let (is_answered, text) = status(&runtime, &[]);
    assert!(!is_answered, "{text}");
    for socket in ["ekiden.sock", "ekiden-2.sock"] {
        let option = format!("--admin unix:{}/{socket}  process ", runtime.0.display());
        let line = text.lines().find(|line| line.contains(&option)).unwrap_or_else(|| panic!("no {socket}: {text}"));
        assert!(line.ends_with("-L auto://127.0.0.1:0"), "{line}");
    }
    let (is_answered, text) = status(&runtime, &["--admin", &format!("unix:{}/ekiden-2.sock", runtime.0.display())]);
    assert!(is_answered && text.contains(&target.to_string()), "{text}");
    drop(first);
    let (is_answered, text) = status(&runtime, &[]);
    assert!(is_answered, "one relay is left: {text}");
    // The socket of the first relay is free again.
    let _third = start(&runtime, "ekiden.sock");
}
