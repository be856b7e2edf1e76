//! The factors of an experiment, and the rules that select levels for the quick size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::drawn::RandomLevels;
use super::treatment::Treatment;

/// `[[factor]]`: an independent variable of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The name of the factor.
    pub name: String,
    /// The levels of the factor.
    #[serde(default)]
    pub levels: Vec<FactorLevel>,
    /// Random levels, in place of `levels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<RandomLevels>,
}

impl Factor {
    /// Draws the levels of a factor with `drawn`.
    ///
    /// # Errors
    /// All settings that no value can be drawn from, or the factor has neither `levels` nor `drawn`, or both.
    pub fn draw_levels(&mut self) -> Result<(), Vec<String>> {
        if self.drawn.is_some() != self.levels.is_empty() {
            return Err(vec![format!("factor {}: expected either levels or drawn", self.name)]);
        }
        if let Some(drawn) = &self.drawn {
            self.levels = drawn.draw(&self.name)?;
        }
        Ok(())
    }

    /// Whether the level of this factor in a combination of levels is part of the quick size. If no level of the factor
    /// has a `quick` rule, all levels are.
    #[must_use]
    pub fn is_quick_at(&self, levels: &BTreeMap<String, String>) -> bool {
        let current = self.levels.iter().find(|level| levels.get(&self.name) == Some(&level.name));
        !self.has_quick_rules() || current.is_none_or(|level| level.quick.includes(levels))
    }

    /// Whether a level is part of the quick size in any combination of levels.
    #[must_use]
    pub fn is_quick(&self, level: &FactorLevel) -> bool {
        level.quick != QuickRule::Fixed(false) || !self.has_quick_rules()
    }

    fn has_quick_rules(&self) -> bool {
        self.levels.iter().any(|level| level.quick != QuickRule::Fixed(false))
    }
}

/// Levels of a factor: one name, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a level, or a list of names")]
pub enum LevelNames {
    /// The name of one level.
    One(String),
    /// The names of several levels, of which any matches.
    Any(Vec<String>),
}

impl LevelNames {
    /// Returns the names as a list.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Any(names) => names,
        }
    }
}

/// A set of combinations of levels: those in which each named factor has one of the given levels. Other factors may
/// have any level.
pub type LevelFilter = BTreeMap<String, LevelNames>;

/// Whether a combination of levels is in the set `these`.
#[must_use]
pub fn is_match(levels: &BTreeMap<String, String>, these: &LevelFilter) -> bool {
    these.iter().all(|(factor, names)| levels.get(factor).is_some_and(|level| names.as_slice().contains(level)))
}

/// Returns an error text for each level in `these` that does not exist.
pub fn unknown_levels(factors: &[Factor], these: &LevelFilter) -> Vec<String> {
    let pairs = these.iter().flat_map(|(factor, names)| names.as_slice().iter().map(move |level| (factor, level)));
    let has = |factor: &String, level: &String| {
        factors.iter().any(|other| other.name == *factor && other.levels.iter().any(|other| other.name == *level))
    };
    let unknown = pairs.filter(|(factor, level)| !has(factor, level));
    unknown.map(|(factor, level)| format!("there is no level {level:?} of a factor {factor:?}")).collect()
}

/// `[[treatment.NAME.at]]`: changes at some combinations of levels. A treatment with such tables runs there only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreatmentOverride {
    /// The combinations of levels that the changes apply to.
    #[serde(rename = "where")]
    pub levels: LevelFilter,
    /// Changes to the rest of the file.
    #[serde(default)]
    pub set: toml::Table,
}

impl Treatment {
    /// Returns the changes at a combination of levels. `None` if the treatment has no changes there; a treatment with
    /// `at` tables then does not run there.
    #[must_use]
    pub fn override_at(&self, levels: &BTreeMap<String, String>) -> Option<&toml::Table> {
        self.at.iter().find(|at| is_match(levels, &at.levels)).map(|at| &at.set)
    }
}

/// One value of a factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorLevel {
    /// The name of the level.
    pub name: String,
    /// Changes to the rest of the file: dotted keys and their values.
    #[serde(default)]
    pub set: toml::Table,
    /// Rule for the quick size.
    #[serde(default)]
    pub quick: QuickRule,
}

/// Rule that decides whether a level is part of the quick size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "true, false, or levels of other factors, like { loss = [\"0.01\"] }")]
pub enum QuickRule {
    /// With `true` in every combination with the other factors, with `false` in none.
    Fixed(bool),
    /// In combinations in which each named factor has one of the given levels.
    AtLevels(BTreeMap<String, Vec<String>>),
}

impl Default for QuickRule {
    fn default() -> Self {
        Self::Fixed(false)
    }
}

impl QuickRule {
    fn includes(&self, levels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Fixed(quick) => *quick,
            Self::AtLevels(others) => {
                others.iter().all(|(factor, meant)| levels.get(factor).is_some_and(|level| meant.contains(level)))
            }
        }
    }
}
