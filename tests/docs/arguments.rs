//! Every command in the documentation has valid arguments. `--help` after the arguments makes ekiden parse the command
//! line and exit without another effect.

use crate::code_blocks::{Kind, pages, root};
use crate::command_line::commands;
use crate::harness::{Key, ekiden};

/// Other programs, whose arguments are not checked unless the page is run.
const OTHER_PROGRAMS: &[&str] = &[
    "apt",
    "apt-get",
    "apt-helper",
    "cargo",
    "cat",
    "cd",
    "chgrp",
    "chmod",
    "curl",
    "dnf",
    "docker",
    "dpkg",
    "echo",
    "editor",
    "feeds",
    "git",
    "grep",
    "htpasswd",
    "install",
    "ip",
    "ipvsadm",
    "journalctl",
    "kill",
    "mergecap",
    "mkdir",
    "modprobe",
    "mount",
    "nc",
    "nft",
    "openssl",
    "ping",
    "printf",
    "proxychains4",
    "python3",
    "rm",
    "rsync",
    "sed",
    "sha256sum",
    "socat",
    "ss",
    "ssh",
    "ssh-keygen",
    "sysctl",
    "systemctl",
    "tar",
    "tc",
    "tshark",
    "umask",
    "useradd",
    "wget",
];

/// Checks a command. Returns true for `ekiden`, false for another known program, and the reason for an invalid command.
fn check_command(command: &[String]) -> Result<bool, String> {
    let program = command[0].rsplit('/').next().expect("rsplit returns at least one part");
    match program {
        "ekiden" => parse_arguments(&command[1..]).map(|()| true),
        // The laboratory's own tests parse its command lines.
        "ekiden-lab" => Ok(false),
        "make" => {
            let makefile = std::fs::read_to_string(root().join("Makefile")).expect("a Makefile");
            let target = command.get(1).map_or("help", String::as_str);
            // A target with a slash belongs to another Makefile, such as OpenWrt's.
            let is_there = target.contains('/') || makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            is_there.then_some(false).ok_or_else(|| format!("no target {target} in the Makefile"))
        }
        _ if command[0].contains('/') && root().join(&command[0]).is_file() => Ok(false),
        other if OTHER_PROGRAMS.contains(&other) => Ok(false),
        other => Err(format!("unknown program {other}")),
    }
}

/// Parses these arguments with `ekiden --help`. The word `REQUEST` is replaced by a signed request of a relay.
fn parse_arguments(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.iter().map(|word| if word == "REQUEST" { request() } else { word.clone() });
    let output = ekiden().args(arguments).arg("--help").output().expect("ekiden runs");
    match output.status.code() {
        Some(0) => Ok(()),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn request() -> String {
    let output = ekiden().args(["fleet", "request", "--key"]).arg(Key::new().file).output().expect("ekiden runs");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Returns the commands of a block: in a console after a prompt, such as `relay$`; in output only after a prompt or
/// where `ekiden` begins a line.
fn commands_of(text: &str, kind: &Kind, language: &str) -> Vec<Vec<String>> {
    let after_prompt =
        |line: &str| line.split_once('$').filter(|(host, _)| !host.contains(' ')).map(|(_, rest)| rest.to_owned());
    match (kind, language) {
        (Kind::Shown, _) => {
            // The output of a program may begin with `ekiden 0.1.0`.
            let is_ours = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase());
            let own_command =
                |line: &str| line.strip_prefix("ekiden ").filter(|rest| is_ours(rest)).map(|_| line.to_owned());
            let lines: Vec<String> =
                text.lines().filter_map(|line| own_command(line).or_else(|| after_prompt(line))).collect();
            commands(&lines.join("\n"))
        }
        (_, "console") => {
            let line = |line: &str| after_prompt(line).unwrap_or_else(|| line.to_owned()).trim_start().to_owned();
            commands(&text.lines().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => commands(text),
    }
}

#[test]
fn every_command_accepts_its_arguments() {
    let (mut wrong, mut blocks, mut own_commands) = (Vec::new(), 0, 0);
    for page in pages() {
        for block in page.blocks() {
            let Some(kind @ (Kind::Run(_) | Kind::Parsed | Kind::Shown)) = block.kind() else { continue };
            blocks += 1;
            for command in commands_of(&block.text, &kind, block.language) {
                match check_command(&command) {
                    Ok(is_ours) => own_commands += usize::from(is_ours),
                    Err(why) => wrong.push(format!("{}: {}: {why}", block.place(), command.join(" "))),
                }
            }
        }
    }
    eprintln!("{own_commands} commands of ekiden in {blocks} blocks");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(own_commands > 40, "only {own_commands} commands were found");
}

#[test]
fn ekiden_commands_in_sentences_are_valid() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for (line, span) in page.spans() {
            // `ekiden rules print|apply|remove` abbreviates three commands; only the first command is parsed.
            let Some(command) = commands(span).into_iter().next().filter(|command| command[0] == "ekiden") else {
                continue;
            };
            if !span.starts_with("ekiden ") {
                continue;
            }
            count += 1;
            if let Err(why) = parse_arguments(&command[1..]) {
                wrong.push(format!("{}:{line}: {span}: {why}", page.name));
            }
        }
    }
    eprintln!("{count} commands in sentences");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn invalid_commands_are_rejected() {
    for wrong in ["ekiden run --lisent x", "ekiden examine", "ekiden doctor --rtt soon", "make coffee", "frobnicate"] {
        let command = commands(wrong).remove(0);
        assert!(check_command(&command).is_err(), "{wrong}");
    }
}
