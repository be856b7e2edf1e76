//! Tables of which other tables speak by name.

use std::fmt::Debug;

use super::mistake::{Found, one_of};
use super::place::Place;
use super::reader::Reader;
use super::value::Name;

/// What has a name. What has a mistake in it keeps its name, so that nobody who speaks of it is told of another one.
pub(super) struct Named<T> {
    /// What a mistake calls one of them.
    what: &'static str,
    all: Vec<(String, Option<T>)>,
    /// Makes one for a name that is not known yet.
    stand_in: Option<fn(&str) -> T>,
}

impl<T: Clone> Named<T> {
    /// None so far.
    pub fn new(what: &'static str) -> Self {
        Self { what, all: Vec::new(), stand_in: None }
    }

    /// From now on, whoever chooses a name that is none gets what this makes of it.
    pub fn stand_in(&mut self, make: fn(&str) -> T) {
        self.stand_in = Some(make);
    }

    /// Adds one; `value` is `None` for one with mistakes.
    pub fn add(&mut self, name: &str, value: Option<T>) {
        self.all.push((name.to_owned(), value));
    }

    /// These values, and a value made from each of `others` whose name no value has.
    pub fn and<U>(&self, what: &'static str, others: &Named<U>, make: impl Fn(&U) -> T) -> Self {
        let free = others.all.iter().filter(|(name, _)| self.get(name).is_none());
        let made = free.map(|(name, value)| (name.clone(), value.as_ref().map(&make)));
        Self { what, all: self.all.iter().cloned().chain(made).collect(), stand_in: self.stand_in }
    }

    /// Those without mistakes, in their order.
    pub fn good(&self) -> impl Iterator<Item = &T> {
        self.all.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// The one with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Option<T>> {
        self.all.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// What a mistake says instead of `name`.
    pub fn expected(&self, name: &str) -> String {
        one_of(self.what, name, self.all.iter().map(|(known, _)| known.as_str()))
    }

    /// Reads a list of names: at least one, and each once.
    pub fn choose(&self, reader: &Reader<'_>, key: &'static str) -> Vec<T> {
        let mut seen = Vec::new();
        let mut chosen = Vec::new();
        for (place, Name(name)) in reader.some(key) {
            let made = self.stand_in.map(|make| Some(make(&name)));
            let value = self.get(&name).or(made.as_ref());
            if value.is_none() {
                note(&place, &name, self.expected(&name));
            }
            if seen.contains(&name) {
                let what = self.what.split(" or ").next().unwrap_or_default();
                note(&place, &name, format!("each {} once", what.trim_start_matches("a ")));
            }
            chosen.extend(value.cloned().flatten());
            seen.push(name);
        }
        chosen
    }
}

fn note(place: &Place<'_>, name: &(impl Debug + ?Sized), expected: String) {
    place.note(Found::Value(format!("{name:?}")), expected);
}

/// The name of each table, `None` for one without. Each has to have one that no other has.
pub(super) fn names(readers: &[Reader<'_>]) -> Vec<Option<String>> {
    let mut names = Vec::new();
    for reader in readers {
        let name = reader.required("name").map(|Name(name)| name);
        if name.is_some() && names.contains(&name) {
            reader.mistake("name", "a name that no other one has");
        }
        names.push(name);
    }
    names
}
