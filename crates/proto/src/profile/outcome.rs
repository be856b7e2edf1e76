//! Outcomes of applying a profile to a socket.

use std::fmt;

use super::Setting;

/// The outcome of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// In force with the configured value.
    Applied,
    /// In force with the given other value.
    Clamped(String),
    /// Not in force, for the given reason.
    Unsupported(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied => f.write_str("applied"),
            Self::Clamped(value) => write!(f, "clamped({value})"),
            Self::Unsupported(why) => write!(f, "unsupported({why})"),
        }
    }
}

/// A setting and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedSetting {
    /// The setting that the profile asks for.
    pub setting: Setting,
    /// The result of setting the socket option.
    pub outcome: Outcome,
}

impl fmt::Display for AppliedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.outcome)
    }
}

serialize_as_text!(AppliedSetting);
