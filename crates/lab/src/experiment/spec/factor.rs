//! The factors of an experiment, and their part in the quick size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::drawn::RandomLevels;
use super::treatment::Treatment;

/// `[[factor]]`: something that varies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The name of the factor.
    pub name: String,
    /// The levels of the factor.
    #[serde(default)]
    pub levels: Vec<FactorLevel>,
    /// Levels that chance draws, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<RandomLevels>,
}

impl Factor {
    /// Draws its levels, if chance is to.
    ///
    /// # Errors
    /// Everything that nothing can be drawn from, or there are neither levels nor draws, or both.
    pub fn draw_levels(&mut self) -> Result<(), Vec<String>> {
        if self.drawn.is_some() != self.levels.is_empty() {
            return Err(vec![format!("factor {}: expected either levels or drawn", self.name)]);
        }
        if let Some(drawn) = &self.drawn {
            self.levels = drawn.draw(&self.name)?;
        }
        Ok(())
    }

    /// Whether its level at a combination of levels takes part in the quick size there. If no level says anything about
    /// it, all do.
    #[must_use]
    pub fn is_quick_at(&self, levels: &BTreeMap<String, String>) -> bool {
        let current = self.levels.iter().find(|level| levels.get(&self.name) == Some(&level.name));
        !self.has_quick_rules() || current.is_none_or(|level| level.quick.includes(levels))
    }

    /// Whether a level takes part in the quick size anywhere.
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
    /// This level.
    One(String),
    /// The names of several levels, of which any matches.
    Any(Vec<String>),
}

impl LevelNames {
    /// The names as a list.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Any(names) => names,
        }
    }
}

/// Some combinations of levels: those at which each factor that is named has one of these levels.
pub type LevelFilter = BTreeMap<String, LevelNames>;

/// Whether a combination of levels is one of `these`.
#[must_use]
pub fn is_match(levels: &BTreeMap<String, String>, these: &LevelFilter) -> bool {
    these.iter().all(|(factor, names)| levels.get(factor).is_some_and(|level| names.as_slice().contains(level)))
}

/// The factors and levels that are named and that no factor has.
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
    /// The changes at these levels. Empty for a treatment without such tables; `None` where the treatment does not run.
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
    /// Whether it takes part in the quick size.
    #[serde(default)]
    pub quick: QuickRule,
}

/// Whether a level takes part in the quick size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "true, false, or levels of other factors, like { loss = [\"0.01\"] }")]
pub enum QuickRule {
    /// At every combination of the other factors, or at none.
    Fixed(bool),
    /// Where other factors are at one of these levels.
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
