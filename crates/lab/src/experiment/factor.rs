//! What varies in an experiment, and what of it takes part in the quick size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `[[factor]]`: something that varies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// What it is called.
    pub name: String,
    /// What it can be.
    pub levels: Vec<Level>,
}

impl Factor {
    /// Whether its level at a combination of levels takes part in the quick size there. If no level says anything about
    /// it, all do.
    #[must_use]
    pub fn is_quick_at(&self, levels: &BTreeMap<String, String>) -> bool {
        let here = self.levels.iter().find(|level| levels.get(&self.name) == Some(&level.name));
        !self.says_what_is_quick() || here.is_none_or(|level| level.quick.holds_at(levels))
    }

    /// Whether a level takes part in the quick size anywhere.
    #[must_use]
    pub fn is_quick(&self, level: &Level) -> bool {
        level.quick != Quick::Is(false) || !self.says_what_is_quick()
    }

    fn says_what_is_quick(&self) -> bool {
        self.levels.iter().any(|level| level.quick != Quick::Is(false))
    }
}

/// One value of a factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// What it is called.
    pub name: String,
    /// What is different in the rest of the file: dotted keys and their values.
    #[serde(default)]
    pub set: toml::Table,
    /// Whether it takes part in the quick size.
    #[serde(default)]
    pub quick: Quick,
}

/// Whether a level takes part in the quick size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quick {
    /// Everywhere, or nowhere.
    Is(bool),
    /// Where other factors are at one of these levels.
    At(BTreeMap<String, Vec<String>>),
}

impl Default for Quick {
    fn default() -> Self {
        Self::Is(false)
    }
}

impl Quick {
    fn holds_at(&self, levels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Is(quick) => *quick,
            Self::At(others) => {
                others.iter().all(|(factor, meant)| levels.get(factor).is_some_and(|level| meant.contains(level)))
            }
        }
    }
}
