//! Pages and their fenced code blocks, with the comment before each block.

use std::fmt;
use std::path::{Path, PathBuf};

/// A page in Markdown.
pub struct Page {
    /// Path of the page in the repository.
    pub name: String,
    pub text: String,
}

/// A fenced code block of a page.
pub struct Block<'a> {
    page: &'a str,
    line: usize,
    /// The last heading before the block, without its marks.
    pub section: &'a str,
    /// The info string after the opening fence.
    pub language: &'a str,
    /// The text of the comment directly before the block.
    pub mark: &'a str,
    pub text: String,
}

/// The test of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A script that runs on these machines.
    Run(Vec<String>),
    /// A file that is written on a machine.
    File { machine: String, path: String },
    /// Commands that are only parsed.
    Parsed,
    /// A complete or partial configuration.
    Checked,
    /// A plan for `ekiden plan`.
    Plan,
    /// A complete or partial lab or experiment.
    Lab,
    /// A diagram, or the output of a program.
    Shown,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run(_) => "run",
            Self::File { .. } => "written",
            Self::Parsed => "parsed",
            Self::Checked => "checked",
            Self::Plan => "planned",
            Self::Lab => "the laboratory's",
            Self::Shown => "shown",
        })
    }
}

/// Returns README.md and all pages below docs.
pub fn pages() -> Vec<Page> {
    let mut files = vec![root().join("README.md")];
    find(&root().join("docs"), &mut files);
    files.sort();
    let page = |file: PathBuf| {
        let name = file.strip_prefix(root()).expect("a file of the repository").display().to_string();
        Page { name, text: std::fs::read_to_string(&file).expect("a page") }
    };
    files.into_iter().map(page).collect()
}

/// Returns the root folder of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("docs").exists() { here } else { here.parent().and_then(Path::parent).expect("crates/NAME") }
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

impl Page {
    /// Returns the code blocks, in order.
    pub fn blocks(&self) -> Vec<Block<'_>> {
        let (mut blocks, mut open): (Vec<Block<'_>>, Option<(Block<'_>, usize)>) = (Vec::new(), None);
        let (mut mark, mut section) = ("", "");
        for (number, line) in self.text.lines().enumerate() {
            let bare = line.trim_start();
            match (&mut open, bare.strip_prefix("```")) {
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(block, _)| block)),
                (Some((block, indent)), None) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    let indent = line.len() - bare.len();
                    let text = String::new();
                    open = Some((Block { page: &self.name, line: number + 1, section, language, mark, text }, indent));
                }
                (None, None) if line.starts_with('#') => section = line.trim_start_matches('#').trim(),
                (None, None) => {}
            }
            mark = bare.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
        }
        assert!(open.is_none(), "{}: a block without end", self.name);
        blocks
    }

    /// Returns the lines outside of blocks, with line numbers.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let (mut lines, mut inside) = (Vec::new(), false);
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                lines.push((number + 1, line));
            }
        }
        lines
    }

    /// Returns the inline code outside of blocks, with line numbers. Inline code must not continue on another line.
    pub fn spans(&self) -> Vec<(usize, &str)> {
        let mut spans = Vec::new();
        for (number, line) in self.prose() {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span)));
        }
        spans
    }
}

impl Block<'_> {
    /// Returns page and line, such as `docs/lab.md:12`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// Returns the test of the block; `None` if language and comment match no kind.
    pub fn kind(&self) -> Option<Kind> {
        let of_the_lab = self.page == "docs/lab.md" || self.page.starts_with("docs/results/");
        if let Some(machines) = self.mark.strip_prefix("on ") {
            let machines = machines.split(", ").map(str::to_owned).collect();
            return (self.language == "sh").then_some(Kind::Run(machines));
        }
        if let Some((machine, path)) = self.mark.strip_prefix("at ").and_then(|mark| mark.split_once(": ")) {
            let file = Kind::File { machine: machine.to_owned(), path: path.to_owned() };
            return ["toml", "text"].contains(&self.language).then_some(file);
        }
        match (self.language, self.mark) {
            ("toml", "plan") => Some(Kind::Plan),
            ("toml", "lab") => Some(Kind::Lab),
            ("toml", _) if of_the_lab => Some(Kind::Lab),
            ("toml", _) => Some(Kind::Checked),
            ("sh" | "console", _) => Some(Kind::Parsed),
            ("text" | "yaml", _) => Some(Kind::Shown),
            _ => None,
        }
    }
}
