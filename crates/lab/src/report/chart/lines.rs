//! Lines and points over an axis, with intervals.

use super::{draw_mark, style_class};
use crate::report::chart::frame::{HEIGHT, PlotArea, Px};
use crate::report::chart::{Axis, Chart, Scale, labelled_ticks};
use crate::report::markup::Markup;

/// A chart of lines.
#[derive(Debug)]
pub struct LineChart {
    /// The axis across.
    pub x: Axis,
    /// What the axis up shows, with its unit.
    pub label: String,
    /// The scale up.
    pub y: Scale,
    /// A value to compare with: a line across.
    pub reference: Option<f64>,
    /// What is drawn.
    pub series: Vec<LineSeries>,
}

/// One treatment.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSeries {
    /// Its colour and shape.
    pub style: usize,
    /// Whether a line joins the points.
    pub joined: bool,
    /// Whether each point has a mark. Without, there are so many that the line is all.
    pub marked: bool,
    /// Whether the marks are hollow: figures somebody else published.
    pub hollow: bool,
    /// Its points, from left to right.
    pub points: Vec<DataPoint>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPoint {
    /// Its place across, from 0 to 1.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// Both ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// What a pointer on it is told.
    pub tooltip: String,
}

impl LineChart {
    /// Draws it.
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

/// An interval: a line with a short bar at either end.
fn draw_whisker(svg: &mut Markup, x: f64, [low, high]: [f64; 2]) {
    let (left, right) = (Px(x - 3.0), Px(x + 3.0));
    let (x, low, high) = (Px(x), Px(low), Px(high));
    let path = format!("M{left} {low}H{right}M{x} {low}V{high}M{left} {high}H{right}");
    svg.empty("path", &[("class", &"whisker"), ("d", &path)]);
}
