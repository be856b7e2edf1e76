//! Typed reading of tables: each option of ekiden is declared by the one line that reads it, with its key, its type and
//! its default.
//!
//! A reader uses a `toml` table whose values have positions. A value that cannot be read becomes a [`ConfigError`] and
//! the reading continues, so that all mistakes are found at once; [`TableReader::finish`] reports unknown keys.

use std::cell::RefCell;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::Disclosure;
use super::error::{ConfigError, FoundValue, NameUse, closest};
use super::place::{KeyLocation, SourceText, display_value};
use super::value::ConfigValue;

/// Reader of a table.
pub(super) struct TableReader<'a> {
    location: KeyLocation<'a>,
    /// `None` if the table is not in the file: every option has its default.
    table: Option<&'a DeTable<'a>>,
    known_keys: RefCell<Vec<&'static str>>,
    /// Keys whose values are hidden in mistakes, in part or as a whole.
    disclosures: RefCell<Vec<(&'static str, Disclosure)>>,
}

impl<'a> TableReader<'a> {
    /// Creates a reader of `table`, which is at `location`.
    pub fn new(location: KeyLocation<'a>, table: Option<&'a DeTable<'a>>) -> Self {
        Self { location, table, known_keys: RefCell::default(), disclosures: RefCell::default() }
    }

    /// Creates a reader of a table that is part of a text at `place`: all values are strings, on the line of that text.
    pub fn of_text(place: KeyLocation<'a>, table: &'a DeTable<'a>) -> Self {
        let source = SourceText { text: None, ..place.source };
        Self::new(KeyLocation { source, ..place }, Some(table))
    }

    /// Returns the location of `key`, and its value if it is set. Marks `key` as known.
    fn find(&self, key: &'static str) -> (KeyLocation<'a>, Option<&'a DeValue<'a>>) {
        self.known_keys.borrow_mut().push(key);
        match self.table.and_then(|table| table.get_key_value(key)) {
            Some((name, value)) => (self.location.child(key, Some(&name.span())), Some(value.get_ref())),
            None => (self.location.child(key, None), None),
        }
    }

    /// Whether `key` is set, to a valid or an invalid value.
    pub fn has(&self, key: &'static str) -> bool {
        self.find(key).1.is_some()
    }

    /// Whether `key` is set to this text.
    pub fn has_text(&self, key: &'static str, text: &str) -> bool {
        self.find(key).1.and_then(|value| value.as_str()).is_some_and(|written| written == text)
    }

    /// Whether `key` is set to a string, not to a table.
    pub fn is_string(&self, key: &'static str) -> bool {
        self.find(key).1.is_some_and(|value| value.is_str())
    }

    /// Returns the location of the table itself.
    pub fn location(&self) -> KeyLocation<'a> {
        self.location.clone()
    }

    /// Returns the location of `key`, for mistakes that are found only after everything is read.
    pub fn location_of(&self, key: &'static str) -> KeyLocation<'a> {
        self.find(key).0
    }

    /// Reports a mistake about `key` that depends on other keys.
    pub fn error(&self, key: &'static str, expected: impl Into<String>) {
        let (place, found) = self.found_value(key);
        place.error(found, expected);
    }

    /// Reports a warning about `key`, whose value is valid, but not recommended.
    pub fn warn(&self, key: &'static str, expected: impl Into<String>) {
        let (place, found) = self.found_value(key);
        place.warn(found, expected);
    }

    /// Records that `key` names a congestion control.
    pub fn add_congestion_name(&self, key: &'static str, name: &str) {
        let (place, found) = self.found_value(key);
        place
            .source
            .diagnostics
            .add_congestion_name(NameUse { name: name.to_owned(), location: place.config_error(found, "") });
    }

    fn found_value(&self, key: &'static str) -> (KeyLocation<'a>, FoundValue) {
        let (place, value) = self.find(key);
        let found = match value {
            None => FoundValue::Missing,
            Some(value) => {
                let disclosures = self.disclosures.borrow();
                let disclosure =
                    disclosures.iter().find(|(name, _)| *name == key).map_or(Disclosure::All, |(_, shown)| *shown);
                disclosure.disclose(value)
            }
        };
        (place, found)
    }

    /// Reports a mistake about the table itself.
    pub fn table_error(&self, expected: impl Into<String>) {
        self.location.error(FoundValue::Value("{...}".to_owned()), expected);
    }

    /// Limits what mistakes show of the value of `key`.
    pub fn set_disclosure(&self, key: &'static str, disclosure: Disclosure) {
        self.disclosures.borrow_mut().push((key, disclosure));
    }

    /// Returns the content of the file that `key` names, or reports the mistakes in it with their lines; a mistake with
    /// line 0 concerns the whole file.
    pub fn accept_file<T>(&self, key: &'static str, file: &Path, read: Result<T, Vec<(usize, String)>>) -> Option<T> {
        let note = |(line, expected)| {
            if line == 0 {
                return self.error(key, expected);
            }
            let (place, key) = (file.display().to_string(), String::new());
            self.location.source.diagnostics.add_error(ConfigError {
                source: place,
                line: Some(line),
                key,
                found: FoundValue::WholeText,
                expected,
            });
        };
        read.map_err(|mistakes| mistakes.into_iter().for_each(note)).ok()
    }

    /// Reads an option that may be missing.
    pub fn optional<T: ConfigValue>(&self, key: &'static str) -> Option<T> {
        if T::DISCLOSURE != Disclosure::All {
            self.set_disclosure(key, T::DISCLOSURE);
        }
        let (place, value) = self.find(key);
        place.read(value?)
    }

    /// Reads an option with a default.
    pub fn optional_or<T: ConfigValue>(&self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// Reads a mandatory option; `None` after reporting a mistake.
    pub fn required<T: ConfigValue>(&self, key: &'static str) -> Option<T> {
        if !self.has(key) {
            self.error(key, T::EXPECTED);
        }
        self.optional(key)
    }

    /// Reads a list, empty if the option is missing. On the command line, a single value counts as a list.
    pub fn list<T: ConfigValue>(&self, key: &'static str) -> Vec<T> {
        let accept_single = self.location.source.text.is_none();
        self.items(key, accept_single).into_iter().map(|(_, item)| item).collect()
    }

    /// Reads a list of at least one item, each with its location. A single value counts as a list.
    pub fn non_empty_list<T: ConfigValue>(&self, key: &'static str) -> Vec<(KeyLocation<'a>, T)> {
        let empty = |value: &DeValue<'_>| value.as_array().is_some_and(|items| items.is_empty());
        if self.find(key).1.is_none_or(empty) {
            self.error(key, format!("at least one in [ ], each {}", T::EXPECTED));
        }
        self.items(key, true)
    }

    fn items<T: ConfigValue>(&self, key: &'static str, accept_single: bool) -> Vec<(KeyLocation<'a>, T)> {
        let (place, value) = self.find(key);
        match value {
            None => Vec::new(),
            Some(DeValue::Array(items)) => {
                let places =
                    items.iter().enumerate().map(|(at, item)| (place.child_item(at, Some(&item.span())), item));
                places.filter_map(|(location, item)| Some((location.clone(), location.read(item.get_ref())?))).collect()
            }
            Some(value) if accept_single => place.read(value).map(|item| (place, item)).into_iter().collect(),
            Some(other) => {
                place.error(FoundValue::Value(display_value(other)), format!("a list in [ ], each {}", T::EXPECTED));
                Vec::new()
            }
        }
    }

    /// Reads a URL that may contain a password, with its location.
    pub fn url(&self, key: &'static str, expected: &str) -> Option<(KeyLocation<'a>, &'a str)> {
        self.set_disclosure(key, Disclosure::Url);
        let (place, value) = self.find(key);
        match value? {
            DeValue::String(text) => Some((place, &**text)),
            _ => {
                place.error(FoundValue::Hidden, expected);
                None
            }
        }
    }

    /// Reads a list of URLs that may contain passwords, each with its location.
    pub fn urls(&self, key: &'static str, expected: &str) -> Vec<(KeyLocation<'a>, &'a str)> {
        let (place, value) = self.find(key);
        let items = match value {
            None => return Vec::new(),
            Some(DeValue::Array(items)) => items,
            Some(_) => {
                place.error(FoundValue::Hidden, format!("a list in [ ], each {expected}"));
                return Vec::new();
            }
        };
        let mut texts = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let location = place.child_item(at, Some(&item.span()));
            match item.get_ref() {
                DeValue::String(text) => texts.push((location, &**text)),
                _ => location.error(FoundValue::Hidden, expected),
            }
        }
        texts
    }

    /// Returns a reader of the table `[key]`; if it is missing, all its options have their defaults.
    pub fn table(&self, key: &'static str) -> TableReader<'a> {
        let (place, value) = self.find(key);
        let table = value.and_then(|value| as_table(&place, value, &format!("a table [{key}]")));
        TableReader::new(place, table)
    }

    /// Returns readers of the tables `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<TableReader<'a>> {
        let (place, value) = self.find(key);
        let expected = format!("tables that begin with [[{key}]]");
        match value {
            None => Vec::new(),
            Some(DeValue::Array(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(at, item)| {
                    let location = place.child_item(at, Some(&item.span()));
                    let table = as_table(&location, item.get_ref(), &expected)?;
                    Some(TableReader::new(location, Some(table)))
                })
                .collect(),
            Some(other) => {
                place.error(FoundValue::Value(display_value(other)), expected);
                Vec::new()
            }
        }
    }

    /// Returns readers of the tables `[key.NAME]`, with their names.
    pub fn named_tables(&self, key: &'static str) -> Vec<(&'a str, TableReader<'a>)> {
        let tables = self.table(key);
        let mut readers = Vec::new();
        for (name, value) in tables.table.into_iter().flatten() {
            let location = tables.location.child(name.get_ref(), Some(&name.span()));
            if let Some(table) = as_table(&location, value.get_ref(), &format!("a table [{key}.NAME]")) {
                readers.push((&**name.get_ref(), TableReader::new(location, Some(table))));
            }
        }
        readers
    }

    /// Reads a table with arbitrary keys: returns each key with its location, and its value if it is valid.
    pub fn entries<T: ConfigValue>(&self) -> Vec<(&'a str, KeyLocation<'a>, Option<T>)> {
        let keys = self.table.into_iter().flatten();
        keys.map(|(name, value)| {
            let place = self.location.child(name.get_ref(), Some(&name.span()));
            let read = place.read(value.get_ref());
            (&**name.get_ref(), place, read)
        })
        .collect()
    }

    /// Reports all keys that no option has used. Their values are not shown: they may be misplaced passwords.
    pub fn finish(self) {
        let mut known_keys = self.known_keys.into_inner();
        known_keys.sort_unstable();
        known_keys.dedup();
        for (name, _) in self.table.into_iter().flatten() {
            let word: &str = name.get_ref();
            if known_keys.contains(&word) {
                continue;
            }
            let list = known_keys.join(", ");
            let expected = match closest(word, known_keys.iter().copied()) {
                Some(suggestion) => format!("{suggestion:?}, perhaps; the keys are {list}"),
                None => format!("one of {list}"),
            };
            self.location.child(word, Some(&name.span())).error(FoundValue::Unknown, expected);
        }
    }
}

fn as_table<'a>(place: &KeyLocation<'_>, value: &'a DeValue<'a>, expected: &str) -> Option<&'a DeTable<'a>> {
    if value.as_table().is_none() {
        place.error(FoundValue::Value(display_value(value)), expected);
    }
    value.as_table()
}
