//! Warnings of `ekiden check`, `ekiden run` and the command line about a configuration.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::*;

const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:0\"\n";

fn chmod(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The exit status of `ekiden check`, and its output on standard error.
fn check(file: &Path) -> (Option<i32>, String) {
    let output = ekiden().arg("check").arg(file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Only the permissions of key files used to be checked.
#[test]
fn files_with_secrets_that_others_can_read_are_told() {
    let folder = Folder::new();
    let [users, history, password] = ["users", "history.db", "password"].map(|name| folder.write(name, ""));
    let (shown, paths) = (users.display(), [&users, &history].map(|path| path.display().to_string()));
    let text = format!(
        "version = 1\nforward = [\"socks5://u:hunter2@192.0.2.1:1\"]\n{LISTENER}users = {:?}\n[history]\nfile = {:?}\n",
        paths[0], paths[1]
    );
    let file = folder.write("relay.toml", text);
    let all = [&users, &history, &file];
    all.iter().for_each(|path| chmod(path, 0o644));
    let place = file.display();
    let expected = [
        format!(
            "warning: {place}:2: forward[1] = \"socks5://...@192.0.2.1:1\": expected a configuration that only its owner \
             can read, because of this password: chmod 600 {place}, or USER@HOST:PORT?password_file=FILE\n"
        ),
        format!(
            "warning: {place}:5: listener[1].users = \"{shown}\": expected a file that only its owner can read: chmod 600 {shown}\n"
        ),
        format!(
            "warning: {place}:7: history.file = \"{0}\": expected a file that only its owner can read: chmod 600 {0}\n",
            history.display()
        ),
    ];
    assert_eq!(check(&file), (Some(0), expected.concat()));
    all.iter().for_each(|path| chmod(path, 0o640));
    assert_eq!(check(&file), (Some(0), String::new()));

    // The file has the password itself, like a key file.
    chmod(&password, 0o640);
    let hop = format!("socks5://u@192.0.2.1:1?password_file={}", password.display());
    folder.write("relay.toml", format!("version = 1\nforward = [{hop:?}]\n{LISTENER}"));
    let (status, said) = check(&file);
    assert!(status == Some(2) && said.contains(&format!("chmod 600 {}", password.display())), "{said}");
    std::fs::write(&password, "hunter2\n").unwrap();
    chmod(&password, 0o600);
    assert_eq!(check(&file), (Some(0), String::new()));
}

/// Every user of the host sees the argument in `ps`.
#[test]
fn a_password_on_the_command_line_is_warned_of_at_the_start() {
    let url = "socks5://u:hunter2@192.0.2.1:1";
    let mut relay = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", url], 1);
    let warning = relay.next(|event| event["event"] == "warning");
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains("-F[1] = \"socks5://...@192.0.2.1:1\": expected no password on the command line"),
        "{message}"
    );
    assert!(message.contains("USER@HOST:PORT?password_file=FILE") && !message.contains("hunter2"), "{message}");

    // Other users cannot read the environment.
    let mut command = ekiden();
    command.args(["run", "-L", "auto://127.0.0.1:0"]).env("EKIDEN_FORWARD", url);
    let mut relay = Relay::start(&mut command, 1);
    relay.signal("TERM");
    assert_eq!(relay.exit_code(), Some(0));
    let events = relay.rest();
    assert!(events.iter().all(|event| event["event"] != "warning"), "{events:?}");
}

/// An interface may appear later, like that of a VPN. A misspelt name would catch no packet, without a message.
#[test]
fn interfaces_that_are_not_there_are_told() {
    let folder = Folder::new();
    let text = "version = 1\n[[listener]]\nkind = \"redirect\"\nbind = \"0.0.0.0:7002\"\ninterfaces = [\"lo\", \"nosuch0\"]\n\
        [[interface]]\nname = \"nosuch1\"\nrate = \"1Gbit/s\"\n";
    let file = folder.write("relay.toml", text);
    let place = file.display();
    let absent = "expected an interface of this host, unless it comes later";
    let expected = format!(
        "warning: {place}:5: listener[1].interfaces[2] = \"nosuch0\": {absent}\n\
         {place}: hint: [[interface]] nosuch1: this host has no such interface\n"
    );
    assert_eq!(check(&file), (Some(0), expected));
}

/// The name of a relay is the name of a path, but a path that nothing names carries no session.
#[test]
fn a_relay_that_no_session_uses_is_told() {
    let folder = Folder::new();
    let key = Key::new().public;
    let relay = format!("[[relay]]\nname = \"osaka\"\naddress = \"192.0.2.1:7000\"\nkey = \"{key}\"\n");
    let hints = |before: &str, after: &str| {
        let file = folder.write("relay.toml", format!("version = 1\n{before}{LISTENER}{relay}{after}"));
        let (status, said) = check(&file);
        assert_eq!(status, Some(0), "{said}");
        said.lines().filter(|line| line.contains("hint: [[relay]] osaka: no session uses it")).count()
    };
    assert_eq!(hints("", ""), 1);
    assert_eq!(hints("forward = [\"osaka\"]\n", ""), 0);
    assert_eq!(hints("", "[[route]]\npath = \"osaka\"\n"), 0);
    assert_eq!(hints("", "[[route]]\npath = \"auto\"\n"), 0);
}

#[test]
fn a_congestion_control_that_does_not_exist_is_a_mistake() {
    let folder = Folder::new();
    let named = |name: &str| {
        let text = format!("version = 1\n{LISTENER}[profile.unused]\ncongestion = {name:?}\n");
        let file = folder.write("relay.toml", text);
        let (status, said) = check(&file);
        (status, said.replace(&file.display().to_string(), "FILE"))
    };
    for (name, meant) in [("cubik", "cubic"), ("rneo", "reno"), ("hylba", "hybla")] {
        let says = format!(
            "FILE:5: profile.unused.congestion = {name:?}: expected a congestion control of Linux or of ekiden: {meant:?}, perhaps\n"
        );
        assert_eq!(named(name), (Some(2), says));
    }
    let (status, said) = named("frugal");
    assert!(status == Some(2) && said.contains(", one of ") && said.contains("cubic"), "{said}");
    // The kernel has the control, or a replacement is used, or a module may provide it.
    for name in ["reno", "cubic", "westwood", "scalable", "ctcp", "yeah"] {
        assert_eq!(named(name).0, Some(0), "{name}");
    }
}

#[test]
fn the_subcommand_that_was_meant_is_told() {
    for word in ["start", "serve", "up"] {
        let output = ekiden().arg(word).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("'run'") && !said.contains("'status'"), "{said}");
    }
    let output = ekiden().arg("stauts").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("'status'"));
}
