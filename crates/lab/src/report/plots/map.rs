//! Heat maps of the metric over two factors.

use crate::experiment::collect::metric::{RATIO, best_description};
use crate::experiment::collect::results::CellSummary;
use crate::report::chart::{Chart, HeatMap, HeatMapCell};
use crate::report::number::{format_significant, with_unit};
use crate::report::plots::metric::capitalized;
use crate::report::plots::{ChartGroup, levels_without};
use crate::report::view::{Levels, ReportView};

/// Returns one map for each treatment at each combination of the other factors. Returns `None` if the experiment
/// configures no map.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    let names = view.results.manifest.map.as_ref()?;
    let [across, up] = names.each_ref().map(|name| {
        let factors = view.results.manifest.factors.iter();
        factors.filter(|(factor, _)| factor == name).map(|(_, levels)| levels.clone()).next().unwrap_or_default()
    });
    let range =
        qualities(view).fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], good| [low.min(good), high.max(good)]);
    let mut charts = Vec::new();
    for panel in levels_without(view, names) {
        for treatment in &view.treatments {
            let fields = fields(view, names, [&across, &up], &panel, treatment, range);
            if !fields.is_empty() {
                let heat = HeatMap {
                    x_axis: (names[0].clone(), across.clone()),
                    y_axis: (names[1].clone(), up.clone()),
                    cells: fields,
                };
                charts.push(chart(view, &panel, treatment, &heat));
            }
        }
    }
    Some(ChartGroup {
        heading: format!("{} by {} and {}", capitalized(&view.metric_name()), names[0], names[1]),
        note: format!(
            "Medians{}. The darker, the better: {}.",
            unit(view),
            best_description(&view.results.manifest.metric)
        ),
        legend: Vec::new(),
        charts,
    })
}

fn unit(view: &ReportView) -> String {
    if view.unit().is_empty() { String::new() } else { format!(" in {}", view.unit()) }
}

/// Returns the quality of a value: higher is better. The best ratio is 1.
fn quality(view: &ReportView, value: f64) -> f64 {
    let metric = &view.results.manifest.metric;
    match metric.key.as_str() {
        RATIO => -value.ln().abs(),
        _ if metric.higher_is_better => value,
        _ => -value,
    }
}

fn qualities<'a>(view: &'a ReportView<'a>) -> impl Iterator<Item = f64> + 'a {
    let known = view.results.cells.iter().filter(|cell| cell.summary.n > 0);
    known.map(|cell| quality(view, cell.summary.median)).filter(|good| good.is_finite())
}

fn fields(
    view: &ReportView,
    names: &[String; 2],
    [across, up]: [&Vec<String>; 2],
    panel: &Levels,
    treatment: &str,
    [worst, best]: [f64; 2],
) -> Vec<HeatMapCell> {
    let mut fields = Vec::new();
    for (column, x) in across.iter().enumerate() {
        for (row, y) in up.iter().enumerate() {
            let mut levels = panel.clone();
            levels.extend([(names[0].clone(), x.clone()), (names[1].clone(), y.clone())]);
            let cell = view.cell(&levels, treatment).filter(|cell| cell.summary.n > 0);
            let Some(CellSummary { summary, .. }) = cell else { continue };
            let value = format_significant(summary.median);
            fields.push(HeatMapCell {
                position: [column, row],
                strength: if best > worst { (quality(view, summary.median) - worst) / (best - worst) } else { 1.0 },
                tooltip: format!(
                    "{} {x}, {} {y}: {}, n = {}",
                    names[0],
                    names[1],
                    with_unit(&value, view.unit()),
                    summary.n
                ),
                value,
            });
        }
    }
    fields
}

fn chart(view: &ReportView, panel: &Levels, treatment: &str, heat: &HeatMap) -> Chart {
    let condition = if panel.is_empty() { String::new() } else { format!("{}, ", view.condition_label(panel, None)) };
    heat.chart(format!("{condition}{treatment}: {}", view.metric_name()))
}
