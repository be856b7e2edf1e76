//! A histogram.

use super::style_class;
use crate::report::chart::frame::{HEIGHT, PlotArea, Px};
use crate::report::chart::{Axis, Chart, Scale, labelled_ticks};
use crate::report::markup::Markup;

/// A chart of bars over bins.
#[derive(Debug)]
pub struct Histogram {
    /// What the axis across shows, with its unit.
    pub x_label: String,
    /// What the axis up shows, with its unit.
    pub y_label: String,
    /// The scale up.
    pub y: Scale,
    /// The colour.
    pub style: usize,
    /// The bins, from left to right.
    pub bins: Vec<HistogramBin>,
}

/// A bin.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramBin {
    /// What stands at its upper end; empty if nothing does.
    pub label: String,
    /// What is in it.
    pub value: f64,
    /// What a pointer on it is told.
    pub tooltip: String,
}

impl Histogram {
    /// Draws it.
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
        // A bin with hardly anything in it is not an empty bin.
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
