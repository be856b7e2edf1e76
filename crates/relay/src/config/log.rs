//! `[log]`: which events are logged, the format of the lines, and the redacted fields. `log = "off"` is short for a
//! table with that level.

use super::place::KeyLocation;
use super::read::Flags;
use super::reader::TableReader;
use super::value::ConfigValue;

/// The settings of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// The format of the lines.
    pub format: LogFormat,
    /// The events that have a line.
    pub level: LogLevel,
    /// Fields that are left out of the lines.
    pub redact: Redaction,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Lines of `key=value`, for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The events that have a line in the log.
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

/// Fields that are left out of the lines of sessions and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redaction {
    /// The address of the client, and its user name.
    pub client: bool,
    /// The target, the dialled address, URLs, and the network of a changed path.
    pub target: bool,
}

/// Reads `log`; the flags take precedence over the file.
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
