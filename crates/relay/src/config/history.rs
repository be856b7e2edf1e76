//! `[history]`: the database of hourly measurements, and their retention.

use std::path::PathBuf;
use std::time::Duration;

use super::key;
use super::reader::TableReader;
use super::value::ConfigValue;

/// The database of hourly measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Path of an SQLite database.
    pub file: PathBuf,
    /// Time for which entries are kept.
    pub retention: Duration,
}

const DAY: u64 = 24 * 60 * 60;

/// Reads `[history]`; `None` without a database.
pub(super) fn read_history(table: TableReader<'_>) -> Option<HistoryConfig> {
    let file: Option<PathBuf> = table.optional("file");
    let Days(days) = table.optional_or("keep", Days(90));
    if file.is_none() && table.has("keep") {
        table.error(
            "file",
            "the path of a database, which the relay creates if absent: without file, keep has no effect",
        );
    }
    if let Some(file) = &file {
        key::warn_if_world_readable(&table, "file", file);
    }
    table.finish();
    file.map(|file| HistoryConfig { file, retention: Duration::from_secs(days * DAY) })
}

/// A number of days.
struct Days(u64);

impl ConfigValue for Days {
    const EXPECTED: &'static str = r#"a number of days from "7d" to "3650d", like "90d""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
        days.filter(|days| (7..=3650).contains(days)).map(Self).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        let days = text.strip_suffix("days").or_else(|| text.strip_suffix("day"))?;
        Some(format!("{}d", days.trim_end()))
    }
}
