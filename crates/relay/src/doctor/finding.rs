//! What doctor says of one thing: what is there, what comes of it, and the command that mends it.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// The machine does not show it to us.
    Unknown,
    /// Works, and could be faster or hold more.
    Could,
    /// Something will not work, or was left behind.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check it is of; does not change between versions, unlike the words below.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was looked at.
    pub subject: String,
    /// What is there.
    pub found: String,
    /// What comes of that, with figures; empty when all is well.
    pub effect: String,
    /// A command for a shell that mends it; empty where there is none.
    pub fix: String,
}

impl Finding {
    /// Something that is as it should be.
    #[must_use]
    pub fn new(check: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        Self { check, verdict: Verdict::Good, subject, found, effect: String::new(), fix: String::new() }
    }

    /// Something that is not shown here: a setting of the kernel under this name of sysctl(8).
    #[must_use]
    pub fn unknown(check: &'static str, subject: &str, setting: &str) -> Self {
        let finding = Self::new(check, subject, format!("{setting} is not shown here"));
        let effect = "not judged: containers and other network namespaces hide it; ask on the host itself";
        Self { verdict: Verdict::Unknown, effect: effect.to_owned(), ..finding }
    }

    /// That it works, and what would be better.
    #[must_use]
    pub fn with_hint(self, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Could, effect: effect.into(), fix: fix.into(), ..self }
    }

    /// The same, in this case only.
    #[must_use]
    pub fn with_hint_if(self, when: bool, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        if when { self.with_hint(effect, fix) } else { self }
    }

    /// That something does not work.
    #[must_use]
    pub fn with_error(self, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, ..self.with_hint(effect, fix) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Good => "ok  ",
            Verdict::Unknown => "?   ",
            Verdict::Could => "hint",
            Verdict::Bad => "BAD ",
        };
        write!(f, "{mark}  {:<28} {}", self.subject, self.found)?;
        if !self.effect.is_empty() {
            write!(f, "\n      {}", self.effect)?;
        }
        if self.fix.is_empty() { Ok(()) } else { write!(f, "\n      -> {}", self.fix) }
    }
}
