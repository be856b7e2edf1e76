//! Charts as inline SVG: small, without scripts, coloured by the style sheet of the page. Treatments differ in shape
//! and in colour, so that either alone distinguishes them.

mod bars;
mod frame;
mod heat;
mod lines;
mod scale;
mod strip;

use super::markup::Markup;
use frame::Px;

pub use bars::{Histogram, HistogramBin};
pub use frame::Axis;
pub use heat::{HeatMap, HeatMapCell};
pub use lines::{DataPoint, LineChart, LineSeries};
pub use scale::Scale;
pub use strip::{StripPlot, StripRow};

/// A finished chart with its title.
#[derive(Debug)]
pub struct Chart {
    /// The condition and the quantity that the chart shows.
    pub title: String,
    /// The `svg` element of the chart.
    pub svg: Markup,
}

impl Chart {
    /// Creates a chart: `draw` adds to an SVG element with `title` and `desc` elements for screen readers.
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

/// Returns the positions, from 0 to 1, and the labels of the ticks of a scale.
#[must_use]
pub fn labelled_ticks(scale: &Scale) -> Vec<(f64, String)> {
    scale.ticks.iter().map(|tick| scale.position(*tick)).zip(scale.tick_labels()).collect()
}

/// Number of shapes and of colours. Further treatments reuse them.
pub const STYLES: usize = 8;

/// Returns the CSS class with the colour of a treatment.
#[must_use]
pub fn style_class(style: usize) -> String {
    format!("s{}", style % STYLES)
}

/// Draws the mark of a treatment at `x`, `y`. A published value has a `hollow` mark.
pub fn draw_mark(svg: &mut Markup, style: usize, [x, y]: [f64; 2], hollow: bool) {
    let class = if hollow { "mark hollow" } else { "mark" };
    if style.is_multiple_of(STYLES) {
        svg.empty("circle", &[("class", &class), ("cx", &Px(x)), ("cy", &Px(y)), ("r", &Px(4.0))]);
        return;
    }
    let corners = corners(style % STYLES);
    let points: Vec<String> = corners.iter().map(|(dx, dy)| format!("{},{}", Px(x + dx), Px(y + dy))).collect();
    svg.empty("polygon", &[("class", &class), ("points", &points.join(" "))]);
}

/// Returns the corners of a shape relative to its centre. All shapes have about the same area.
fn corners(style: usize) -> Vec<(f64, f64)> {
    match style {
        1 => vec![(-3.7, -3.7), (3.7, -3.7), (3.7, 3.7), (-3.7, 3.7)],
        2 => vec![(0.0, -5.2), (5.0, 3.8), (-5.0, 3.8)],
        3 => vec![(0.0, -5.4), (5.4, 0.0), (0.0, 5.4), (-5.4, 0.0)],
        4 => vec![(0.0, 5.2), (5.0, -3.8), (-5.0, -3.8)],
        5 => cross(),
        6 => vec![(-5.2, 0.0), (3.8, -5.0), (3.8, 5.0)],
        _ => vec![(5.2, 0.0), (-3.8, -5.0), (-3.8, 5.0)],
    }
}

fn cross() -> Vec<(f64, f64)> {
    let (arm, half) = (5.2, 1.9);
    vec![
        (-half, -arm),
        (half, -arm),
        (half, -half),
        (arm, -half),
        (arm, half),
        (half, half),
        (half, arm),
        (-half, arm),
        (-half, half),
        (-arm, half),
        (-arm, -half),
        (-half, -half),
    ]
}

/// Draws a single mark for legends and tables.
pub fn draw_swatch(html: &mut Markup, style: usize) {
    let class = format!("swatch {}", style_class(style));
    html.element("svg", &[("class", &class), ("viewBox", &"0 0 14 14"), ("aria-hidden", &"true")], |svg| {
        draw_mark(svg, style, [7.0, 7.0], false);
    });
}
