//! `[log]`: which events have a line, the form of the lines, and the redacted fields. `log = "off"` is short for a table with
//! that level.

use super::place::KeyLocation;
use super::read::Flags;
use super::reader::TableReader;
use super::value::ConfigValue;

/// The settings of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// The form of its lines.
    pub format: LogFormat,
    /// Which events have a line.
    pub level: LogLevel,
    /// Fields that the lines leave out.
    pub redact: Redaction,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Lines of `key=value`, for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Which events have a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Every session, every HTTP request, and events of the relay.
    #[default]
    Sessions,
    /// Failed sessions and requests, and events of the relay.
    Problems,
    /// No lines at all.
    Off,
}

/// Fields that the lines of sessions and requests leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redaction {
    /// The address of the client, and its user name.
    pub client: bool,
    /// The target, the address that was dialled, URLs, and the network of a changed path.
    pub target: bool,
}

/// Reads `log`; the flags beat the file.
pub(super) fn read(file: &TableReader<'_>, command: &KeyLocation<'_>, flags: &Flags) -> LogConfig {
    let mut log = if file.is_string("log") {
        LogConfig { level: file.optional_or("log", LogLevel::default()), ..LogConfig::default() }
    } else {
        let table = file.table("log");
        let redacted: Vec<RedactedField> = table.list("redact");
        let has = |field| redacted.contains(&field);
        let redact = Redaction { client: has(RedactedField::Client), target: has(RedactedField::Target) };
        let log = LogConfig {
            format: table.optional_or("format", LogFormat::default()),
            level: table.optional_or("level", LogLevel::default()),
            redact,
        };
        table.finish();
        log
    };
    let (format, level) = (flags.log.as_deref(), flags.log_level.as_deref());
    log.format = format.and_then(|text| command.child("--log", None).read_text(text)).unwrap_or(log.format);
    log.level = level.and_then(|text| command.child("--log-level", None).read_text(text)).unwrap_or(log.level);
    log
}

impl ConfigValue for LogFormat {
    const EXPECTED: &'static str = r#""text" or "json""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Self::EXPECTED),
        }
    }
}

impl ConfigValue for LogLevel {
    const EXPECTED: &'static str = r#""sessions", "problems" or "off""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "sessions" => Ok(Self::Sessions),
            "problems" => Ok(Self::Problems),
            "off" => Ok(Self::Off),
            _ => Err(Self::EXPECTED),
        }
    }
}

/// An item of `redact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedactedField {
    Client,
    Target,
}

impl ConfigValue for RedactedField {
    const EXPECTED: &'static str = r#""client" or "target""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "client" => Ok(Self::Client),
            "target" => Ok(Self::Target),
            _ => Err(Self::EXPECTED),
        }
    }
}
