//! Published figures that can be placed in a chart.

use crate::experiment::results::ExpectationOutcome;
use crate::report::view::{Levels, ReportView};

/// A published figure.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// The treatment it is about.
    pub treatment: String,
    /// Where it was measured.
    pub levels: Levels,
    /// The figure.
    pub value: f64,
    /// Whether it is a ratio to the first treatment.
    pub is_ratio: bool,
    /// Who published it.
    pub source: String,
}

/// The published figures of all expectations that begin with a treatment and its levels, as in `squid, 25-25: at least
/// 1.74 x direct`, and whose figure is in the unit of the metric or a ratio. Any other has no place in a chart.
pub fn published_values(view: &ReportView) -> Vec<PublishedValue> {
    view.results.outcomes.iter().filter_map(|outcome| published_value_of(view, outcome)).collect()
}

fn published_value_of(view: &ReportView, outcome: &ExpectationOutcome) -> Option<PublishedValue> {
    let (value, ratio) = parse_value(view, outcome.published.as_deref()?)?;
    let (subject, _) = outcome.expected.split_once(": ")?;
    let mut words = subject.split(", ");
    let treatment = words.next().filter(|name| view.treatments.iter().any(|other| other == name))?.to_owned();
    let words: Vec<&str> = words.collect();
    let mut levels = Levels::new();
    for (factor, all) in &view.results.manifest.factors {
        let mut named = all.iter().filter(|level| words.contains(&level.as_str()));
        let only = if all.len() == 1 { all.first() } else { None };
        levels.insert(factor.clone(), named.next().or(only)?.clone());
    }
    Some(PublishedValue { treatment, levels, value, is_ratio: ratio, source: outcome.source.clone() })
}

/// A number, and whether what follows it makes it a ratio.
fn parse_value(view: &ReportView, text: &str) -> Option<(f64, bool)> {
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let baseline = view.baseline();
    let ratio = [format!("x {baseline}"), format!("× {baseline}"), "x".to_owned(), "×".to_owned()];
    match unit {
        _ if ratio.iter().any(|word| word == unit) => Some((value, true)),
        _ if !unit.is_empty() && unit == view.unit() => Some((value, false)),
        _ => None,
    }
}
