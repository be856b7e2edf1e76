//! Charts as inline SVG: small, without scripts, coloured by the style sheet of the page.

use crate::report::markup::Markup;

mod bars;
mod frame;
mod heat;
mod lines;
mod mark;
mod scale;
mod strip;

pub use bars::{Histogram, HistogramBin};
pub use frame::Axis;
pub use heat::{HeatMap, HeatMapCell};
pub use lines::{DataPoint, LineChart, LineSeries};
pub use mark::{draw_swatch, style_class};
pub use scale::Scale;
pub use strip::{StripPlot, StripRow};

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// Which condition it shows, and what of it.
    pub title: String,
    /// The SVG element.
    pub svg: Markup,
}

impl Chart {
    /// Draws into an SVG element that carries its own title, and a description for those who cannot see it.
    #[must_use]
    pub fn draw(title: String, description: String, height: f64, draw: impl FnOnce(&mut Markup)) -> Self {
        let mut svg = Markup::default();
        let view_box = format!("0 0 {} {height}", frame::WIDTH);
        svg.element("svg", &[("class", &"chart"), ("viewBox", &view_box), ("role", &"img")], |svg| {
            svg.leaf("title", &[], &title);
            svg.leaf("desc", &[], &description);
            draw(svg);
        });
        Self { title, svg }
    }
}

/// Ticks of a scale with their labels.
#[must_use]
pub fn labelled_ticks(scale: &Scale) -> Vec<(f64, String)> {
    scale.ticks.iter().map(|tick| scale.position(*tick)).zip(scale.tick_labels()).collect()
}
