//! A heat map: a cell for each pair of levels, darker for better values, with its value as text.

use crate::report::chart::frame::{HEIGHT, PlotArea, Px, draw_text};
use crate::report::chart::{Axis, Chart};
use crate::report::markup::Markup;

/// A heat map over two factors.
#[derive(Debug)]
pub struct HeatMap {
    /// Label and levels of the x axis.
    pub x_axis: (String, Vec<String>),
    /// Label and levels of the y axis.
    pub y_axis: (String, Vec<String>),
    /// The cells with a value. Pairs of levels without a value have no cell.
    pub cells: Vec<HeatMapCell>,
}

/// A cell of the map.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMapCell {
    /// Index of the levels on the x and y axis, from 0.
    pub position: [usize; 2],
    /// Quality of the value, from 0 (worst) to 1 (best).
    pub strength: f64,
    /// Text in the cell.
    pub value: String,
    /// Text of the tooltip.
    pub tooltip: String,
}

/// Opacity of the worst and of the best cell: the text stays readable, and the lightest cell is visible.
const SHADES: [f64; 2] = [0.06, 0.62];

impl HeatMap {
    /// Draws the chart as SVG.
    #[must_use]
    pub fn chart(&self, title: String) -> Chart {
        let axis = |(label, levels): &(String, Vec<String>)| Axis {
            label: label.clone(),
            ticks: levels.iter().zip(centers(levels.len())).map(|(level, place)| (place, level.clone())).collect(),
            grid: false,
        };
        let (x, y) = (axis(&self.x_axis), axis(&self.y_axis));
        let frame = PlotArea::with_axes(&x, &y);
        let hints: Vec<&str> = self.cells.iter().map(|field| field.tooltip.as_str()).collect();
        Chart::draw(title, format!("{}.", hints.join("; ")), HEIGHT, |svg| {
            frame.draw(svg, &x, &y);
            self.cells.iter().for_each(|field| self.draw_cell(svg, &frame, field));
        })
    }

    fn draw_cell(&self, svg: &mut Markup, frame: &PlotArea, field: &HeatMapCell) {
        let [across, up] = [&self.x_axis.1, &self.y_axis.1].map(|levels| levels.len().max(1) as f64);
        let [column, row] = field.position.map(|place| place as f64);
        let (left, right) = (frame.x(column / across) + 1.0, frame.x((column + 1.0) / across) - 1.0);
        let (top, bottom) = (frame.y((row + 1.0) / up) + 1.0, frame.y(row / up) - 1.0);
        let strength = if field.strength.is_finite() { field.strength.clamp(0.0, 1.0) } else { 0.0 };
        let shade = format!("{:.2}", SHADES[0] + strength * (SHADES[1] - SHADES[0]));
        svg.element("g", &[("class", &"field")], |svg| {
            svg.leaf("title", &[], &field.tooltip);
            let place: [(&str, &dyn std::fmt::Display); 6] = [
                ("class", &"heat"),
                ("fill-opacity", &shade),
                ("x", &Px(left)),
                ("y", &Px(top)),
                ("width", &Px(right - left)),
                ("height", &Px(bottom - top)),
            ];
            svg.empty("rect", &place);
            draw_text(svg, "middle", [left.midpoint(right), top.midpoint(bottom) + 4.0], &field.value);
        });
    }
}

/// Returns the centres of `count` equal intervals from 0 to 1.
fn centers(count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |place| (place as f64 + 0.5) / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(strengths: &[f64]) -> String {
        let field = |(place, strength): (usize, &f64)| HeatMapCell {
            position: [place, 0],
            strength: *strength,
            value: format!("v{place}"),
            tooltip: format!("hint <{place}>"),
        };
        let levels = |count: usize| (0..count).map(|level| format!("l{level}")).collect();
        let heat = HeatMap {
            x_axis: ("hist_len".into(), levels(strengths.len())),
            y_axis: ("sta_int".into(), levels(1)),
            cells: strengths.iter().enumerate().map(field).collect(),
        };
        heat.chart("a map".into()).svg.to_string()
    }

    #[test]
    fn stronger_cells_are_darker_and_show_their_values() {
        let svg = drawn(&[0.0, 0.5, 1.0]);
        let shades: Vec<&str> =
            svg.split("fill-opacity=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(shades, ["0.06", "0.34", "0.62"]);
        assert!(
            ["v0", "v1", "v2", "hist_len", "sta_int", "hint &lt;2&gt;"].iter().all(|text| svg.contains(text)),
            "{svg}"
        );
    }

    #[test]
    fn nan_has_the_lightest_shade() {
        assert!(drawn(&[f64::NAN]).contains("fill-opacity=\"0.06\""));
        assert!(drawn(&[7.0]).contains("fill-opacity=\"0.62\""));
    }
}
