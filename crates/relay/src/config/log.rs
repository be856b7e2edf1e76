//! `[log]`: which events have a line, the form of the lines, and the redacted fields. `log = "off"` is short for a table with
//! that level.

use super::place::Place;
use super::read::Flags;
use super::reader::Reader;
use super::value::Value;

/// The settings of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// The form of its lines.
    pub format: LogFormat,
    /// Which events have a line.
    pub level: LogLevel,
    /// Fields that the lines leave out.
    pub redact: Redact,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// `key=value`, for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Which events have a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// All: each session and each HTTP request, and what happens to the relay.
    #[default]
    Sessions,
    /// Sessions and requests that failed, and what happens to the relay.
    Problems,
    /// None.
    Off,
}

/// Fields that the lines of sessions and requests leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redact {
    /// The address of the client, and its user name.
    pub client: bool,
    /// The target, the address that was dialled, URLs, and the network of a changed path.
    pub target: bool,
}

/// Reads `log`; the flags beat the file.
pub(super) fn read(file: &Reader<'_>, command: &Place<'_>, flags: &Flags) -> LogConfig {
    let mut log = if file.is_text("log") {
        LogConfig { level: file.or("log", LogLevel::default()), ..LogConfig::default() }
    } else {
        let table = file.table("log");
        let redacted: Vec<Field> = table.list("redact");
        let has = |field| redacted.contains(&field);
        let redact = Redact { client: has(Field::Client), target: has(Field::Target) };
        let log = LogConfig {
            format: table.or("format", LogFormat::default()),
            level: table.or("level", LogLevel::default()),
            redact,
        };
        table.finish();
        log
    };
    let (format, level) = (flags.log.as_deref(), flags.log_level.as_deref());
    log.format = format.and_then(|text| command.below("--log", None).read_text(text)).unwrap_or(log.format);
    log.level = level.and_then(|text| command.below("--log-level", None).read_text(text)).unwrap_or(log.level);
    log
}

impl Value for LogFormat {
    const EXPECTED: &'static str = r#""text" or "json""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Self::EXPECTED),
        }
    }
}

impl Value for LogLevel {
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
enum Field {
    Client,
    Target,
}

impl Value for Field {
    const EXPECTED: &'static str = r#""client" or "target""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "client" => Ok(Self::Client),
            "target" => Ok(Self::Target),
            _ => Err(Self::EXPECTED),
        }
    }
}
