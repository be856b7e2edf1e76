//! Where texts go, so that they cover neither each other nor the sites.

use super::canvas::{Area, Point};
use super::layout::map_area;

/// Width of a letter, as a share of its size.
const LETTER: f64 = 0.62;

/// What is on the drawing already.
#[derive(Default)]
pub(super) struct LabelPlacer {
    taken: Vec<Area>,
    lines: Vec<(Point, Point)>,
}

impl LabelPlacer {
    /// Nothing is to be written over the mark at `point`.
    pub fn avoid_point(&mut self, Point { x, y }: Point) {
        self.taken.push(Area { left: x - 12.0, top: y - 12.0, right: x + 12.0, bottom: y + 12.0 });
    }

    /// Better not over this line either.
    pub fn avoid_line(&mut self, ends: (Point, Point)) {
        self.lines.push(ends);
    }

    /// A place for `text` at a site; where its first letter stands.
    pub fn place_at_point(&mut self, point: Point, text: &str, size: f64) -> Point {
        let (width, far) = (text.chars().count() as f64 * size * LETTER, 17.0);
        let (middle, below) = (-width / 2.0, far + size * 0.8);
        let places = [
            (far, size * 0.35),
            (-far - width, size * 0.35),
            (middle, -far),
            (middle, below),
            (far * 0.6, -far * 0.7),
            (far * 0.6, below * 0.8),
            (-far * 0.6 - width, -far * 0.7),
            (-far * 0.6 - width, below * 0.8),
        ];
        self.best_position(places.into_iter().map(|(x, y)| point.add(Point { x, y })), width, size)
    }

    /// The same at a line.
    pub fn place_at_line(&mut self, (from, to): (Point, Point), text: &str, size: f64) -> Point {
        let width = text.chars().count() as f64 * size * LETTER;
        let normal = from.normal(to);
        let parts = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8];
        // Far enough to the side for the text to clear the line, whichever way that runs.
        let clear = (normal.x.abs() * width + normal.y.abs() * size) / 2.0 + 6.0;
        let sides = [1.0, -1.0];
        let centres = parts
            .into_iter()
            .flat_map(|part| sides.into_iter().map(move |side| from.toward(to, part).add(normal.scaled(side * clear))));
        let places: Vec<Point> = centres.map(|centre| centre.add(Point { x: -width / 2.0, y: size * 0.35 })).collect();
        self.best_position(places.into_iter(), width, size)
    }

    /// The first place where the least is in the way.
    fn best_position(&mut self, places: impl Iterator<Item = Point>, width: f64, size: f64) -> Point {
        let of = |at: Point| Area {
            left: at.x - 2.0,
            top: at.y - size,
            right: at.x + width + 2.0,
            bottom: at.y + size * 0.3,
        };
        let cost = |at: &Point| (self.overlap_cost(of(*at)) * 16.0) as u64;
        let best = places.min_by_key(cost).expect("invariant: there are places to choose from");
        self.taken.push(of(best));
        best
    }

    fn overlap_cost(&self, label: Area) -> f64 {
        let whole = map_area();
        let outside = label.left < whole.left || label.right > whole.right;
        let outside = outside || label.top < whole.top || label.bottom > whole.bottom;
        let covered = self.taken.iter().filter(|other| overlaps(label, **other)).count();
        let crossed = self.lines.iter().filter(|line| crosses(label, **line)).count();
        f64::from(u8::from(outside)) * 20.0 + covered as f64 * 8.0 + crossed as f64
    }
}

fn overlaps(one: Area, other: Area) -> bool {
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom
}

/// Whether a line goes through a label, looked at every few pixels.
fn crosses(label: Area, (from, to): (Point, Point)) -> bool {
    let steps = (from.distance(to) / 5.0).ceil().max(1.0);
    (0..=steps as u32).any(|step| {
        let Point { x, y } = from.toward(to, f64::from(step) / steps);
        (label.left..=label.right).contains(&x) && (label.top..=label.bottom).contains(&y)
    })
}
