//! The factor along an axis of a chart, and the positions of its levels.

use ekiden_proto::units::{Bytes, Rate, Span};

use crate::report::plots::levels_without;
use crate::report::view::{Levels, ReportView};

/// A factor along an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisFactor {
    /// Name of the factor.
    pub factor: String,
    /// Levels of the factor, each with its position on the axis, from 0 to 1.
    pub levels: Vec<(String, f64)>,
    /// Whether the levels have an order, so that a line may join them.
    pub ordered: bool,
}

/// Free space at both ends of the axis, as a share of its length.
const MARGIN: f64 = 0.07;
/// Minimum distance of levels, as a share of the axis. Closer levels would overlap.
const MIN_DISTANCE: f64 = 0.07;

/// Returns the factor for the x axis, among those with more than one level: preferably one with ordered levels, then
/// the one with most levels, then one whose levels are amounts, then the first. Returns `None` if no factor has more
/// than one level.
#[must_use]
pub fn choose_axis_factor(view: &ReportView) -> Option<AxisFactor> {
    let factors = view.results.manifest.factors.iter().filter(|(_, levels)| levels.len() > 1);
    let rank = |levels: &[String]| (is_ordered(levels), levels.len(), parse_amounts(levels).is_some());
    // `max_by_key` takes the last of equals; `rev` makes that the first.
    let (factor, levels) = factors.rev().max_by_key(|(_, levels)| rank(levels))?;
    let places = parse_amounts(levels)
        .and_then(|amounts| axis_positions(&amounts))
        .unwrap_or_else(|| even_positions(levels.len()));
    let ordered = is_ordered(levels);
    Some(AxisFactor { factor: factor.clone(), levels: levels.iter().cloned().zip(places).collect(), ordered })
}

/// Returns the combinations of the levels of all factors other than that of the axis.
#[must_use]
pub fn panels(view: &ReportView, axis: &AxisFactor) -> Vec<Levels> {
    levels_without(view, std::slice::from_ref(&axis.factor))
}

/// Returns the levels of a panel, plus one level of its axis.
#[must_use]
pub fn at_level(panel: &Levels, axis: &AxisFactor, level: &str) -> Levels {
    let mut levels = panel.clone();
    levels.insert(axis.factor.clone(), level.to_owned());
    levels
}

/// Returns the levels parsed as amounts, if all of them are amounts of the same kind.
fn parse_amounts(levels: &[String]) -> Option<Vec<f64>> {
    let kinds: [fn(&str) -> Option<f64>; 5] = [
        |text| text.parse().ok(),
        |text| text.strip_suffix('%')?.parse().ok(),
        |text| text.parse::<Span>().ok().map(|span| span.0.as_secs_f64()),
        |text| text.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64),
        |text| text.parse::<Rate>().ok().map(|rate| rate.bits_per_second() as f64),
    ];
    let dense: Vec<String> = levels.iter().map(|level| level.replace(' ', "")).collect();
    kinds.iter().find_map(|kind| dense.iter().map(|level| kind(level)).collect())
}

/// Returns whether levels have an order: each contains a digit, as in `10-40`.
fn is_ordered(levels: &[String]) -> bool {
    levels.iter().all(|level| level.contains(|letter: char| letter.is_ascii_digit()))
}

/// Returns linear or logarithmic positions, whichever have the larger minimum distance. Returns `None` if both
/// distances are below `MIN_DISTANCE`.
fn axis_positions(amounts: &[f64]) -> Option<Vec<f64>> {
    let logarithms: Vec<f64> = amounts.iter().map(|amount| amount.ln()).collect();
    let gap = |places: &Vec<f64>| {
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min)
    };
    let candidates = [proportional(&logarithms), proportional(amounts)];
    let useful = candidates.into_iter().filter(|places| places.iter().all(|place| place.is_finite()));
    useful.filter(|places| gap(places) >= MIN_DISTANCE).max_by(|a, b| gap(a).total_cmp(&gap(b)))
}

fn proportional(values: &[f64]) -> Vec<f64> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().map(|value| with_margin((value - low) / (high - low))).collect()
}

fn even_positions(count: usize) -> Vec<f64> {
    (0..count).map(|place| with_margin(place as f64 / (count.max(2) - 1) as f64)).collect()
}

fn with_margin(place: f64) -> f64 {
    MARGIN + place * (1.0 - 2.0 * MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn amounts_need_a_common_dimension() {
        assert_eq!(parse_amounts(&levels("1 2.5 4")), Some(vec![1.0, 2.5, 4.0]));
        assert_eq!(parse_amounts(&levels("10ms 1s")), Some(vec![0.01, 1.0]));
        assert_eq!(parse_amounts(&levels("0.1% 2%")), Some(vec![0.1, 2.0]));
        assert_eq!(parse_amounts(&levels("1MB 10ms")), None);
        assert_eq!(parse_amounts(&levels("25-25 10-40")), None);
    }

    #[test]
    fn axis_uses_the_scale_that_separates_the_levels() {
        let even = axis_positions(&[1.0, 2.0, 3.0]).unwrap();
        assert!((even[1] - 0.5).abs() < 1e-9, "in proportion: {even:?}");
        let log = axis_positions(&[1.0, 10.0, 100.0]).unwrap();
        assert!((log[1] - 0.5).abs() < 1e-9, "by logarithm: {log:?}");
        assert_eq!(
            axis_positions(&[0.0, 0.001, 100.0]),
            None,
            "neither scale: linear levels are too close, and zero has no logarithm"
        );
    }
}
