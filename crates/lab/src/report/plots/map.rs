//! The metric as a map over two factors.

use crate::experiment::metric::{JAIN, RATIO};
use crate::experiment::results::Cell;
use crate::report::chart::{Chart, Field, Heat};
use crate::report::number::{significant, with_unit};
use crate::report::plots::metric::capital;
use crate::report::plots::{Figure, levels_without};
use crate::report::view::{Levels, View};

/// One map for each treatment at each combination of the other factors. `None` if the experiment asks for no map.
pub fn figure(view: &View) -> Option<Figure> {
    let names = view.results.manifest.map.as_ref()?;
    let [across, up] = names.each_ref().map(|name| {
        let factors = view.results.manifest.factors.iter();
        factors.filter(|(factor, _)| factor == name).map(|(_, levels)| levels.clone()).next().unwrap_or_default()
    });
    let range =
        goods(view).fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], good| [low.min(good), high.max(good)]);
    let mut charts = Vec::new();
    for panel in levels_without(view, names) {
        for treatment in &view.treatments {
            let fields = fields(view, names, [&across, &up], (&panel, treatment), range);
            if !fields.is_empty() {
                let heat =
                    Heat { across: (names[0].clone(), across.clone()), up: (names[1].clone(), up.clone()), fields };
                charts.push(chart(view, &panel, treatment, &heat));
            }
        }
    }
    Some(Figure {
        heading: format!("{} by {} and {}", capital(&view.metric()), names[0], names[1]),
        note: format!("Medians{}. The darker, the better: {}.", unit(view), best(view)),
        legend: Vec::new(),
        charts,
    })
}

fn unit(view: &View) -> String {
    if view.unit().is_empty() { String::new() } else { format!(" in {}", view.unit()) }
}

fn best(view: &View) -> &'static str {
    let metric = &view.results.manifest.metric;
    match metric.key.as_str() {
        RATIO | JAIN => "1 is best",
        _ if metric.higher_is_better => "more is better",
        _ => "less is better",
    }
}

/// How good a value is: the more, the better. A ratio is as good as it is close to 1.
fn good(view: &View, value: f64) -> f64 {
    let metric = &view.results.manifest.metric;
    match metric.key.as_str() {
        RATIO => -value.ln().abs(),
        _ if metric.higher_is_better => value,
        _ => -value,
    }
}

fn goods<'a>(view: &'a View<'a>) -> impl Iterator<Item = f64> + 'a {
    let known = view.results.cells.iter().filter(|cell| cell.summary.n > 0);
    known.map(|cell| good(view, cell.summary.median)).filter(|good| good.is_finite())
}

fn fields(
    view: &View,
    names: &[String; 2],
    [across, up]: [&Vec<String>; 2],
    (panel, treatment): (&Levels, &str),
    [worst, best]: [f64; 2],
) -> Vec<Field> {
    let mut fields = Vec::new();
    for (column, x) in across.iter().enumerate() {
        for (row, y) in up.iter().enumerate() {
            let mut levels = panel.clone();
            levels.extend([(names[0].clone(), x.clone()), (names[1].clone(), y.clone())]);
            let cell = view.cell(&levels, treatment).filter(|cell| cell.summary.n > 0);
            let Some(Cell { summary, .. }) = cell else { continue };
            let value = significant(summary.median);
            fields.push(Field {
                place: [column, row],
                strength: if best > worst { (good(view, summary.median) - worst) / (best - worst) } else { 1.0 },
                hint: format!(
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

fn chart(view: &View, panel: &Levels, treatment: &str, heat: &Heat) -> Chart {
    let condition = if panel.is_empty() { String::new() } else { format!("{}, ", view.condition(panel, None)) };
    heat.chart(format!("{condition}{treatment}: {}", view.metric()))
}
