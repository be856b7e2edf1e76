//! Which charts a report has. Every title names the condition that the chart shows.

use crate::experiment::results::Cell;
use crate::report::chart::Chart;
use crate::report::view::{Levels, View};

mod first_byte;
mod groups;
mod lateness;
mod levels;
mod map;
mod metric;
mod paths;
mod published;
mod sequence;
mod time;

/// Charts that belong together.
#[derive(Debug)]
pub struct Figure {
    /// What they are about.
    pub heading: String,
    /// How to read them.
    pub note: String,
    /// Style and name of what is in all of them; empty if their axes say it.
    pub legend: Vec<(usize, String)>,
    /// The charts; never empty.
    pub charts: Vec<Chart>,
}

/// More charts of a kind than this, and nobody looks at any.
const MOST: usize = 6;

/// Charts of what came of the experiment.
#[must_use]
pub fn results(view: &View) -> Vec<Figure> {
    let metrics = [metric(view), paths::figure(view), groups::rates(view), groups::over_time(view)];
    let all = metrics.into_iter().chain([time::figure(view), first_byte::figure(view)]);
    all.flatten().chain(sequence::figures(view)).filter(|figure| !figure.charts.is_empty()).collect()
}

/// Charts of the metric alone.
#[must_use]
pub fn metric(view: &View) -> Option<Figure> {
    map::figure(view).or_else(|| metric::figure(view)).filter(|figure| !figure.charts.is_empty())
}

/// Charts of how well the emulator did its work.
#[must_use]
pub fn emulator(view: &View) -> Option<Figure> {
    lateness::figure(view).filter(|figure| !figure.charts.is_empty())
}

/// Names of all treatments with their styles.
fn legend(view: &View) -> Vec<(usize, String)> {
    view.treatments.iter().cloned().enumerate().collect()
}

/// The combinations of the levels of all other factors.
fn levels_without(view: &View, factors: &[String]) -> Vec<Levels> {
    let mut panels: Vec<Levels> = Vec::new();
    for levels in &view.combinations {
        let mut rest = levels.clone();
        rest.retain(|factor, _| !factors.contains(factor));
        if !panels.contains(&rest) {
            panels.push(rest);
        }
    }
    panels
}

/// The levels, of some factors or of all, at which treatments differ most, in the order of the manifest, and a note if some are
/// left out.
fn most_different<'a>(view: &'a View, combinations: &[&'a Levels]) -> (Vec<&'a Levels>, String) {
    if combinations.len() <= MOST {
        return (combinations.to_vec(), String::new());
    }
    let mut ranked: Vec<&Levels> = combinations.to_vec();
    ranked.sort_by(|a, b| difference(view, b).total_cmp(&difference(view, a)));
    ranked.truncate(MOST);
    let kept = combinations.iter().copied().filter(|levels| ranked.contains(levels)).collect();
    let of = combinations.len();
    (kept, format!(" Of {of} conditions, these are the {MOST} in which treatments differ most."))
}

/// The largest ratio to the first treatment, up or down, as a logarithm, wherever these levels are.
fn difference(view: &View, levels: &Levels) -> f64 {
    let within = |cell: &&Cell| levels.iter().all(|(factor, level)| cell.levels.get(factor) == Some(level));
    let ratios = view.results.cells.iter().filter(within).filter_map(|cell| cell.ratio);
    ratios.map(|ratio| ratio.median.ln().abs()).filter(|size| size.is_finite()).fold(0.0, f64::max)
}
