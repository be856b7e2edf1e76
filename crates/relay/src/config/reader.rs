//! Typed reading of a table: each option of ekiden is declared by the one line that reads it, with its key, its type
//! and its default.
//!
//! A [`Reader`] walks a `toml` table whose values know their position. A value that cannot be read becomes a
//! [`Mistake`] and the reading goes on, so that one run finds them all; [`Reader::finish`] reports the keys that
//! nobody asked for.

use std::cell::RefCell;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::mistake::{Found, Mistake, Named, closest};
use super::place::{Place, Source, shown};
use super::shows::Shows;
use super::value::Value;

/// A table that is being read.
pub(super) struct Reader<'a> {
    place: Place<'a>,
    /// `None` for a table that is not written: everything has its default.
    table: Option<&'a DeTable<'a>>,
    known: RefCell<Vec<&'static str>>,
    /// Keys whose values mistakes show in part, or not at all.
    hidden: RefCell<Vec<(&'static str, Shows)>>,
}

impl<'a> Reader<'a> {
    /// Reads `table`, which stands at `place`.
    pub fn new(place: Place<'a>, table: Option<&'a DeTable<'a>>) -> Self {
        Self { place, table, known: RefCell::default(), hidden: RefCell::default() }
    }

    /// Reads a table that was part of a text at `place`: every value is a string, and on the line of that text.
    pub fn of_text(place: Place<'a>, table: &'a DeTable<'a>) -> Self {
        let source = Source { text: None, ..place.source };
        Self::new(Place { source, ..place }, Some(table))
    }

    /// The place of `key`, and its value if it is written.
    fn find(&self, key: &'static str) -> (Place<'a>, Option<&'a DeValue<'a>>) {
        self.known.borrow_mut().push(key);
        match self.table.and_then(|table| table.get_key_value(key)) {
            Some((name, value)) => (self.place.below(key, Some(&name.span())), Some(value.get_ref())),
            None => (self.place.below(key, None), None),
        }
    }

    /// Whether `key` is written, rightly or wrongly.
    pub fn has(&self, key: &'static str) -> bool {
        self.find(key).1.is_some()
    }

    /// Whether `key` is this text.
    pub fn says(&self, key: &'static str, text: &str) -> bool {
        self.find(key).1.and_then(|value| value.as_str()).is_some_and(|written| written == text)
    }

    /// Whether `key` is a text, and no table.
    pub fn is_text(&self, key: &'static str) -> bool {
        self.find(key).1.is_some_and(|value| value.is_str())
    }

    /// The place of the table itself.
    pub fn place(&self) -> Place<'a> {
        self.place.clone()
    }

    /// The place of `key`, for mistakes that only show when everything is read.
    pub fn place_of(&self, key: &'static str) -> Place<'a> {
        self.find(key).0
    }

    /// Notes a mistake about `key` that only shows in the light of other keys.
    pub fn mistake(&self, key: &'static str, expected: impl Into<String>) {
        let (place, found) = self.found(key);
        place.note(found, expected);
    }

    /// Notes a warning about `key`: the value is valid, and another value is recommended.
    pub fn warn(&self, key: &'static str, expected: impl Into<String>) {
        let (place, found) = self.found(key);
        place.warn(found, expected);
    }

    /// Notes that `key` names a congestion control.
    pub fn names_congestion(&self, key: &'static str, name: &str) {
        let (place, found) = self.found(key);
        place.source.notes.names_congestion(Named { name: name.to_owned(), at: place.mistake(found, "") });
    }

    fn found(&self, key: &'static str) -> (Place<'a>, Found) {
        let (place, value) = self.find(key);
        let found = match value {
            None => Found::Missing,
            Some(value) => {
                let hidden = self.hidden.borrow();
                let shows = hidden.iter().find(|(hidden, _)| *hidden == key).map_or(Shows::All, |(_, shows)| *shows);
                shows.found(value)
            }
        };
        (place, found)
    }

    /// Notes a mistake about the name of the table itself.
    pub fn note(&self, expected: impl Into<String>) {
        self.place.note(Found::Value("{...}".to_owned()), expected);
    }

    /// Makes sure that mistakes show no more of the value of `key` than this.
    pub fn hide(&self, key: &'static str, shows: Shows) {
        self.hidden.borrow_mut().push((key, shows));
    }

    /// Takes what was read from the file that `key` names, or notes the mistakes in it by their lines; those of line 0
    /// are about the whole file.
    pub fn file<T>(&self, key: &'static str, file: &Path, read: Result<T, Vec<(usize, String)>>) -> Option<T> {
        let note = |(line, expected)| {
            if line == 0 {
                return self.mistake(key, expected);
            }
            let (place, key) = (file.display().to_string(), String::new());
            self.place.source.notes.add(Mistake { place, line: Some(line), key, found: Found::Whole, expected });
        };
        read.map_err(|mistakes| mistakes.into_iter().for_each(note)).ok()
    }

    /// An option that may be left out.
    pub fn optional<T: Value>(&self, key: &'static str) -> Option<T> {
        if T::SHOWS != Shows::All {
            self.hide(key, T::SHOWS);
        }
        let (place, value) = self.find(key);
        place.read(value?)
    }

    /// An option with a default.
    pub fn or<T: Value>(&self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// An option that must be written; `None` when there is a mistake.
    pub fn required<T: Value>(&self, key: &'static str) -> Option<T> {
        if !self.has(key) {
            self.mistake(key, T::EXPECTED);
        }
        self.optional(key)
    }

    /// A list, empty when left out. On the command line a single value is a list of one.
    pub fn list<T: Value>(&self, key: &'static str) -> Vec<T> {
        let single = self.place.source.text.is_none();
        self.items(key, single).into_iter().map(|(_, item)| item).collect()
    }

    /// A list that has something in it, each item with its place. A single value is a list of one.
    pub fn some<T: Value>(&self, key: &'static str) -> Vec<(Place<'a>, T)> {
        let empty = |value: &DeValue<'_>| value.as_array().is_some_and(|items| items.is_empty());
        if self.find(key).1.is_none_or(empty) {
            self.mistake(key, format!("at least one in [ ], each {}", T::EXPECTED));
        }
        self.items(key, true)
    }

    fn items<T: Value>(&self, key: &'static str, single: bool) -> Vec<(Place<'a>, T)> {
        let (place, value) = self.find(key);
        match value {
            None => Vec::new(),
            Some(DeValue::Array(items)) => {
                let places = items.iter().enumerate().map(|(at, item)| (place.item(at, Some(&item.span())), item));
                places.filter_map(|(here, item)| Some((here.clone(), here.read(item.get_ref())?))).collect()
            }
            Some(value) if single => place.read(value).map(|item| (place, item)).into_iter().collect(),
            Some(other) => {
                place.note(Found::Value(shown(other)), format!("a list in [ ], each {}", T::EXPECTED));
                Vec::new()
            }
        }
    }

    /// A URL that may hold a password, with its place.
    pub fn url(&self, key: &'static str, expected: &str) -> Option<(Place<'a>, &'a str)> {
        self.hide(key, Shows::Url);
        let (place, value) = self.find(key);
        match value? {
            DeValue::String(text) => Some((place, &**text)),
            _ => {
                place.note(Found::Hidden, expected);
                None
            }
        }
    }

    /// A list of URLs that may hold passwords, each with its place.
    pub fn urls(&self, key: &'static str, expected: &str) -> Vec<(Place<'a>, &'a str)> {
        let (place, value) = self.find(key);
        let items = match value {
            None => return Vec::new(),
            Some(DeValue::Array(items)) => items,
            Some(_) => {
                place.note(Found::Hidden, format!("a list in [ ], each {expected}"));
                return Vec::new();
            }
        };
        let mut texts = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let here = place.item(at, Some(&item.span()));
            match item.get_ref() {
                DeValue::String(text) => texts.push((here, &**text)),
                _ => here.note(Found::Hidden, expected),
            }
        }
        texts
    }

    /// A table `[key]`; everything in it has its default when it is left out.
    pub fn table(&self, key: &'static str) -> Reader<'a> {
        let (place, value) = self.find(key);
        let table = value.and_then(|value| as_table(&place, value, &format!("a table [{key}]")));
        Reader::new(place, table)
    }

    /// The tables `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Reader<'a>> {
        let (place, value) = self.find(key);
        let expected = format!("tables that begin with [[{key}]]");
        match value {
            None => Vec::new(),
            Some(DeValue::Array(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(at, item)| {
                    let here = place.item(at, Some(&item.span()));
                    let table = as_table(&here, item.get_ref(), &expected)?;
                    Some(Reader::new(here, Some(table)))
                })
                .collect(),
            Some(other) => {
                place.note(Found::Value(shown(other)), expected);
                Vec::new()
            }
        }
    }

    /// The tables `[key.NAME]` by name.
    pub fn named(&self, key: &'static str) -> Vec<(&'a str, Reader<'a>)> {
        let tables = self.table(key);
        let mut named = Vec::new();
        for (name, value) in tables.table.into_iter().flatten() {
            let here = tables.place.below(name.get_ref(), Some(&name.span()));
            if let Some(table) = as_table(&here, value.get_ref(), &format!("a table [{key}.NAME]")) {
                named.push((&**name.get_ref(), Reader::new(here, Some(table))));
            }
        }
        named
    }

    /// Every key of a table whose keys are names that the file chooses, its place, and its value where that can be read.
    pub fn each<T: Value>(&self) -> Vec<(&'a str, Place<'a>, Option<T>)> {
        let keys = self.table.into_iter().flatten();
        keys.map(|(name, value)| {
            let place = self.place.below(name.get_ref(), Some(&name.span()));
            let read = place.read(value.get_ref());
            (&**name.get_ref(), place, read)
        })
        .collect()
    }

    /// Notes every key that was not asked for. Its value is not shown: it may be a misplaced password.
    pub fn finish(self) {
        let mut known = self.known.into_inner();
        known.sort_unstable();
        known.dedup();
        for (name, _) in self.table.into_iter().flatten() {
            let word: &str = name.get_ref();
            if known.contains(&word) {
                continue;
            }
            let list = known.join(", ");
            let expected = match closest(word, known.iter().copied()) {
                Some(meant) => format!("{meant:?}, perhaps; known are {list}"),
                None => format!("one of {list}"),
            };
            self.place.below(word, Some(&name.span())).note(Found::Unknown, expected);
        }
    }
}

fn as_table<'a>(place: &Place<'_>, value: &'a DeValue<'a>, expected: &str) -> Option<&'a DeTable<'a>> {
    if value.as_table().is_none() {
        place.note(Found::Value(shown(value)), expected);
    }
    value.as_table()
}
