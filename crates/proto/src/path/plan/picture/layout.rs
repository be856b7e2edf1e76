//! Where sites are on the drawing.

use super::canvas::{Area, Point};
use crate::path::plan::{Position, Site};

/// Width of the whole drawing.
pub(super) const WIDTH: f64 = 1000.0;

/// Room between the outermost sites and the edge, for their names.
const MARGIN: f64 = 90.0;

/// The part that is the map.
pub(super) fn map_area() -> Area {
    Area { left: 16.0, top: 16.0, right: WIDTH - 16.0, bottom: 560.0 }
}

/// Every site's place.
pub(super) struct Layout {
    pub points: Vec<Point>,
    pub graticule: Vec<GraticuleLine>,
}

/// A line of equal latitude or longitude.
pub(super) struct GraticuleLine {
    pub ends: (Point, Point),
    pub label: String,
    pub label_at: Point,
}

impl Layout {
    /// A map if all sites have a position.
    pub fn of(sites: &[Site]) -> Self {
        let positions: Option<Vec<Position>> = sites.iter().map(|site| site.position).collect();
        positions.filter(|positions| !positions.is_empty()).map_or_else(|| column_layout(sites), |all| map_layout(&all))
    }
}

/// From degrees to pixels: equal scale both ways in the middle of the map.
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
        let wide = (right - left - 2.0 * MARGIN) / ((longitudes.1 - longitudes.0) * squeeze).max(0.5);
        let high = (bottom - top - MARGIN) / (latitudes.1 - latitudes.0).max(0.5);
        Self { west, squeeze, scale: wide.min(high), centre }
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

/// The site behind the widest gap, going east: so no map is cut in the middle of its sites.
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
                graticule.push(GraticuleLine { ends: (Point { x: left, y }, Point { x: right, y }), label, label_at });
            }
        }
        if degrees > -180.0 && degrees <= 180.0 {
            // One turn to either side, so that lines left of the first site are drawn too.
            let turn = 360.0 * projection.squeeze * projection.scale;
            let x = projection.point(Position { latitude: 0.0, longitude: degrees }).x;
            if let Some(x) = [x - turn, x, x + turn].into_iter().find(|x| *x > left && *x < right - 30.0) {
                let label = format!("{}{}", degrees.abs(), if degrees < 0.0 { "W" } else { "E" });
                let label_at = Point { x: x + 3.0, y: bottom - 5.0 };
                graticule.push(GraticuleLine { ends: (Point { x, y: top }, Point { x, y: bottom }), label, label_at });
            }
        }
    }
    Layout { points, graticule }
}

/// Clients to the left, servers to the right, all others between them.
fn column_layout(sites: &[Site]) -> Layout {
    let column = |site: &Site| match (site.roles.client, site.roles.server) {
        (true, false) => 0,
        (false, true) => 2,
        _ => 1,
    };
    let mut seen = [0_usize; 3];
    let mut total = [0_usize; 3];
    sites.iter().for_each(|site| total[column(site)] += 1);
    // An even number of rows in the middle: none is on the straight line from a single client to a single server.
    total[1] = total[1].next_multiple_of(2);
    let Area { left, top, right, bottom } = map_area();
    let points = sites.iter().map(|site| {
        let column = column(site);
        let part = (seen[column] as f64 + 0.5) / total[column].max(1) as f64;
        // To and fro, so that lines between relays do not run through others.
        let aside = if column == 1 && seen[column] % 2 == 1 { 90.0 } else { 0.0 };
        seen[column] += 1;
        let x = [left + MARGIN, f64::midpoint(left, right) - 45.0 + aside, right - MARGIN][column];
        Point { x, y: top + (bottom - top) * part }
    });
    Layout { points: points.collect(), graticule: Vec::new() }
}
