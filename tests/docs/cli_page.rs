//! docs/cli.md has the help of all commands. `UPDATE_CLI_PAGE=1` rewrites the page.

use std::fs;

use crate::code_blocks::root;
use crate::harness::ekiden;

const MARK: &str = "<!-- help: `make cli-page` writes the rest of this page -->\n";

/// Returns the help of the command `ekiden WORDS`.
fn help(words: &[&str]) -> String {
    let output = ekiden().args(words).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names of the subcommands in a help text.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default().lines().take_while(|line| !line.is_empty());
    listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

fn append(page: &mut String, words: &[&str]) {
    let text = help(words);
    let heading = std::iter::once("ekiden").chain(words.iter().copied()).collect::<Vec<_>>().join(" ");
    let text_lines = text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    page.push_str(&format!("\n## {heading}\n\n```text\n{text_lines}\n```\n"));
    for name in subcommands(&text) {
        append(page, &[words, &[name]].concat());
    }
}

#[test]
fn cli_page_matches_the_help_of_all_commands() {
    let path = root().join("docs/cli.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once(MARK).expect("the page has the mark");
    let mut page = format!("{before}{MARK}");
    append(&mut page, &[]);
    if std::env::var_os("UPDATE_CLI_PAGE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == page, "docs/cli.md differs from the help: run make cli-page");
}

/// Limits of the front page. Measured figures belong to the pages of benchmarks and results, which name their sources.
#[test]
fn readme_is_short_and_lists_no_missed_bars() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!((700..=900).contains(&words), "README.md has {words} words");
    assert!(!text.contains("missed"), "missed bars belong to benches/README.md");
}
