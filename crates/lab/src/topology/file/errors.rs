//! Errors in a lab file, each with its key, its value and the expected value.

use std::fmt;

use crate::topology::file::words;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// All errors in a lab file. `Display` prints one line per error.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LabFileErrors(Vec<LabFileError>);

/// An error in a lab file.
#[derive(Debug, Clone, PartialEq)]
pub struct LabFileError {
    /// Path of the key; empty for the whole file.
    pub key: String,
    /// Value of the key in the file, if present.
    pub value: Option<Value>,
    /// Description of the problem.
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

/// Name of a key, and description of its expected value.
pub type KeySpec = (&'static str, &'static str);

impl LabFileErrors {
    /// Returns the errors in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &LabFileError> {
        self.0.iter()
    }

    /// Returns the number of errors.
    #[must_use]
    pub const fn error_count(&self) -> usize {
        self.0.len()
    }

    /// Reports a problem with the value of a key.
    pub fn push(&mut self, key: impl Into<String>, value: &Value, problem: impl Into<String>) {
        self.0.push(LabFileError { key: key.into(), value: Some(value.clone()), problem: problem.into() });
    }

    /// Reports a problem without a value to show.
    pub fn push_at_key(&mut self, key: impl Into<String>, problem: impl Into<String>) {
        self.0.push(LabFileError { key: key.into(), value: None, problem: problem.into() });
    }

    /// Adds those of `errors` for which `is_included` returns true.
    pub(super) fn extend_filtered(&mut self, errors: Self, is_included: impl Fn(&LabFileError) -> bool) {
        self.0.extend(errors.0.into_iter().filter(is_included));
    }

    /// Returns `value` if there are no errors.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Reads the value of a key, or reports the expected value.
    pub(super) fn read_value<T: DeserializeOwned>(&mut self, key: &str, value: &Value, expected: &str) -> Option<T> {
        let read = value.clone().try_into().ok();
        if read.is_none() {
            self.push(key, value, format!("expected {expected}"));
        }
        read
    }

    /// Reads a table key by key, so that each wrong key is a separate error. Returns `None` if there is any.
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

    /// Reports an unknown key, with the known keys.
    pub(super) fn push_unknown_key(&mut self, key: impl Into<String>, known: &[&str]) {
        self.push_at_key(key, format!("is not a key; expected one of {}", known.join(", ")));
    }

    /// Returns the tables inside the value of key `at`, by name.
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

/// Describes the error of a value; for a table, also the error inside it.
fn explain_error(value: &Value, error: &toml::de::Error, expected: &str) -> String {
    match value {
        Value::Table(_) => format!("{}; expected {expected}", words::plain_message(error.message())),
        _ => format!("expected {expected}"),
    }
}
