//! Signed text, line by line: `name: value`, in one order, with nothing left out and nothing between.

use std::str::FromStr;

use super::Refused;

/// The lines of a text that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a>(pub &'a str);

impl<'a> Lines<'a> {
    /// Takes the next line, which has to be `first`.
    pub fn heading(&mut self, first: &'static str) -> Result<(), Refused> {
        if self.line() == Some(first) { Ok(()) } else { Err(Refused::Garbled(first)) }
    }

    /// Takes the next line, `name: value`.
    pub fn value<T: FromStr>(&mut self, name: &'static str) -> Result<T, Refused> {
        self.optional(name)?.ok_or(Refused::Garbled(name))
    }

    /// Takes the next line if it is `name: value`.
    pub fn optional<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, Refused> {
        let before = *self;
        let value = self.line().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
        match value {
            Some(value) => value.parse().map(Some).map_err(|_| Refused::Garbled(name)),
            None => {
                *self = before;
                Ok(None)
            }
        }
    }

    fn line(&mut self) -> Option<&'a str> {
        let (line, rest) = self.0.split_once('\n')?;
        self.0 = rest;
        Some(line)
    }
}
