//! The location of a value: text, line and key. Mistakes are reported with it.

use std::ops::Range;

use toml::de::{DeInteger, DeValue};

use super::error::{ConfigError, Diagnostics, FoundValue};
use super::files::SourceFile;
use super::value::{ConfigValue, TomlType};

/// A text with configuration: a file, or the command line.
#[derive(Clone, Copy)]
pub(super) struct SourceText<'a> {
    /// Name of the text in mistakes.
    pub name: &'a str,
    /// The text, for counting lines; `None` for the command line, where all values are strings.
    pub text: Option<&'a str>,
    /// Whether the text is a file that every user of this host can read.
    pub is_world_readable: bool,
    /// All files of the configuration, to which the spans of values refer; empty for the command line.
    pub files: &'a [SourceFile],
    /// Collects the mistakes in the text.
    pub diagnostics: &'a Diagnostics,
}

impl<'a> SourceText<'a> {
    /// Creates the source for `file`, which is one of `files`.
    pub fn new(file: &'a SourceFile, files: &'a [SourceFile], diagnostics: &'a Diagnostics) -> Self {
        Self { name: &file.name, text: Some(&file.text), is_world_readable: file.is_world_readable, files, diagnostics }
    }

    /// Creates the source for the command line, where values have no line.
    pub fn command_line(name: &'a str, diagnostics: &'a Diagnostics) -> Self {
        Self { name, text: None, is_world_readable: false, files: &[], diagnostics }
    }

    /// Returns the file and the line of `span`; `None` if values have no lines.
    fn locate(&self, span: &Range<usize>) -> Option<(Self, usize)> {
        self.text?;
        let file = self.files.iter().rfind(|file| file.start <= span.start)?;
        let text_before = file.text.as_bytes().get(..span.start - file.start)?;
        let line = 1 + text_before.iter().filter(|b| **b == b'\n').count();
        Some((Self::new(file, self.files, self.diagnostics), line))
    }
}

/// The location of a value.
#[derive(Clone)]
pub(super) struct KeyLocation<'a> {
    /// The text that contains the value.
    pub source: SourceText<'a>,
    /// The path of the value's key; empty for the whole text.
    pub key: String,
    /// The line of the value, if it is known.
    pub line: Option<usize>,
}

impl<'a> KeyLocation<'a> {
    /// Returns the location of a whole text, without a line.
    pub fn whole_text(source: SourceText<'a>) -> Self {
        Self { source, key: String::new(), line: None }
    }

    /// Creates a mistake at this location.
    pub fn config_error(&self, found: FoundValue, expected: impl Into<String>) -> ConfigError {
        let (place, key) = (self.source.name.to_owned(), self.key.clone());
        ConfigError { source: place, line: self.line, key, found, expected: expected.into() }
    }

    /// Reports a mistake at this location.
    pub fn error(&self, found: FoundValue, expected: impl Into<String>) {
        self.source.diagnostics.add_error(self.config_error(found, expected));
    }

    /// Reports a warning at this location about a value that is valid, but not recommended.
    pub fn warn(&self, found: FoundValue, expected: impl Into<String>) {
        self.source.diagnostics.add_warning(self.config_error(found, expected));
    }

    /// Returns the location of `key` in the table at this location.
    pub fn child(&self, key: &str, span: Option<&Range<usize>>) -> Self {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { key, ..self.at_span(span) }
    }

    /// Returns the location of the item `index` (from 0) in the list at this location.
    pub fn child_item(&self, index: usize, span: Option<&Range<usize>>) -> Self {
        Self { key: format!("{}[{}]", self.key, index + 1), ..self.at_span(span) }
    }

    /// Returns this location with the line of `span`.
    pub fn at_span(&self, span: Option<&Range<usize>>) -> Self {
        match span.and_then(|span| self.source.locate(span)) {
            Some((source, line)) => Self { source, line: Some(line), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Formats the location as FILE:LINE.
    pub fn describe(&self) -> String {
        let name = self.source.name;
        self.line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"))
    }

    /// Reads the value `text` at this location; `None` after reporting a mistake.
    pub fn read_text<T: ConfigValue>(&self, text: &str) -> Option<T> {
        self.read(&DeValue::String(text.into()))
    }

    /// Reads `value` at this location; `None` after reporting a mistake.
    pub fn read<T: ConfigValue>(&self, value: &DeValue<'_>) -> Option<T> {
        let all_text = self.source.text.is_none();
        let fits = match value {
            DeValue::String(_) => all_text || T::TOML_TYPE == TomlType::Text,
            DeValue::Integer(_) => matches!(T::TOML_TYPE, TomlType::Number | TomlType::Decimal),
            DeValue::Float(_) => T::TOML_TYPE == TomlType::Decimal,
            DeValue::Boolean(_) => T::TOML_TYPE == TomlType::Flag,
            _ => false,
        };
        let accepts_any = T::TOML_TYPE == TomlType::Any && !matches!(value, DeValue::Float(_));
        let text = scalar_text(value);
        let read = text.as_deref().filter(|_| fits || accepts_any).map_or(Err(T::EXPECTED), T::read);
        let suggestion = || text.as_deref().and_then(T::suggestion).filter(|suggestion| T::read(suggestion).is_ok());
        let with_suggestion = |expected: &str| match suggestion() {
            Some(suggestion) => format!("{expected}: write {suggestion:?}"),
            None => expected.to_owned(),
        };
        read.map_err(|expected| self.error(T::DISCLOSURE.disclose(value), with_suggestion(expected))).ok()
    }
}

/// Returns the text of a scalar, without quotes.
fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => parse_integer(number).map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn parse_integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Formats a value for a mistake: one short line.
pub(super) fn display_value(value: &DeValue<'_>) -> String {
    const MAX_LENGTH: usize = 80;
    match value {
        DeValue::String(text) if text.chars().count() > MAX_LENGTH => {
            format!("{:?}...", text.chars().take(MAX_LENGTH).collect::<String>())
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}
