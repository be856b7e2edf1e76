//! The positions of sites on the drawing.

use super::canvas::{Area, LineSegment, Point};
use crate::path::plan::{Position, Site};

/// Width of the drawing in pixels.
pub(super) const WIDTH: f64 = 1000.0;

/// Pixels between the outermost sites and the edge, for their names.
const MARGIN: f64 = 90.0;

/// The area of the map.
pub(super) fn map_area() -> Area {
    Area { left: 16.0, top: 16.0, right: WIDTH - 16.0, bottom: 560.0 }
}

/// The position of every site.
pub(super) struct Layout {
    pub points: Vec<Point>,
    pub graticule: Vec<GraticuleLine>,
}

/// A line of equal latitude or longitude.
pub(super) struct GraticuleLine {
    pub line: LineSegment,
    pub label: String,
    pub label_at: Point,
}

impl Layout {
    /// Returns a map if all sites have a position, otherwise three columns.
    pub fn of(sites: &[Site]) -> Self {
        let positions: Option<Vec<Position>> = sites.iter().map(|site| site.position).collect();
        positions.filter(|positions| !positions.is_empty()).map_or_else(|| column_layout(sites), |all| map_layout(&all))
    }
}

/// Converts degrees to pixels, with equal scale in both axes at the middle of the map.
struct Projection {
    west: f64,
    squeeze: f64,
    scale: f64,
    centre: (f64, f64),
}

impl Projection {
    fn of(positions: &[Position]) -> Self {
        let west = western_end(positions);
        let (mut longitudes, mut latitudes) = ((f64::MAX, f64::MIN), (f64::MAX, f64::MIN));
        for position in positions {
            let east_by = (position.longitude - west).rem_euclid(360.0);
            longitudes = (longitudes.0.min(east_by), longitudes.1.max(east_by));
            latitudes = (latitudes.0.min(position.latitude), latitudes.1.max(position.latitude));
        }
        let centre = (f64::midpoint(longitudes.0, longitudes.1), f64::midpoint(latitudes.0, latitudes.1));
        let squeeze = centre.1.to_radians().cos().max(0.2);
        let Area { left, top, right, bottom } = map_area();
        let x_scale = (right - left - 2.0 * MARGIN) / ((longitudes.1 - longitudes.0) * squeeze).max(0.5);
        let y_scale = (bottom - top - MARGIN) / (latitudes.1 - latitudes.0).max(0.5);
        Self { west, squeeze, scale: x_scale.min(y_scale), centre }
    }

    fn point(&self, position: Position) -> Point {
        let Area { left, top, right, bottom } = map_area();
        let east_by = (position.longitude - self.west).rem_euclid(360.0);
        Point {
            x: f64::midpoint(left, right) + (east_by - self.centre.0) * self.squeeze * self.scale,
            y: f64::midpoint(top, bottom) - (position.latitude - self.centre.1) * self.scale,
        }
    }
}

/// Longitude of the site east of the widest gap between sites, so that the edge of the map is in this gap.
fn western_end(positions: &[Position]) -> f64 {
    let gap_before = |position: &Position| {
        let gaps = positions.iter().map(|other| (position.longitude - other.longitude).rem_euclid(360.0));
        gaps.filter(|gap| *gap > 0.0).fold(360.0, f64::min)
    };
    let widest = positions.iter().max_by(|one, other| gap_before(one).total_cmp(&gap_before(other)));
    widest.map_or(0.0, |position| position.longitude)
}

fn map_layout(positions: &[Position]) -> Layout {
    let projection = Projection::of(positions);
    let points = positions.iter().map(|position| projection.point(*position)).collect();
    let Area { left, top, right, bottom } = map_area();
    let steps = [0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
    let step = steps.into_iter().find(|step| step * projection.scale >= 60.0).unwrap_or(45.0);
    let mut graticule = Vec::new();
    for index in -360..=360 {
        let degrees = f64::from(index) * step;
        if degrees.abs() <= 90.0 {
            let y = projection.point(Position { latitude: degrees, longitude: projection.west }).y;
            if y > top + 14.0 && y < bottom {
                let label = format!("{}{}", degrees.abs(), if degrees < 0.0 { "S" } else { "N" });
                let label_at = Point { x: left + 4.0, y: y - 3.0 };
                graticule.push(GraticuleLine {
                    line: LineSegment { from: Point { x: left, y }, to: Point { x: right, y } },
                    label,
                    label_at,
                });
            }
        }
        if degrees > -180.0 && degrees <= 180.0 {
            // One turn to either side, so that lines left of the first site are drawn too.
            let turn = 360.0 * projection.squeeze * projection.scale;
            let x = projection.point(Position { latitude: 0.0, longitude: degrees }).x;
            if let Some(x) = [x - turn, x, x + turn].into_iter().find(|x| *x > left && *x < right - 30.0) {
                let label = format!("{}{}", degrees.abs(), if degrees < 0.0 { "W" } else { "E" });
                let label_at = Point { x: x + 3.0, y: bottom - 5.0 };
                graticule.push(GraticuleLine {
                    line: LineSegment { from: Point { x, y: top }, to: Point { x, y: bottom } },
                    label,
                    label_at,
                });
            }
        }
    }
    Layout { points, graticule }
}

/// Three columns: clients left, servers right, all other sites between them.
fn column_layout(sites: &[Site]) -> Layout {
    let column = |site: &Site| match (site.roles.client, site.roles.server) {
        (true, false) => 0,
        (false, true) => 2,
        _ => 1,
    };
    let mut placed = [0_usize; 3];
    let mut row_counts = [0_usize; 3];
    sites.iter().for_each(|site| row_counts[column(site)] += 1);
    // An even number of rows in the middle, so that no relay is on the straight line from a single client to a single
    // server.
    row_counts[1] = row_counts[1].next_multiple_of(2);
    let Area { left, top, right, bottom } = map_area();
    let points = sites.iter().map(|site| {
        let column = column(site);
        let part = (placed[column] as f64 + 0.5) / row_counts[column].max(1) as f64;
        // Alternating offsets, so that lines between relays do not cross other relays.
        let shift = if column == 1 && placed[column] % 2 == 1 { 90.0 } else { 0.0 };
        placed[column] += 1;
        let x = [left + MARGIN, f64::midpoint(left, right) - 45.0 + shift, right - MARGIN][column];
        Point { x, y: top + (bottom - top) * part }
    });
    Layout { points: points.collect(), graticule: Vec::new() }
}

/// Width of a letter, as a share of the font size.
const LETTER: f64 = 0.62;

/// The occupied areas of the drawing, which labels avoid.
#[derive(Default)]
pub(super) struct LabelPlacer {
    occupied: Vec<Area>,
    lines: Vec<LineSegment>,
}

impl LabelPlacer {
    /// Reserves the mark at `point`.
    pub fn avoid_point(&mut self, Point { x, y }: Point) {
        self.occupied.push(Area { left: x - 12.0, top: y - 12.0, right: x + 12.0, bottom: y + 12.0 });
    }

    /// Makes labels avoid this line, with a lower cost than a mark.
    pub fn avoid_line(&mut self, line: LineSegment) {
        self.lines.push(line);
    }

    /// Selects a position for `text` at a site. Returns the point where the text begins.
    pub fn place_at_point(&mut self, point: Point, text: &str, size: f64) -> Point {
        let (width, offset) = (text.chars().count() as f64 * size * LETTER, 17.0);
        let (middle, below) = (-width / 2.0, offset + size * 0.8);
        let places = [
            (offset, size * 0.35),
            (-offset - width, size * 0.35),
            (middle, -offset),
            (middle, below),
            (offset * 0.6, -offset * 0.7),
            (offset * 0.6, below * 0.8),
            (-offset * 0.6 - width, -offset * 0.7),
            (-offset * 0.6 - width, below * 0.8),
        ];
        self.best_position(places.into_iter().map(|(x, y)| point.add(Point { x, y })), width, size)
    }

    /// Selects a position for `text` at a line. Returns the point where the text begins.
    pub fn place_at_line(&mut self, LineSegment { from, to }: LineSegment, text: &str, size: f64) -> Point {
        let width = text.chars().count() as f64 * size * LETTER;
        let normal = from.normal(to);
        let parts = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8];
        // Far enough to the side for the text to clear the line, for every direction of the line.
        let gap = (normal.x.abs() * width + normal.y.abs() * size) / 2.0 + 6.0;
        let sides = [1.0, -1.0];
        let centres = parts
            .into_iter()
            .flat_map(|part| sides.into_iter().map(move |side| from.toward(to, part).add(normal.scaled(side * gap))));
        let places: Vec<Point> = centres.map(|centre| centre.add(Point { x: -width / 2.0, y: size * 0.35 })).collect();
        self.best_position(places.into_iter(), width, size)
    }

    /// Selects the first position with the least overlap.
    fn best_position(&mut self, places: impl Iterator<Item = Point>, width: f64, size: f64) -> Point {
        let area_at = |at: Point| Area {
            left: at.x - 2.0,
            top: at.y - size,
            right: at.x + width + 2.0,
            bottom: at.y + size * 0.3,
        };
        let cost = |at: &Point| (self.overlap_cost(area_at(*at)) * 16.0) as u64;
        let position = places.min_by_key(cost).expect("invariant: the list of positions is not empty");
        self.occupied.push(area_at(position));
        position
    }

    fn overlap_cost(&self, label: Area) -> f64 {
        let map = map_area();
        let outside = label.left < map.left || label.right > map.right;
        let outside = outside || label.top < map.top || label.bottom > map.bottom;
        let covered = self.occupied.iter().filter(|other| overlaps(label, **other)).count();
        let crossed = self.lines.iter().filter(|line| crosses(label, **line)).count();
        f64::from(u8::from(outside)) * 20.0 + covered as f64 * 8.0 + crossed as f64
    }
}

fn overlaps(one: Area, other: Area) -> bool {
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom
}

/// Whether a line crosses a label, checked every 5 pixels.
fn crosses(label: Area, LineSegment { from, to }: LineSegment) -> bool {
    let steps = (from.distance(to) / 5.0).ceil().max(1.0);
    (0..=steps as u32).any(|step| {
        let Point { x, y } = from.toward(to, f64::from(step) / steps);
        (label.left..=label.right).contains(&x) && (label.top..=label.bottom).contains(&y)
    })
}
