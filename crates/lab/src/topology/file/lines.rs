//! Finds the line of a key in a file, for error messages with the path of a key.

use toml::de::{DeTable, DeValue};

/// Prepends the line of the key to each message that begins with the path of a key, and sorts the messages by line.
/// Messages without a line, such as those about the whole file, come last.
pub fn prefix_line_numbers(text: &str, messages: impl IntoIterator<Item = String>) -> Vec<String> {
    let table = DeTable::parse_recoverable(text).0;
    let line_of = |message: &String| {
        let end = [" = ", ": "].iter().filter_map(|end| message.find(end)).min()?;
        line_of_key(text, table.get_ref(), &message[..end])
    };
    let mut lines: Vec<_> = messages.into_iter().map(|message| (line_of(&message), message)).collect();
    lines.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
    let prefixed = |(line, message): (Option<usize>, String)| match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    };
    lines.into_iter().map(prefixed).collect()
}

/// Returns the line of the last existing part of `path`: `link.wan.queue.limit`, `event.0.at`, `factor 2.levels`.
fn line_of_key(text: &str, table: &DeTable<'_>, path: &str) -> Option<usize> {
    let mut at = None;
    let mut current: Option<&DeValue<'_>> = None;
    for part in path.split(['.', ' ']).map(|part| part.trim_matches('"')) {
        let inner = match current {
            None => table.get_key_value(part),
            Some(DeValue::Table(table)) => table.get_key_value(part),
            Some(DeValue::Array(items)) => {
                // Indices in paths with a space count from 1.
                let first = usize::from(path.contains(' '));
                let item = part.parse::<usize>().ok().and_then(|number| items.get(number.checked_sub(first)?));
                let Some(item) = item else { break };
                at = Some(item.span().start);
                current = Some(item.get_ref());
                continue;
            }
            Some(_) => None,
        };
        let Some((name, value)) = inner else { break };
        at = Some(name.span().start);
        current = Some(value.get_ref());
    }
    at.map(|at| 1 + text[..at].matches('\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_the_line_of_their_key() {
        let text = "title = \"x\"\n[host.a]\nsysctl = { net.b = 1 }\n[[factor]]\nname = 1\n[[factor]]\n\nname = 2\n";
        let mistakes = [
            "whole: mistake",
            "factor 2.name: y",
            "host.a.sysctl.\"net.b\" = 1: z",
            "factor.0.name = 1: w",
            "title: v",
            "host.a.colour: u",
        ];
        let expected = [
            "line 1: title: v",
            "line 2: host.a.colour: u",
            "line 3: host.a.sysctl.\"net.b\" = 1: z",
            "line 5: factor.0.name = 1: w",
            "line 8: factor 2.name: y",
            "whole: mistake",
        ];
        assert_eq!(prefix_line_numbers(text, mistakes.map(str::to_owned)), expected);
    }
}
