//! `ekiden man`: writes the manual pages. The pages of commands are generated from the clap declarations, the page of
//! the configuration file from `ekiden.example.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};

use crate::Cli;

/// The footer of each page.
const VERSION: &str = concat!("ekiden ", env!("CARGO_PKG_VERSION"));

/// Write the manual pages
#[derive(Args)]
pub struct Man {
    /// Output directory; receives the subdirectories man1 and man5, where man(1) searches
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        write_commands(&command, &create_folder(&self.folder, "man1")?)?;
        write(&create_folder(&self.folder, "man5")?.join("ekiden.toml.5"), configuration::page().render().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes one page for this command and one for each visible subcommand, recursively.
fn write_commands(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_commands(below, folder)?;
    }
    let others: &[&str] = match command.get_name() {
        "ekiden" => &["ekiden.toml(5)", "ekiden-lab(1)"],
        _ => &["ekiden(1)", "ekiden.toml(5)"],
    };
    let page = clap_mangen::Man::new(command.clone()).source(VERSION).manual("ekiden");
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(see_also(&mut Roff::new(), others).to_roff().into_bytes());
    write(&folder.join(page.get_filename()), &text)
}

fn see_also<'a>(page: &'a mut Roff, others: &[&str]) -> &'a Roff {
    page.control("SH", ["SEE ALSO"]);
    for (number, other) in others.iter().enumerate() {
        let (name, section) = other.split_once('(').unwrap_or((other, ""));
        let rest = if section.is_empty() { String::new() } else { format!("({section}") };
        page.text([bold(name), roman(if number + 1 < others.len() { format!("{rest},") } else { rest })]);
    }
    page
}

fn create_folder(folder: &Path, section: &str) -> anyhow::Result<PathBuf> {
    let folder = folder.join(section);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Renders the manual page ekiden.toml(5) from `ekiden.example.toml`.
///
/// A test of the configuration parser keeps the example complete. This module depends only on the example's layout:
/// titles with a rule, tables, keys with a comment to the right that may continue on the next lines, lists, and text.
mod configuration {
    use clap_mangen::roff::{Inline, Roff, bold, roman};

    use super::{VERSION, see_also};

    const EXAMPLE: &str = include_str!("../ekiden.example.toml");

    /// A comment at this column or beyond belongs to the key above.
    const COMMENT_COLUMN: usize = 20;
    /// Indented text is an item of a list. Text at this column or beyond continues the item.
    const CONTINUATION_COLUMN: usize = 6;

    /// A classified line of the example.
    #[derive(Clone, Copy, PartialEq)]
    enum ExampleLine<'a> {
        Blank,
        /// `# ---- Title: text`
        Title(&'a str),
        /// `[table]` or `[[table]]`, and its comment.
        Table(&'a str, &'a str),
        /// `key = value`, and its comment.
        Key(&'a str, &'a str),
        /// A continuation of the comment or item before.
        More(&'a str),
        Item(&'a str),
        Text(&'a str),
    }

    /// Renders the complete page.
    pub fn page() -> Roff {
        let mut page = Roff::new();
        page.control("TH", ["ekiden.toml", "5", "", VERSION, "ekiden"]);
        page.control("SH", ["NAME"]);
        page.text([roman("ekiden.toml - the configuration of ekiden")]);
        page.control("SH", ["DESCRIPTION"]);
        // The first line is the title of the example.
        let mut before = ExampleLine::Blank;
        for line in EXAMPLE.lines().skip(1).map(ExampleLine::parse) {
            line.print(before, &mut page);
            before = line;
        }
        page.control("SH", ["FILES"]);
        page.text([bold("/etc/ekiden/ekiden.toml")]);
        see_also(&mut page, &["ekiden-run(1)", "ekiden-check(1)", "ekiden(1)"]);
        page
    }

    impl<'a> ExampleLine<'a> {
        fn parse(line: &'a str) -> Self {
            if line.trim().is_empty() {
                return Self::Blank;
            }
            if let Some(title) = line.strip_prefix("# ---- ") {
                return Self::Title(title);
            }
            let content = line.strip_prefix('#').unwrap_or(line);
            if content.starts_with(|first: char| first == '[' || first.is_ascii_lowercase()) || is_key(content) {
                let (code, comment) = split_comment(content);
                // A key that is commented out has its default value: the page shows the `#` as well.
                let marked =
                    if content.starts_with(' ') { code } else { &line[..line.len() - content.len() + code.len()] };
                return if code.starts_with('[') { Self::Table(code, comment) } else { Self::Key(marked, comment) };
            }
            let indent = content.len() - content.trim_start().len();
            let text = content.trim_start().trim_start_matches('#').trim_start();
            match indent {
                COMMENT_COLUMN.. => Self::More(content.trim_start().trim_start_matches('#')),
                CONTINUATION_COLUMN.. => Self::More(text),
                2.. => Self::Item(text),
                _ => Self::Text(text),
            }
        }

        fn print(self, before: Self, page: &mut Roff) {
            match self {
                Self::Blank => {}
                Self::Title(title) => {
                    let end = title.find(": ").into_iter().chain(title.find(". ")).min().unwrap_or(title.len());
                    page.control("SH", [&title[..end]]);
                    page.text(inlines(title[end..].trim_start_matches([':', '.', ' '])));
                }
                Self::Table(name, comment) => {
                    page.control("SS", [name]);
                    page.text(inlines(comment));
                }
                Self::Key(key, comment) => {
                    page.control("TP", []);
                    page.text([bold(key)]);
                    page.text(inlines(comment));
                }
                Self::Item(text) => {
                    page.control("IP", ["\\(bu", "2"]);
                    page.text(inlines(text));
                }
                // A line with a deeper indent than its comment is an example, which is printed on a separate line.
                Self::More(text) if text.starts_with("  ") => {
                    page.control("br", []);
                    page.text([bold(text.trim())]);
                    page.control("br", []);
                }
                Self::More(text) => {
                    page.text(inlines(text.trim()));
                }
                Self::Text(text) => {
                    if !matches!(before, Self::Text(_) | Self::Title(_)) {
                        page.control("PP", []);
                    }
                    page.text(inlines(text));
                }
            }
        }
    }

    /// Returns whether `line` is `key = value`, possibly indented.
    fn is_key(line: &str) -> bool {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && words.next() == Some("=")
    }

    /// Splits a line at the first `#` outside of a string into code and comment.
    fn split_comment(line: &str) -> (&str, &str) {
        let mut quoted = false;
        let comment = line.find(|c: char| {
            quoted ^= c == '"';
            c == '#' && !quoted
        });
        let (code, comment) = line.split_at(comment.unwrap_or(line.len()));
        (code.trim(), comment.trim_start_matches('#').trim())
    }

    /// Converts text to roff; parts between backticks are bold.
    fn inlines(text: &str) -> Vec<Inline> {
        let piece = |(number, piece): (usize, &str)| if number % 2 == 1 { bold(piece) } else { roman(piece) };
        text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty()).map(piece).collect()
    }
}
