//! A plot with lines and points on two logarithmic axes, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Colours for light and dark pages.
const STYLE: &str = "<style>
.back { fill: #ffffff } .grid { stroke: #dddddd } text { fill: #222222 }
@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } }
</style>";

/// A plotted series, with its name and colour. A series without a name is not in the legend.
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
    let _ = writeln!(out, "<title>{title}</title>\n{STYLE}");
    let _ = writeln!(out, "<rect class=\"back\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>");
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>");
    for decade in x.decades() {
        let at = x.place(decade);
        let _ = writeln!(out, "<path d=\"M{at:.1} {TOP}V{}\" class=\"grid\"/>", HEIGHT - BOTTOM);
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 32.0,
            label(decade)
        );
    }
    for decade in y.decades() {
        let at = y.place(decade);
        let _ = writeln!(out, "<path d=\"M{LEFT} {at:.1}H{}\" class=\"grid\"/>", WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            label(decade)
        );
    }
    let _ =
        writeln!(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", WIDTH - RIGHT, HEIGHT - 10.0, axes.0);
    let _ = writeln!(out, "<text x=\"8\" y=\"{}\">{}</text>", TOP - 4.0, axes.1);
    let mut legend = TOP + 16.0;
    for one in series {
        draw(&mut out, one, &x, &y, legend);
        legend += if one.name.is_empty() { 0.0 } else { 16.0 };
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
    if !name.is_empty() {
        let _ = writeln!(out, "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{colour}\"/>", LEFT + 16.0, legend - 4.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{legend}\">{name}</text>", LEFT + 26.0);
    }
}

/// A power of ten, with a comma before each three digits.
fn label(decade: f64) -> String {
    let mut text = decade.to_string();
    for at in
        (1..text.len()).rev().filter(|at| decade >= 1e3 && (text.len() - at).is_multiple_of(3)).collect::<Vec<_>>()
    {
        text.insert(at, ',');
    }
    text
}

/// A logarithmic axis from a power of ten to a half or whole decade.
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
        let most = (most * 2.0).ceil() / 2.0;
        Self { least: least.floor(), most: most.max(least.floor() + 1.0), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value.max(1e-9).log10() - self.least) / (self.most - self.least)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.least as i32..=self.most.floor() as i32).map(|decade| 10_f64.powi(decade))
    }
}
