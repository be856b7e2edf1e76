//! A histogram as a bar chart.

use super::style_class;
use crate::report::chart::frame::{HEIGHT, PlotArea, Px};
use crate::report::chart::{Axis, Chart, Scale, labelled_ticks};
use crate::report::markup::Markup;

/// A chart of bars over bins.
#[derive(Debug)]
pub struct Histogram {
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Scale of the y axis.
    pub y: Scale,
    /// Number of the colour; see `style_class`.
    pub style: usize,
    /// The bins, from left to right.
    pub bins: Vec<HistogramBin>,
}

/// A bin of the histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramBin {
    /// Tick label at the upper bound of the bin; empty for none.
    pub label: String,
    /// Height of the bar, in the unit of the y axis.
    pub value: f64,
    /// Text of the tooltip.
    pub tooltip: String,
}

impl Histogram {
    /// Draws the chart as SVG.
    #[must_use]
    pub fn chart(&self, title: String, description: String) -> Chart {
        let count = self.bins.len().max(1) as f64;
        let labelled = self.bins.iter().enumerate().filter(|(_, bin)| !bin.label.is_empty());
        let x = Axis {
            label: self.x_label.clone(),
            ticks: labelled.map(|(place, bin)| ((place + 1) as f64 / count, bin.label.clone())).collect(),
            grid: false,
        };
        let y = Axis { label: self.y_label.clone(), ticks: labelled_ticks(&self.y), grid: true };
        let frame = PlotArea::with_axes(&x, &y);
        Chart::draw(title, description, HEIGHT, |svg| {
            frame.draw(svg, &x, &y);
            svg.element("g", &[("class", &style_class(self.style))], |svg| {
                for (place, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.value > 0.0) {
                    self.draw_bar(svg, &frame, [place as f64 / count, (place + 1) as f64 / count], bin);
                }
            });
        })
    }

    fn draw_bar(&self, svg: &mut Markup, frame: &PlotArea, [from, to]: [f64; 2], bin: &HistogramBin) {
        let (left, right) = (frame.x(from) + 1.0, frame.x(to) - 1.0);
        // A bin with a small value is at least one unit high, to differ from an empty bin.
        let height = (frame.y(0.0) - frame.y(self.y.position(bin.value))).max(1.0);
        let place: [(&str, &dyn std::fmt::Display); 5] = [
            ("class", &"bar"),
            ("x", &Px(left)),
            ("y", &Px(frame.y(0.0) - height)),
            ("width", &Px(right - left)),
            ("height", &Px(height)),
        ];
        svg.element("rect", &place, |rect| rect.leaf("title", &[], &bin.tooltip));
    }
}
