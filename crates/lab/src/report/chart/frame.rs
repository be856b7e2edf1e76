//! The frame of a chart: margins, grid lines, axes and their labels.

use std::fmt;

use crate::report::markup::Markup;

/// Width of every chart, in user units: about the width of a page column in pixels.
pub const WIDTH: f64 = 520.0;
/// Height of a chart, in user units.
pub const HEIGHT: f64 = 300.0;
/// Approximate width of a digit or small letter of a label, in user units.
const LETTER_WIDTH: f64 = 6.7;

/// A coordinate in user units, formatted with at most one decimal.
pub struct Px(pub f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        if tenths % 10.0 == 0.0 { write!(f, "{}", tenths as i64 / 10) } else { write!(f, "{:.1}", tenths / 10.0) }
    }
}

/// An axis: ticks at positions from 0 to 1 with their labels, and the label of the axis with its unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// The quantity on the axis, with its unit.
    pub label: String,
    /// Positions from 0 to 1 with labels, ascending.
    pub ticks: Vec<(f64, String)>,
    /// Whether a grid line crosses the chart at each tick.
    pub grid: bool,
}

/// The area of the values in the drawing, in user units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl PlotArea {
    /// Returns the area inside of margins that fit the labels of the axes.
    #[must_use]
    pub fn with_axes(x: &Axis, y: &Axis) -> Self {
        let widest = y.ticks.iter().map(|(_, label)| label_width(label)).fold(0.0, f64::max);
        let last =
            x.ticks.last().map_or(0.0, |(place, label)| (label_width(label) / 2.0 - (1.0 - place) * WIDTH).max(0.0));
        Self {
            left: (widest + 12.0).max(28.0),
            right: WIDTH - last.max(10.0),
            top: if y.label.is_empty() { 8.0 } else { 30.0 },
            bottom: HEIGHT - if x.label.is_empty() { 24.0 } else { 44.0 },
        }
    }

    /// Returns the x coordinate of a position from 0 to 1.
    #[must_use]
    pub fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    /// Returns the y coordinate of a position from 0 to 1.
    #[must_use]
    pub fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }

    /// Draws grid lines, labels and the base line.
    pub fn draw(&self, svg: &mut Markup, x: &Axis, y: &Axis) {
        svg.element("g", &[("class", &"axes")], |svg| {
            for (place, label) in &y.ticks {
                let at = self.y(*place);
                if y.grid {
                    self.draw_line(svg, "grid", [self.left, at, self.right, at]);
                }
                draw_text(svg, "end", [self.left - 8.0, at + 4.0], label);
            }
            self.draw_ticks(svg, x);
            self.draw_line(svg, "base", [self.left, self.bottom, self.right, self.bottom]);
            if !y.label.is_empty() {
                draw_text(svg, "start", [0.0, 13.0], &y.label);
            }
            if !x.label.is_empty() {
                draw_text(svg, "end", [self.right, HEIGHT - 6.0], &x.label);
            }
        });
    }

    /// Draws ticks along the bottom. A label that would touch its neighbour is omitted.
    fn draw_ticks(&self, svg: &mut Markup, x: &Axis) {
        let mut free_from = f64::NEG_INFINITY;
        for (place, label) in &x.ticks {
            let at = self.x(*place);
            if x.grid {
                self.draw_line(svg, "grid", [at, self.top, at, self.bottom]);
            } else {
                self.draw_line(svg, "base", [at, self.bottom, at, self.bottom + 4.0]);
            }
            let half = label_width(label) / 2.0;
            if at - half > free_from {
                draw_text(svg, "middle", [at, self.bottom + 18.0], label);
                free_from = at + half + 4.0;
            }
        }
    }

    /// Draws a horizontal line at a position from 0 to 1.
    pub fn draw_reference(&self, svg: &mut Markup, place: f64) {
        self.draw_line(svg, "reference", [self.left, self.y(place), self.right, self.y(place)]);
    }

    fn draw_line(&self, svg: &mut Markup, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        let ends: [(&str, &dyn fmt::Display); 5] =
            [("class", &class), ("x1", &Px(x1)), ("y1", &Px(y1)), ("x2", &Px(x2)), ("y2", &Px(y2))];
        svg.empty("line", &ends);
    }
}

fn label_width(label: &str) -> f64 {
    label.chars().count() as f64 * LETTER_WIDTH
}

/// Draws a label at `x`, `y`.
pub fn draw_text(svg: &mut Markup, anchor: &str, [x, y]: [f64; 2], text: &str) {
    svg.leaf("text", &[("x", &Px(x)), ("y", &Px(y)), ("text-anchor", &anchor)], text);
}
