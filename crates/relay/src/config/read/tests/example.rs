//! The example configuration: complete, and equal to the defaults.

use toml::de::DeTable;

use super::*;

const EXAMPLE: &str = include_str!("../../../../../../ekiden.example.toml");

#[test]
fn example_config_equals_the_defaults() {
    let written = from_text(EXAMPLE).unwrap_or_else(|e| panic!("{e}"));
    let bare = from_text(&with_listener("")).unwrap();
    let shown = |config: &Config| format!("{config:?}");
    assert_eq!(shown(&written), shown(&bare));
}

/// The example contains each key that the reader knows, in use or as a comment.
#[test]
fn example_config_lists_every_key() {
    let all: String = EXAMPLE
        .lines()
        .map(|line| {
            let commented =
                line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()));
            format!("{}\n", commented.unwrap_or(line))
        })
        .collect();
    let example = DeTable::parse(&all).unwrap_or_else(|e| panic!("{e}"));
    let probe = "zzzzzzzz = 1\n";
    let mut text = format!("version = 1\n{probe}");
    for table in [
        "[[listener]]",
        "[[relay]]",
        "[[path]]",
        "[[route]]",
        "[[interface]]",
        "[user.alice]",
        "[fleet]",
        "[transparent]",
        "[limits]",
        "[timeouts]",
        "[profile.example]",
        "[dns]",
        "[history]",
        "[traces]",
        "[admin]",
        "[log]",
    ] {
        text += &format!("{table}\n{probe}");
    }
    let unknown: Vec<_> = errors_of(&text).into_iter().filter(|m| m.found == FoundValue::Unknown).collect();
    assert_eq!(unknown.len(), 17, "{unknown:?}");
    for mistake in unknown {
        let path = mistake.key.trim_end_matches("zzzzzzzz").replace("[1]", "");
        for key in mistake.expected.strip_prefix("one of ").unwrap().split(", ") {
            let steps: Vec<_> = path.split_terminator('.').chain([key]).collect();
            assert!(has(example.get_ref(), &steps), "{path}{key} is not in ekiden.example.toml");
        }
    }
    for key in ["key", "profile", "password_file", "password_env"] {
        assert!(EXAMPLE.contains(&format!("?{key}=")), "?{key}= of a hop is not in ekiden.example.toml");
    }
}

fn has(table: &DeTable<'_>, steps: &[&str]) -> bool {
    let Some(value) = table.get(steps[0]).map(toml::Spanned::get_ref) else { return false };
    let inner = value.as_array().and_then(|list| list.first()).map_or(value, |first| first.get_ref());
    steps.len() == 1 || inner.as_table().is_some_and(|table| has(table, &steps[1..]))
}
