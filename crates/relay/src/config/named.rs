//! Tables of which other tables speak by name.

use std::fmt::Debug;

use super::error::{FoundValue, expected_one_of};
use super::place::KeyLocation;
use super::reader::TableReader;
use super::value::Name;

/// What has a name. What has a mistake in it keeps its name, so that nobody who speaks of it is told of another one.
pub(super) struct NamedTables<T> {
    /// What a mistake calls one of them.
    noun: &'static str,
    entries: Vec<(String, Option<T>)>,
    /// Makes one for a name that is not known yet.
    placeholder: Option<fn(&str) -> T>,
}

impl<T: Clone> NamedTables<T> {
    /// None so far.
    pub fn new(noun: &'static str) -> Self {
        Self { noun, entries: Vec::new(), placeholder: None }
    }

    /// From now on, whoever chooses a name that is none gets what this makes of it.
    pub fn set_placeholder(&mut self, make: fn(&str) -> T) {
        self.placeholder = Some(make);
    }

    /// Adds one; `value` is `None` for one with mistakes.
    pub fn add(&mut self, name: &str, value: Option<T>) {
        self.entries.push((name.to_owned(), value));
    }

    /// These values, and a value made from each of `others` whose name no value has.
    pub fn with_others<U>(&self, what: &'static str, others: &NamedTables<U>, make: impl Fn(&U) -> T) -> Self {
        let free = others.entries.iter().filter(|(name, _)| self.get(name).is_none());
        let made = free.map(|(name, value)| (name.clone(), value.as_ref().map(&make)));
        Self { noun: what, entries: self.entries.iter().cloned().chain(made).collect(), placeholder: self.placeholder }
    }

    /// Those without mistakes, in their order.
    pub fn valid(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// The one with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Option<T>> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// What a mistake says instead of `name`.
    pub fn expected(&self, name: &str) -> String {
        expected_one_of(self.noun, name, self.entries.iter().map(|(known, _)| known.as_str()))
    }

    /// Reads a list of names: at least one, and each once.
    pub fn read_list(&self, reader: &TableReader<'_>, key: &'static str) -> Vec<T> {
        let mut seen = Vec::new();
        let mut chosen = Vec::new();
        for (place, Name(name)) in reader.non_empty_list(key) {
            let made = self.placeholder.map(|make| Some(make(&name)));
            let value = self.get(&name).or(made.as_ref());
            if value.is_none() {
                name_error(&place, &name, self.expected(&name));
            }
            if seen.contains(&name) {
                let what = self.noun.split(" or ").next().unwrap_or_default();
                name_error(&place, &name, format!("each {} once", what.trim_start_matches("a ")));
            }
            chosen.extend(value.cloned().flatten());
            seen.push(name);
        }
        chosen
    }
}

fn name_error(place: &KeyLocation<'_>, name: &(impl Debug + ?Sized), expected: String) {
    place.error(FoundValue::Value(format!("{name:?}")), expected);
}

/// The name of each table, `None` for one without. Each has to have one that no other has.
pub(super) fn read_names(readers: &[TableReader<'_>]) -> Vec<Option<String>> {
    let mut names = Vec::new();
    for reader in readers {
        let name = reader.required("name").map(|Name(name)| name);
        if name.is_some() && names.contains(&name) {
            reader.error("name", "a name that no other one has");
        }
        names.push(name);
    }
    names
}
