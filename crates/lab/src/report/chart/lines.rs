//! Lines and points over an axis, with intervals.

use super::{draw_mark, style_class};
use crate::report::chart::frame::{HEIGHT, PlotArea, Px};
use crate::report::chart::{Axis, Chart, Scale, labelled_ticks};
use crate::report::markup::Markup;

/// A chart of lines over a common axis.
#[derive(Debug)]
pub struct LineChart {
    /// The x axis.
    pub x: Axis,
    /// Label of the y axis, with its unit.
    pub label: String,
    /// Scale of the y axis.
    pub y: Scale,
    /// Value of a horizontal reference line.
    pub reference: Option<f64>,
    /// The lines, in drawing order.
    pub series: Vec<LineSeries>,
}

/// The points of one treatment.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSeries {
    /// Number of the colour and shape; see `style_class`.
    pub style: usize,
    /// Whether a line joins the points.
    pub joined: bool,
    /// Whether each point has a mark; false for lines with many points.
    pub marked: bool,
    /// Whether the marks are hollow: published values.
    pub hollow: bool,
    /// The points, from left to right.
    pub points: Vec<DataPoint>,
}

/// A value with its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPoint {
    /// Position on the x axis, from 0 to 1.
    pub x: f64,
    /// Value, in the unit of the y axis.
    pub y: f64,
    /// Both ends of the interval of the value; `None` without an interval.
    pub interval: Option<(f64, f64)>,
    /// Text of the tooltip.
    pub tooltip: String,
}

impl LineChart {
    /// Draws the chart as SVG.
    #[must_use]
    pub fn chart(&self, title: String, description: String) -> Chart {
        let y = Axis { label: self.y.axis_label(&self.label), ticks: labelled_ticks(&self.y), grid: true };
        let frame = PlotArea::with_axes(&self.x, &y);
        Chart::draw(title, description, HEIGHT, |svg| {
            frame.draw(svg, &self.x, &y);
            if let Some(reference) = self.reference {
                frame.draw_reference(svg, self.y.position(reference));
            }
            for series in &self.series {
                svg.element("g", &[("class", &style_class(series.style))], |svg| self.draw_series(svg, &frame, series));
            }
        })
    }

    fn draw_series(&self, svg: &mut Markup, frame: &PlotArea, series: &LineSeries) {
        let places: Vec<[f64; 2]> =
            series.points.iter().map(|point| [frame.x(point.x), frame.y(self.y.position(point.y))]).collect();
        if series.joined && places.len() > 1 {
            let points: Vec<String> = places.iter().map(|[x, y]| format!("{},{}", Px(*x), Px(*y))).collect();
            svg.empty("polyline", &[("class", &"line"), ("points", &points.join(" "))]);
        }
        if !series.marked {
            return;
        }
        for (point, place) in series.points.iter().zip(places) {
            svg.element("g", &[], |svg| {
                svg.leaf("title", &[], &point.tooltip);
                if let Some((low, high)) = point.interval {
                    draw_whisker(svg, place[0], [frame.y(self.y.position(low)), frame.y(self.y.position(high))]);
                }
                draw_mark(svg, series.style, place, series.hollow);
            });
        }
    }
}

/// Draws an interval: a line with a short bar at either end.
fn draw_whisker(svg: &mut Markup, x: f64, [low, high]: [f64; 2]) {
    let (left, right) = (Px(x - 3.0), Px(x + 3.0));
    let (x, low, high) = (Px(x), Px(low), Px(high));
    let path = format!("M{left} {low}H{right}M{x} {low}V{high}M{left} {high}H{right}");
    svg.empty("path", &[("class", &"whisker"), ("d", &path)]);
}
