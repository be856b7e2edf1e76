//! Merges several files into one configuration: tables are merged key by key, arrays of tables are concatenated, and
//! every other key must be set in only one file. After that, environment variables in texts are replaced.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::environment;
use super::error::{Diagnostics, FoundValue};
use super::files::SourceFile;
use super::place::{KeyLocation, SourceText, display_value};
use super::value::{ConfigValue, Version};

/// Merges the files in their order.
pub(super) fn merge_files<'a>(files: &'a [SourceFile], notes: &'a Diagnostics) -> DeTable<'a> {
    let mut merged = DeTable::new();
    for file in files {
        let location = KeyLocation::whole_text(SourceText::new(file, files, notes));
        let (table, errors) = DeTable::parse_recoverable(&file.text);
        for error in errors {
            // Only the message: `Display` would quote the line, which may contain a password.
            let span = error.span().map(|span| moved(&span, file.start));
            location.at_span(span.as_ref()).error(FoundValue::Syntax, error.message());
        }
        let table = table.into_inner();
        if files.len() > 1 && table.get("version").is_none() {
            location.child("version", None).error(FoundValue::Missing, Version::EXPECTED);
        }
        merge_tables(&mut merged, move_table(table, file.start), &location);
    }
    if let Some(first) = files.first() {
        expand_table(&mut merged, &KeyLocation::whole_text(SourceText::new(first, files, notes)));
    }
    merged
}

/// Adds the keys of `later` to `table`, which is at `place`.
fn merge_tables<'a>(table: &mut DeTable<'a>, later: DeTable<'a>, place: &KeyLocation<'_>) {
    for (key, value) in later {
        let name: &str = key.get_ref();
        let Some(first) = table.get_key_value(name).map(|(first, _)| first.span()) else {
            table.insert(key, value);
            continue;
        };
        let (location, first_location) = (place.child(name, Some(&key.span())), place.child(name, Some(&first)));
        let is_version = place.key.is_empty() && name == "version";
        let Some(earlier) = table.get_mut(name) else { continue };
        match (earlier.get_mut(), value.into_inner()) {
            (DeValue::Table(earlier), DeValue::Table(later)) => merge_tables(earlier, later, &first_location),
            (DeValue::Array(earlier), DeValue::Array(later)) if has_only_tables(earlier) && has_only_tables(&later) => {
                later.into_iter().for_each(|item| earlier.push(item));
            }
            (earlier, later) if is_version => {
                let [earlier, later] = [&*earlier, &later].map(display_value);
                if earlier != later {
                    location.error(
                        FoundValue::Value(later),
                        format!("the same version as at {}", first_location.describe()),
                    );
                }
            }
            _ => location.error(FoundValue::Duplicate, format!("one place, here or {}", first_location.describe())),
        }
    }
}

fn has_only_tables(array: &DeArray<'_>) -> bool {
    !array.is_empty() && array.iter().all(|item| item.get_ref().is_table())
}

fn moved(span: &Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

fn move_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let entries = table.into_iter().map(|(key, value)| {
        let span = moved(&key.span(), by);
        (Spanned::new(span, key.into_inner()), move_value(value, by))
    });
    entries.collect()
}

fn move_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = moved(&value.span(), by);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(move_table(table, by)),
        DeValue::Array(items) => DeValue::Array(items.into_iter().map(|item| move_value(item, by)).collect()),
        scalar => scalar,
    };
    Spanned::new(span, value)
}

fn expand_table(table: &mut DeTable<'_>, place: &KeyLocation<'_>) {
    for (key, value) in table.iter_mut() {
        expand_value(value.get_mut(), &place.child(key.get_ref(), Some(&key.span())));
    }
}

fn expand_value(value: &mut DeValue<'_>, place: &KeyLocation<'_>) {
    match value {
        DeValue::String(text) => match environment::expand(text, |name| std::env::var(name)) {
            Ok(None) => {}
            Ok(Some(expanded)) => *text = expanded.into(),
            Err(expected) => place.error(FoundValue::Unexpanded, expected),
        },
        DeValue::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let location = place.child_item(at, Some(&item.span()));
                expand_value(item.get_mut(), &location);
            }
        }
        DeValue::Table(table) => expand_table(table, place),
        _ => {}
    }
}
