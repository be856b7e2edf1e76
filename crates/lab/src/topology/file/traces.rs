//! Replaces the names of delivery traces in a file by their contents, so that the text has everything that a run
//! depends on.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use ekiden_emulator::trace::DeliveryTrace;
use toml::de::{DeTable, DeValue};

/// Key of a trace in the conditions of a link.
const KEY: &str = "trace";

/// Replaces the name of each trace file in the conditions of links by the times in the file. Names are relative to
/// `folder`. Lines keep their numbers.
///
/// # Errors
/// A trace file cannot be read, or is not a trace.
pub fn inline_traces(mut text: String, folder: &Path) -> anyhow::Result<String> {
    // Syntax errors are ignored here: the later parser of the file reports them.
    let table = DeTable::parse_recoverable(&text).0;
    let mut names = Vec::new();
    find_in_table(table.get_ref(), "", &mut names);
    let mut replacements = Vec::new();
    for (name, span) in names {
        let path = folder.join(&name);
        let context = || format!("trace {}", path.display());
        let trace: DeliveryTrace = fs::read_to_string(&path).with_context(context)?.parse().with_context(context)?;
        let times: Vec<String> = trace.times().iter().map(u64::to_string).collect();
        replacements.push((span, format!("[{}]", times.join(","))));
    }
    replacements.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    for (span, times) in replacements {
        text.replace_range(span, &times);
    }
    Ok(text)
}

/// Finds the names of trace files below `path`, with their positions in the text.
fn find_in_table(table: &DeTable<'_>, path: &str, found: &mut Vec<(String, Range<usize>)>) {
    for (key, value) in table.iter() {
        find_in_value(value.get_ref(), value.span(), &format!("{path}.{}", key.get_ref()), found);
    }
}

fn find_in_value(value: &DeValue<'_>, span: Range<usize>, path: &str, found: &mut Vec<(String, Range<usize>)>) {
    match value {
        DeValue::String(name) if is_trace_key(path) => found.push((name.to_string(), span)),
        DeValue::Table(table) => find_in_table(table, path, found),
        DeValue::Array(items) => {
            items.iter().for_each(|item| find_in_value(item.get_ref(), item.span(), path, found));
        }
        _ => {}
    }
}

/// Returns whether a path of keys, such as `.factor.levels.set.link.wan.trace`, leads to the conditions of a link.
fn is_trace_key(path: &str) -> bool {
    let mut keys = path.split('.');
    keys.next_back() == Some(KEY) && keys.any(|key| matches!(key, "link" | "event"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir::TempDir;

    fn inlined(text: &str) -> Result<String, String> {
        let folder = TempDir::for_test();
        fs::write(folder.path().join("a.trace"), "0\n3\n").unwrap();
        fs::write(folder.path().join("bad.trace"), "0\nx\n").unwrap();
        let shown = format!("{}/", folder.path().display());
        inline_traces(text.to_owned(), folder.path()).map_err(|error| format!("{error:#}").replace(&shown, ""))
    }

    #[test]
    fn trace_files_are_inlined_in_all_link_conditions() {
        let text = "[link.wan]\ntrace = 'a.trace' # trace = 'no'\nreverse = { trace = \"a.trace\" }\n\
                    [default.link]\ntrace = [7]\n[[event]]\nset = { trace = 'a.trace' }\n\
                    [[factor]]\nlevels = [{ set = { \"link.wan.trace\" = 'a.trace' } }]\n\
                    [treatment.x]\nconfig = { log = { trace = 'a.trace' } }\n";
        let expected = text
            .replace("'a.trace' # ", "[0,3] # ")
            .replace("trace = \"a.trace\"", "trace = [0,3]")
            .replace("set = { trace = 'a.trace'", "set = { trace = [0,3]")
            .replace("\"link.wan.trace\" = 'a.trace'", "\"link.wan.trace\" = [0,3]");
        assert_eq!(inlined(text).unwrap(), expected);
        assert_eq!(inlined("no TOML").unwrap(), "no TOML");
    }

    #[test]
    fn invalid_trace_file_is_named() {
        let of = |name: &str| inlined(&format!("[link.a]\ntrace = '{name}'")).unwrap_err();
        assert_eq!(of("none"), "trace none: No such file or directory (os error 2)");
        assert_eq!(
            of("bad.trace"),
            "trace bad.trace: line 2: expected a time in milliseconds up to 1000000000, not \"x\""
        );
    }
}
