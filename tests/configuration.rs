//! Warnings, hints and errors of `ekiden check`, `ekiden run` and the command line about a configuration.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::*;

const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:0\"\n";

fn chmod(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `ekiden check`. Returns the exit status and the standard error.
fn check(file: &Path) -> (Option<i32>, String) {
    let output = ekiden().arg("check").arg(file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Regression: permissions of users files, history databases and configurations with a password were not checked.
#[test]
fn secret_files_readable_by_others_are_reported() {
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
            "warning: {place}:2: forward[1] = \"socks5://...@192.0.2.1:1\": expected a configuration file \
             that only its owner can read, because it contains this password: chmod 600 {place}, or use \
             USER@HOST:PORT?password_file=FILE\n"
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

    // A password file contains nothing but the secret, so wrong permissions are an error, as for a key file.
    chmod(&password, 0o640);
    let hop = format!("socks5://u@192.0.2.1:1?password_file={}", password.display());
    folder.write("relay.toml", format!("version = 1\nforward = [{hop:?}]\n{LISTENER}"));
    let (status, message) = check(&file);
    assert!(status == Some(2) && message.contains(&format!("chmod 600 {}", password.display())), "{message}");
    std::fs::write(&password, "hunter2\n").unwrap();
    chmod(&password, 0o600);
    assert_eq!(check(&file), (Some(0), String::new()));
}

/// Every user of the host can read the arguments of a process with ps(1).
#[test]
fn password_on_the_command_line_causes_a_warning() {
    let url = "socks5://u:hunter2@192.0.2.1:1";
    let mut relay = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", url], 1);
    let warning = relay.next(|event| event["event"] == "warning");
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains("-F[1] = \"socks5://...@192.0.2.1:1\": expected no password on the command line"),
        "{message}"
    );
    assert!(message.contains("USER@HOST:PORT?password_file=FILE") && !message.contains("hunter2"), "{message}");

    // Only the owner of a process can read its environment (proc(5)).
    let mut command = ekiden();
    command.args(["run", "-L", "auto://127.0.0.1:0"]).env("EKIDEN_FORWARD", url);
    let mut relay = Relay::start(&mut command, 1);
    relay.signal("TERM");
    assert_eq!(relay.exit_code(), Some(0));
    let events = relay.remaining_events();
    assert!(events.iter().all(|event| event["event"] != "warning"), "{events:?}");
}

/// A missing interface is only a warning or a hint, because it may be created later, as by a VPN.
#[test]
fn missing_interfaces_are_reported() {
    let folder = Folder::new();
    let text = "version = 1\n[[listener]]\nkind = \"redirect\"\nbind = \"0.0.0.0:7002\"\ninterfaces = [\"lo\", \"nosuch0\"]\n\
        [[interface]]\nname = \"nosuch1\"\nrate = \"1Gbit/s\"\n";
    let file = folder.write("relay.toml", text);
    let place = file.display();
    let absent = "expected an interface of this host; ignore this warning if the interface is created later";
    let expected = format!(
        "warning: {place}:5: listener[1].interfaces[2] = \"nosuch0\": {absent}\n\
         {place}: hint: [[interface]] nosuch1: this host has no such interface\n"
    );
    assert_eq!(check(&file), (Some(0), expected));
}

/// Each `[[relay]]` defines a path of the same name, which carries sessions only if a route or `forward` names it, or a
/// route selects `auto`.
#[test]
fn unused_relay_is_reported_as_a_hint() {
    let folder = Folder::new();
    let key = Key::new().public;
    let relay = format!("[[relay]]\nname = \"osaka\"\naddress = \"192.0.2.1:7000\"\nkey = \"{key}\"\n");
    let hints = |before: &str, after: &str| {
        let file = folder.write("relay.toml", format!("version = 1\n{before}{LISTENER}{relay}{after}"));
        let (status, message) = check(&file);
        assert_eq!(status, Some(0), "{message}");
        message.lines().filter(|line| line.contains("hint: [[relay]] osaka: no session uses it")).count()
    };
    assert_eq!(hints("", ""), 1);
    assert_eq!(hints("forward = [\"osaka\"]\n", ""), 0);
    assert_eq!(hints("", "[[route]]\npath = \"osaka\"\n"), 0);
    assert_eq!(hints("", "[[route]]\npath = \"auto\"\n"), 0);
}

#[test]
fn unknown_congestion_control_is_an_error() {
    let folder = Folder::new();
    let named = |name: &str| {
        let text = format!("version = 1\n{LISTENER}[profile.unused]\ncongestion = {name:?}\n");
        let file = folder.write("relay.toml", text);
        let (status, message) = check(&file);
        (status, message.replace(&file.display().to_string(), "FILE"))
    };
    for (name, meant) in [("cubik", "cubic"), ("rneo", "reno"), ("hylba", "hybla")] {
        let expected = format!(
            "FILE:5: profile.unused.congestion = {name:?}: expected a congestion control of Linux or of ekiden: {meant:?}, perhaps\n"
        );
        assert_eq!(named(name), (Some(2), expected));
    }
    // Regression: the drop-in for such a configuration was printed.
    let file = folder.write("relay.toml", format!("version = 1\n{LISTENER}[profile.unused]\ncongestion = \"cubik\"\n"));
    let unit = ekiden().args(["check", "--unit"]).arg(file).output().unwrap();
    assert_eq!((unit.status.code(), unit.stdout.as_slice()), (Some(2), b"".as_slice()));
    let (status, message) = named("frugal");
    assert!(status == Some(2) && message.contains(", one of ") && message.contains("cubic"), "{message}");
    // Each of these is in the kernel, has a replacement, or may be provided by a module.
    for name in ["reno", "cubic", "westwood", "scalable", "ctcp", "yeah"] {
        assert_eq!(named(name).0, Some(0), "{name}");
    }
    // The choice of the relay was taken for the name of a congestion control.
    assert_eq!(named("auto").0, Some(0));
}

#[test]
fn unknown_subcommand_error_suggests_a_subcommand() {
    for word in ["start", "serve", "up"] {
        let output = ekiden().arg(word).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("'run'") && !message.contains("'status'"), "{message}");
    }
    let output = ekiden().arg("stauts").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("'status'"));
}

/// Writes configuration fragments into the directory `conf.d`. Returns its path.
fn fragments(folder: &Folder, files: &[(&str, &str)]) -> std::path::PathBuf {
    let directory = folder.0.join("conf.d");
    std::fs::create_dir_all(&directory).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(directory.join(name), text).unwrap());
    directory
}

/// Configuration of a listener whose server sends the name of the listener on each connection.
fn greeting_listener(name: &'static str) -> String {
    let target = greeter(name);
    format!("[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n")
}

#[test]
fn every_command_reads_the_merged_configuration() {
    let folder = Folder::new();
    let admin = folder.0.join("admin.sock");
    let listener = format!("version = 1\n{LISTENER}");
    let rest = format!("version = 1\n[admin]\nbind = \"unix:{}\"\n[limits]\nsessions = 17\n", admin.display());
    let directory = fragments(&folder, &[("10-listener.toml", &listener), ("20-rest.toml", &rest)]);
    let single = folder.write("more.toml", "version = 1\n[[route]]\npath = \"direct\"\n");
    let (directory, single) = (directory.to_str().unwrap(), single.to_str().unwrap());
    let run = |arguments: &[&str], variable: &str| {
        let mut command = ekiden();
        if !variable.is_empty() {
            command.env("EKIDEN_CONFIG", variable);
        }
        let output = command.args(arguments).output().unwrap();
        let message = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), message)
    };
    let both = format!("{directory}:{single}");
    let (status, message) = run(&["check", directory, single], "");
    assert_eq!(message, format!("{directory} {single}: ok, 1 listener(s), 0 relay(s), 1 path(s)\n"));
    assert_eq!(status, Some(0));
    for (arguments, variable) in
        [(vec!["-c", directory, "-c", single], ""), (vec!["-c", &both], ""), (vec![], both.as_str())]
    {
        let with = |before: &[&'static str]| [before, &arguments].concat();
        let (status, message) = run(&with(&["doctor"]), variable);
        assert!(status.is_some_and(|status| status < 2) && message.contains("and 17 sessions"), "{message}");
        let (status, message) = run(&with(&["rules", "print"]), variable);
        assert!(status == Some(0) && message.starts_with("no rules needed"), "{message}");
        let (status, message) = run(&with(&["status"]), variable);
        assert!(status == Some(1) && message.contains(admin.to_str().unwrap()), "{message}");
    }
    // `-c` replaces the environment variable: the nonexistent path in the variable causes no error.
    assert_eq!(run(&["rules", "print", "-c", directory], "/nonexistent").0, Some(0));

    std::fs::write(single, "version = 1\n\n[limits]\nsessions = 3\n").unwrap();
    let (status, message) = run(&["check", directory, single], "");
    let place = format!("{directory}/20-rest.toml:5");
    let expected = format!("{single}:4: limits.sessions is set in two files: expected one place, here or {place}\n");
    assert_eq!((status, message), (Some(2), expected));
}

#[test]
fn a_new_fragment_takes_effect_at_the_reload() {
    let folder = Folder::new();
    let first = format!("version = 1\n{}", greeting_listener("first"));
    let directory = fragments(&folder, &[("10-first.toml", &first)]);
    let mut relay = Relay::run(&["-c", directory.to_str().unwrap()], 1);
    assert_eq!(read_exactly(&mut relay.connect(), 5), b"first");

    fragments(&folder, &[("20-second.toml", &format!("version = 1\n{}", greeting_listener("second")))]);
    relay.signal("HUP");
    let second = relay.next(|event| event["event"] == "listening" && event["listener"] == "second");
    assert_eq!(relay.next(|event| event["event"] == "reloaded")["listeners"], 2);
    let address = second["address"].as_str().unwrap().parse().unwrap();
    assert_eq!(read_exactly(&mut connect(address), 6), b"second");

    fragments(&folder, &[("30-third.toml", "version = 1\n[limits]\nnothing = 1\n")]);
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("30-third.toml:3: limits.nothing"), "{rejected}");

    for name in ["20-second.toml", "30-third.toml"] {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
    relay.signal("HUP");
    assert_eq!(relay.next(|event| event["event"] == "reloaded")["listeners"], 1);
}

#[test]
fn environment_variables_are_substituted_in_values() {
    let folder = Folder::new();
    let text = "version = 1\nforward = [\"socks5://u:${EKIDEN_TEST_WORD}@192.0.2.1:${EKIDEN_TEST_PORT}\"]\n";
    let file = folder.write("relay.toml", format!("{text}{LISTENER}"));
    chmod(&file, 0o644);
    let check = |variables: &[(&str, &str)]| {
        let mut command = ekiden();
        let output = command.arg("check").arg(&file).envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap().replace(file.to_str().unwrap(), "FILE"))
    };
    let word = ("EKIDEN_TEST_WORD", "hunter2");
    assert_eq!(check(&[word, ("EKIDEN_TEST_PORT", "1080")]), (Some(0), String::new()));
    let expected = "FILE:2: forward[1]: expected the environment variable EKIDEN_TEST_PORT to be set\n";
    assert_eq!(check(&[word]), (Some(2), expected.to_owned()));
    let (status, message) = check(&[word, ("EKIDEN_TEST_PORT", "x")]);
    assert!(
        status == Some(2) && message.starts_with("FILE:2: forward[1]") && !message.contains("hunter2"),
        "{message}"
    );
}
