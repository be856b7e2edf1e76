//! The files of a configuration: their paths and texts, and the offsets that spans refer to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, ConfigErrors, FoundValue};
use super::key;

/// A file of a configuration.
pub(super) struct SourceFile {
    /// Name of the file in mistakes.
    pub name: String,
    pub text: String,
    /// Whether every user of this host can read it.
    pub is_world_readable: bool,
    /// The offset that is added to the spans of this file: the files count as one concatenated text.
    pub start: usize,
}

impl SourceFile {
    /// Creates the only file of a configuration.
    pub fn only(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned(), is_world_readable: false, start: 0 }
    }
}

/// Reads all files that `paths` name. A directory stands for its `*.toml` files, in the order of their names.
pub(super) fn read_files(paths: &[&Path]) -> Result<Vec<SourceFile>, ConfigErrors> {
    let (mut files, mut mistakes) = (Vec::new(), Vec::new());
    let mut start = 0;
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in paths {
        let listed = list(path).unwrap_or_else(|expected| {
            mistakes.push(mistake(path, expected));
            Vec::new()
        });
        for path in listed {
            if seen.contains(&path) {
                mistakes.push(mistake(&path, "this file only once".to_owned()));
                continue;
            }
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let (name, is_world_readable) = (path.display().to_string(), key::is_world_readable(&path));
                    let length = text.len();
                    files.push(SourceFile { name, text, is_world_readable, start });
                    // One more than the length, because the end of a text is also a position in it.
                    start += length + 1;
                }
                Err(error) => mistakes.push(mistake(&path, format!("a readable file of UTF-8 text ({error})"))),
            }
            seen.push(path);
        }
    }
    if mistakes.is_empty() { Ok(files) } else { Err(ConfigErrors(mistakes)) }
}

/// Lists the files that a path stands for. The error is the expected text.
fn list(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let entries: Vec<PathBuf> = entries.map_err(|error: io::Error| format!("a readable directory ({error})"))?;
    // Editors and installers create hidden files next to the file that they change.
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_fragment = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && !is_hidden(path);
    let mut files: Vec<_> = entries.into_iter().filter(is_fragment).collect();
    files.sort();
    if files.is_empty() { Err("a directory with *.toml files".to_owned()) } else { Ok(files) }
}

fn mistake(path: &Path, expected: String) -> ConfigError {
    let source = path.display().to_string();
    ConfigError { source, line: None, key: String::new(), found: FoundValue::WholeText, expected }
}
