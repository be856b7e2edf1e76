//! Strip plots with one row for each treatment: every run as a dot, the median as a mark, the interval as a bar.

use super::{draw_mark, style_class};
use crate::report::chart::frame::{HEIGHT, PlotArea, Px};
use crate::report::chart::{Axis, Chart, Scale, labelled_ticks};
use crate::report::markup::Markup;

/// A strip plot with one row for each treatment.
#[derive(Debug)]
pub struct StripPlot {
    /// Label of the x axis, with its unit.
    pub label: String,
    /// Scale of the x axis.
    pub x: Scale,
    /// The rows, from the top.
    pub rows: Vec<StripRow>,
}

/// The runs of one treatment.
#[derive(Debug, Clone, PartialEq)]
pub struct StripRow {
    /// Number of the colour and shape; see `style_class`.
    pub style: usize,
    /// Label at the left of the row.
    pub name: String,
    /// One value for each run.
    pub values: Vec<f64>,
    /// The median of `values`; `None` without values.
    pub median: Option<f64>,
    /// Both ends of the interval of the median; `None` without an interval.
    pub interval: Option<(f64, f64)>,
    /// Text of the tooltip.
    pub tooltip: String,
}

impl StripPlot {
    /// Creates a plot of rows, with a scale that fits all values.
    #[must_use]
    pub fn new(label: String, rows: Vec<StripRow>) -> Self {
        let ends = |row: &StripRow| row.interval.map_or(Vec::new(), |(low, high)| vec![low, high]);
        let values = rows.iter().flat_map(|row| row.values.iter().copied().chain(row.median).chain(ends(row)));
        Self { label, x: Scale::for_values(values, 5), rows }
    }

    /// Draws the chart as SVG. The description consists of the tooltips.
    #[must_use]
    pub fn chart(&self, title: String) -> Chart {
        let hints: Vec<&str> = self.rows.iter().map(|row| row.tooltip.as_str()).collect();
        let description = format!("{}.", hints.join("; "));
        let x = Axis { label: self.x.axis_label(&self.label), ticks: labelled_ticks(&self.x), grid: true };
        let place = |index: usize| 1.0 - (index as f64 + 0.5) / self.rows.len() as f64;
        let names = self.rows.iter().enumerate().map(|(index, row)| (place(index), row.name.clone())).collect();
        let y = Axis { label: String::new(), ticks: names, grid: false };
        let frame = PlotArea::with_axes(&x, &y);
        Chart::draw(title, description, HEIGHT, |svg| {
            frame.draw(svg, &x, &y);
            for (index, row) in self.rows.iter().enumerate() {
                svg.element("g", &[("class", &style_class(row.style))], |svg| {
                    self.draw_row(svg, &frame, frame.y(place(index)), row)
                });
            }
        })
    }

    fn draw_row(&self, svg: &mut Markup, frame: &PlotArea, y: f64, row: &StripRow) {
        svg.leaf("title", &[], &row.tooltip);
        let at = |value: f64| frame.x(self.x.position(value));
        for value in &row.values {
            svg.empty("circle", &[("class", &"dot"), ("cx", &Px(at(*value))), ("cy", &Px(y + 8.0)), ("r", &Px(2.5))]);
        }
        if let Some((low, high)) = row.interval {
            let (left, right) = (Px(at(low)), Px(at(high)));
            let path =
                format!("M{left} {}V{}M{left} {}H{right}M{right} {0}V{1}", Px(y - 7.0), Px(y - 1.0), Px(y - 4.0));
            svg.empty("path", &[("class", &"whisker"), ("d", &path)]);
        }
        if let Some(median) = row.median {
            draw_mark(svg, row.style, [at(median), y - 4.0], false);
        }
    }
}
