//! Signed text, line by line: `name: value`, in one order, with nothing left out and nothing between.

use std::str::FromStr;

use super::EntryError;

/// The lines of a text that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineReader<'a>(pub &'a str);

impl<'a> LineReader<'a> {
    /// Takes the next line, which has to be `first`.
    pub fn expect_heading(&mut self, first: &'static str) -> Result<(), EntryError> {
        if self.next_line() == Some(first) { Ok(()) } else { Err(EntryError::Malformed(first)) }
    }

    /// Takes the next line, `name: value`.
    pub fn read_value<T: FromStr>(&mut self, name: &'static str) -> Result<T, EntryError> {
        self.read_optional(name)?.ok_or(EntryError::Malformed(name))
    }

    /// Takes the next line if it is `name: value`.
    pub fn read_optional<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, EntryError> {
        let before = *self;
        let value = self.next_line().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
        match value {
            Some(value) => value.parse().map(Some).map_err(|_| EntryError::Malformed(name)),
            None => {
                *self = before;
                Ok(None)
            }
        }
    }

    fn next_line(&mut self) -> Option<&'a str> {
        let (line, rest) = self.0.split_once('\n')?;
        self.0 = rest;
        Some(line)
    }
}
