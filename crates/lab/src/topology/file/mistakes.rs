//! What is wrong with a lab file: every mistake, with its key, what was written, and what was expected.

use std::fmt;

use crate::topology::file::words;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Everything that is wrong with a lab file, a line each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LabFileErrors(Vec<LabFileError>);

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct LabFileError {
    /// Which key, as a path; empty if it is about the whole.
    pub key: String,
    /// What was written there.
    pub value: Option<Value>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for LabFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, self.key.as_str()) {
            (Some(value), key) => write!(f, "{key} = {value}: {}", self.problem),
            (None, "") => f.write_str(&self.problem),
            (None, key) => write!(f, "{key}: {}", self.problem),
        }
    }
}

impl fmt::Display for LabFileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(LabFileError::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for LabFileErrors {}

/// A key and what is expected there.
pub type KeySpec = (&'static str, &'static str);

impl LabFileErrors {
    /// One by one, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &LabFileError> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub const fn error_count(&self) -> usize {
        self.0.len()
    }

    /// Notes what is wrong with the value of a key.
    pub fn push(&mut self, key: impl Into<String>, value: &Value, problem: impl Into<String>) {
        self.0.push(LabFileError { key: key.into(), value: Some(value.clone()), problem: problem.into() });
    }

    /// Notes what is wrong where there is no value to show.
    pub fn push_at_key(&mut self, key: impl Into<String>, problem: impl Into<String>) {
        self.0.push(LabFileError { key: key.into(), value: None, problem: problem.into() });
    }

    /// Takes over those of others that `wanted` says.
    pub(super) fn extend_filtered(&mut self, others: Self, wanted: impl Fn(&LabFileError) -> bool) {
        self.0.extend(others.0.into_iter().filter(wanted));
    }

    /// `value`, if none of these is a mistake.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Reads the value of a key, or notes what was expected.
    pub(super) fn read_value<T: DeserializeOwned>(&mut self, key: &str, value: &Value, expected: &str) -> Option<T> {
        let read = value.clone().try_into().ok();
        if read.is_none() {
            self.push(key, value, format!("expected {expected}"));
        }
        read
    }

    /// Reads a table key by key, so that each wrong key is a mistake of its own; `None` if any is.
    pub(super) fn read_table<T: DeserializeOwned>(&mut self, at: &str, table: &Table, keys: &[KeySpec]) -> Option<T> {
        let before = self.error_count();
        for (key, value) in table {
            let path = format!("{at}.{key}");
            match keys.iter().find(|(known, _)| known == key) {
                None => self.push_unknown_key(path, &keys.iter().map(|(known, _)| *known).collect::<Vec<_>>()),
                Some((_, expected)) => {
                    let alone = Table::from_iter([(key.clone(), value.clone())]);
                    if let Err(error) = alone.try_into::<T>() {
                        self.push(path, value, explain_error(value, &error, expected));
                    }
                }
            }
        }
        if self.error_count() == before { table.clone().try_into().ok() } else { None }
    }

    /// Notes a key that does not exist, and those that do.
    pub(super) fn push_unknown_key(&mut self, key: impl Into<String>, known: &[&str]) {
        self.push_at_key(key, format!("is not a key; expected one of {}", known.join(", ")));
    }

    /// The tables in a table of tables, by name.
    pub(super) fn read_tables(&mut self, at: &str, value: Option<Value>) -> Vec<(String, Table)> {
        let named = match value {
            None => return Vec::new(),
            Some(Value::Table(named)) => named,
            Some(other) => {
                self.push(at, &other, format!("expected tables like [{at}.NAME]"));
                return Vec::new();
            }
        };
        let mut tables = Vec::new();
        for (name, value) in named {
            match value {
                Value::Table(table) => tables.push((name, table)),
                other => self.push(format!("{at}.{name}"), &other, "expected a table"),
            }
        }
        tables
    }
}

/// Of a table also what is wrong inside.
fn explain_error(value: &Value, error: &toml::de::Error, expected: &str) -> String {
    match value {
        Value::Table(_) => format!("{}; expected {expected}", words::plain_message(error.message())),
        _ => format!("expected {expected}"),
    }
}
