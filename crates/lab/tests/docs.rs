//! Checks the examples of the laboratory in the documentation: experiments and labs are valid, parts of files are TOML
//! with known top-level keys, and `ekiden-lab` accepts the arguments of every command. The tests of `ekiden`
//! (tests/docs/) check the other blocks.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "the tests of ekiden use the rest")]
#[path = "../../../tests/docs/code_blocks.rs"]
mod code_blocks;
#[allow(dead_code, reason = "the tests of ekiden use the rest")]
#[path = "../../../tests/docs/command_line.rs"]
mod command_line;

use std::process::Command;

use code_blocks::{Kind, pages, root};
use ekiden_lab::experiment::spec::file::TOP_LEVEL_KEYS;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::topology::file::{LAB_KEYS, parse_lab};
use toml::Table;

/// Checks a file. Returns true for a whole experiment or lab, which has the version of the format, and false for a part
/// of a file; an error has the mistakes.
fn check_file(text: &str) -> Result<bool, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    if table.contains_key("experiment") {
        return Experiment::parse("page", text).map(|_| true).map_err(|mistakes| mistakes.join("\n"));
    }
    if table.contains_key("lab") {
        return parse_lab(table).map(|_| true).map_err(|mistakes| mistakes.to_string());
    }
    let is_known = |key: &&String| LAB_KEYS.contains(&key.as_str()) || TOP_LEVEL_KEYS.contains(&key.as_str());
    match table.keys().find(|key| !is_known(key)) {
        Some(unknown) => Err(format!("no file has {unknown} at its top")),
        None => Ok(false),
    }
}

#[test]
fn documented_labs_and_experiments_are_valid() {
    let (mut wrong, mut whole, mut parts) = (Vec::new(), 0, 0);
    for page in pages() {
        for block in page.blocks().into_iter().filter(|block| block.kind() == Some(Kind::Lab)) {
            match check_file(&block.text) {
                Ok(true) => whole += 1,
                Ok(false) => parts += 1,
                Err(why) => wrong.push(format!("{}: {why}", block.place())),
            }
        }
    }
    let examples = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    for file in examples.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.lines().any(|line| line == "lab = 1") {
            assert_eq!(check_file(&text), Ok(true), "{}", file.display());
            whole += 1;
        }
    }
    eprintln!("{whole} whole files and {parts} parts");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(whole > 10 && parts > 3, "only {whole} whole files and {parts} parts were found");
}

#[test]
fn invalid_files_are_detected() {
    let lab = "lab = 1\nname = \"x\"\n[link.wire]\nends = [\"a\", \"b\"]\n[host.a]\n[host.b]\n";
    assert_eq!(check_file(lab), Ok(true));
    let without_a_host = lab.replace("[host.b]\n", "");
    for wrong in ["lab = 1\n[experiment]\nblocks = 3", &without_a_host, "[hots.a]", "not TOML"] {
        assert!(check_file(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn documented_commands_accept_their_arguments() {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for page in pages() {
        for block in page.blocks().into_iter().filter(|block| block.language == "sh") {
            all.extend(command_line::commands(&block.text).into_iter().map(|command| (block.place(), command)));
        }
        for (line, span) in page.spans() {
            let commands = command_line::commands(span).into_iter().take(1);
            all.extend(commands.map(|command| (format!("{}:{line}", page.name), command)));
        }
    }
    all.retain(|(_, command)| command[0].rsplit('/').next() == Some("ekiden-lab") && command.len() > 1);
    let reads = |command: &[String]| {
        // Arguments after `--` are the command line of another program.
        let own = command.split(|word| word == "--").next().unwrap_or_default();
        let output = Command::new(env!("CARGO_BIN_EXE_ekiden-lab")).args(own).arg("--help").output().unwrap();
        (output.status.code() == Some(0), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let judged = all.iter().map(|(place, command)| (place, command, reads(&command[1..])));
    let wrong: Vec<_> = judged.filter(|(_, _, (well, _))| !well).collect();
    eprintln!("{} commands", all.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(all.len() > 10, "only {} commands were found", all.len());
    assert!(!reads(&["race".to_owned()]).0);
}
