//! A plot with lines and points on two logarithmic axes, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// A plotted series, with its name and colour.
pub struct Series<'a> {
    pub name: &'a str,
    pub colour: &'a str,
    pub points: Vec<(f64, f64)>,
    /// As points; else as a line.
    pub dots: bool,
}

/// The whole picture.
pub fn svg(title: &str, axes: (&str, &str), series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let x = Axis::around(all().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::around(all().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut out = String::new();
    let style = "font-family=\"sans-serif\" font-size=\"12\"";
    let _ = writeln!(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" {style}>");
    let _ = writeln!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>");
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>");
    for decade in x.decades() {
        let at = x.place(decade);
        let _ = writeln!(out, "<path d=\"M{at:.1} {TOP}V{}\" stroke=\"#ddd\"/>", HEIGHT - BOTTOM);
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{decade}</text>", HEIGHT - 32.0);
    }
    for decade in y.decades() {
        let at = y.place(decade);
        let _ = writeln!(out, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{decade}</text>", LEFT - 6.0, at + 4.0);
    }
    let _ =
        writeln!(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", WIDTH - RIGHT, HEIGHT - 10.0, axes.0);
    let _ = writeln!(out, "<text x=\"8\" y=\"{}\">{}</text>", TOP - 4.0, axes.1);
    for (number, one) in (0_u8..).zip(series) {
        draw(&mut out, one, &x, &y, TOP + 16.0 + 16.0 * f64::from(number));
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, series: &Series, x: &Axis, y: &Axis, legend: f64) {
    let Series { name, colour, points, dots } = series;
    let places = points.iter().map(|point| (x.place(point.0), y.place(point.1)));
    if *dots {
        for (x, y) in places {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        }
    } else {
        let line: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", line.join(" "));
    }
    let _ = writeln!(out, "<text x=\"{}\" y=\"{legend}\" fill=\"{colour}\">{name}</text>", LEFT + 12.0);
}

/// A logarithmic axis over whole decades.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let logs = values.map(|value| value.max(1e-9).log10());
        let (least, most) = logs.fold((f64::MAX, f64::MIN), |(least, most), log| (log.min(least), log.max(most)));
        Self { least: least.floor(), most: most.ceil().max(least.floor() + 1.0), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value.max(1e-9).log10() - self.least) / (self.most - self.least)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.least as i32..=self.most as i32).map(|decade| 10_f64.powi(decade))
    }
}
