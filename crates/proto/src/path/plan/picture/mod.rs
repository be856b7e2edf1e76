//! A plan as a drawing (SVG): a map if every site has a position, otherwise clients to the left, relays in the middle,
//! servers to the right. Sections are thin lines; the most useful path of each traffic is a thick line, labelled with
//! round trips and gains.

mod canvas;
mod layout;

use super::verdict::{path_name, placement_verdict};
use super::{Plan, PlanInput, RttSource, TrafficPaths};
use crate::quantity::{compact_size, factor, milliseconds};
use canvas::{Canvas, LineSegment, Point};
use layout::LabelPlacer;
use layout::Layout;

/// One colour per traffic, distinguishable with most forms of colour blindness (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56707f"];

/// Maximum number of traffics in the legend.
const MAX_LEGEND_LINES: usize = 8;

/// Pixels between paths that share a section.
const LINE_SPACING: f64 = 6.0;

/// Draws a plan as SVG.
#[must_use]
pub fn render_svg(network: &PlanInput, plan: &Plan) -> String {
    let layout = Layout::of(&network.sites);
    let mut drawing =
        Drawing { network, plan, canvas: Canvas::new(layout::WIDTH), labels: LabelPlacer::default(), layout };
    drawing.background();
    drawing.sections();
    let notes = drawing.paths();
    drawing.sites();
    drawing.notes(notes);
    let bottom = drawing.legend();
    drawing.canvas.finish(bottom)
}

struct Drawing<'a> {
    network: &'a PlanInput,
    plan: &'a Plan,
    canvas: Canvas,
    labels: LabelPlacer,
    layout: Layout,
}

/// A label beside a line.
struct Note {
    line: LineSegment,
    text: String,
    colour: &'static str,
    is_gain: bool,
}

impl Drawing<'_> {
    fn background(&mut self) {
        let Self { canvas, layout, .. } = self;
        canvas.rectangle(layout::map_area(), "#f7f9fb", "#d5dde4");
        for line in &layout.graticule {
            canvas.line(line.line, "#e3e9ee", 1.0, "");
            canvas.text(line.label_at, &line.label, "#9aa7b2", 10.0, "");
        }
    }

    /// Draws the known sections as thin lines.
    fn sections(&mut self) {
        for (one, other, entry) in self.network.matrix.entries() {
            if entry.source != RttSource::Estimated {
                self.canvas.line(self.line(one, other), "#c3ccd4", 1.0, "");
            }
        }
    }

    fn line(&self, one: usize, other: usize) -> LineSegment {
        LineSegment { from: self.layout.points[one], to: self.layout.points[other] }
    }

    /// Draws the direct path and the most useful path of each traffic.
    fn paths(&mut self) -> Vec<Note> {
        let mut notes = Vec::new();
        for (pair, colour) in self.plan.pairs.iter().zip(COLOURS.iter().cycle()) {
            let best = pair.best();
            if !best.is_direct() {
                self.direct(pair, colour, &mut notes);
            }
            let stops = super::ranking::stops(self.network, pair.traffic, &best.relays);
            let mut longest: Option<(f64, LineSegment)> = None;
            for section in stops.windows(2) {
                let line = self.offset_line(pair, section[0], section[1]);
                self.canvas.line(line, colour, 4.0, "");
                self.labels.avoid_line(line);
                notes.extend(self.round_trip(section[0], section[1], line, colour));
                let length = line.from.distance(line.to);
                if longest.is_none_or(|(most, _)| length > most) {
                    longest = Some((length, line));
                }
            }
            if let (Some((_, line)), false) = (longest, best.is_direct()) {
                let gain = best.gains.iter().copied().fold(1.0, f64::max);
                notes.push(Note { line, text: format!("up to {} x", factor(gain)), colour, is_gain: true });
            }
        }
        notes
    }

    fn direct(&mut self, pair: &TrafficPaths, colour: &'static str, notes: &mut Vec<Note>) {
        let traffic = self.network.traffic[pair.traffic];
        let line = self.line(traffic.client, traffic.server);
        self.canvas.line(line, colour, 1.6, "2 5");
        self.labels.avoid_line(line);
        notes.extend(self.round_trip(traffic.client, traffic.server, line, colour));
    }

    fn round_trip(&self, one: usize, other: usize, line: LineSegment, colour: &'static str) -> Option<Note> {
        let entry = self.network.matrix.get(one, other)?;
        let mark = if entry.source == RttSource::Estimated { "~" } else { "" };
        Some(Note { line, text: format!("{mark}{} ms", milliseconds(entry.rtt)), colour, is_gain: false })
    }

    /// The line of a section, offset if several paths share it.
    fn offset_line(&self, pair: &TrafficPaths, one: usize, other: usize) -> LineSegment {
        let shares_section = |other_pair: &&TrafficPaths| {
            let stops = super::ranking::stops(self.network, other_pair.traffic, &other_pair.best().relays);
            stops
                .windows(2)
                .any(|ends| (ends[0].min(ends[1]), ends[0].max(ends[1])) == (one.min(other), one.max(other)))
        };
        let sharing_traffics: Vec<usize> =
            self.plan.pairs.iter().filter(shares_section).map(|pair| pair.traffic).collect();
        let lane = sharing_traffics.iter().position(|traffic| *traffic == pair.traffic).unwrap_or(0);
        let offset = (lane as f64 - (sharing_traffics.len() as f64 - 1.0) / 2.0) * LINE_SPACING;
        // Both directions of a section use one side.
        let LineSegment { from: low, to: high } = self.line(one.min(other), one.max(other));
        let shift = low.normal(high).scaled(offset);
        let LineSegment { from, to } = self.line(one, other);
        LineSegment { from: from.add(shift), to: to.add(shift) }
    }

    fn sites(&mut self) {
        let recommended: &[usize] =
            self.plan.single_placements.first().filter(|one| one.gain > 1.01).map_or(&[], |one| &one.sites);
        for (site, point) in self.network.sites.iter().zip(self.layout.points.clone()) {
            self.canvas.site(point, site.roles);
            self.labels.avoid_point(point);
        }
        for place in recommended {
            self.canvas.ring(self.layout.points[*place]);
        }
        for (site, point) in self.network.sites.iter().zip(&self.layout.points) {
            let at = self.labels.place_at_point(*point, &site.name, 14.0);
            self.canvas.text(at, &site.name, "#1b2733", 14.0, "bold");
        }
    }

    fn notes(&mut self, notes: Vec<Note>) {
        let mut drawn: Vec<(LineSegment, String)> = Vec::new();
        for Note { line, text, colour, is_gain } in notes {
            // Paths that share a section share its round trip.
            let is_duplicate = |(other, drawn_text): &(LineSegment, String)| {
                let is_close = |a: Point, b: Point| a.distance(b) < 4.0 * LINE_SPACING;
                *drawn_text == text
                    && (is_close(other.from, line.from) && is_close(other.to, line.to)
                        || is_close(other.from, line.to) && is_close(other.to, line.from))
            };
            if drawn.iter().any(is_duplicate) {
                continue;
            }
            let size = if is_gain { 14.0 } else { 12.0 };
            let at = self.labels.place_at_line(line, &text, size);
            self.canvas.text(at, &text, colour, size, if is_gain { "bold" } else { "" });
            drawn.push((line, text));
        }
    }

    /// Draws the legend: the paths in words, the marks, and the verdict. Returns its lower edge.
    fn legend(&mut self) -> f64 {
        let mut y = layout::map_area().bottom + 26.0;
        let left = layout::map_area().left;
        for (pair, colour) in self.plan.pairs.iter().zip(COLOURS.iter().cycle()).take(MAX_LEGEND_LINES) {
            self.canvas.line(
                LineSegment { from: Point { x: left, y: y - 4.0 }, to: Point { x: left + 26.0, y: y - 4.0 } },
                colour,
                4.0,
                "",
            );
            for line in wrap_words(&describe_pair(self.network, pair), 118) {
                self.canvas.text(Point { x: left + 36.0, y }, &line, "#1b2733", 13.0, "");
                y += 18.0;
            }
            y += 3.0;
        }
        let more = self.plan.pairs.len().saturating_sub(MAX_LEGEND_LINES);
        if more > 0 {
            let text = format!("and {more} more");
            self.canvas.text(Point { x: left + 36.0, y }, &text, "#5b6b79", 13.0, "");
            y += 20.0;
        }
        y = self.canvas.mark_legend(Point { x: left, y: y + 8.0 }) + 26.0;
        for line in wrap_words(&placement_verdict(self.network, self.plan), 118) {
            self.canvas.text(Point { x: left, y }, &line, "#1b2733", 13.0, "bold");
            y += 18.0;
        }
        y + 4.0
    }
}

fn describe_pair(network: &PlanInput, pair: &TrafficPaths) -> String {
    let traffic = network.traffic[pair.traffic];
    let (best, direct) = (pair.best(), pair.direct());
    let ends = format!("{} to {}", network.name(traffic.client), network.name(traffic.server));
    let direct = format!("direct {} ms", milliseconds(direct.rtt));
    if best.is_direct() {
        return format!("{ends}: {direct}, and no relay helps");
    }
    let gain_text = |(bytes, gain): (&u64, &f64)| format!("{}\u{a0}{}", compact_size(*bytes), factor(*gain));
    let gains = network.sizes.iter().zip(&best.gains).map(gain_text).collect::<Vec<_>>().join(", ");
    format!(
        "{ends}: {} ({} ms; {direct}), times as fast: {gains}",
        path_name(network, &best.relays),
        milliseconds(best.rtt)
    )
}

/// Wraps text to lines of at most `max_bytes` bytes.
fn wrap_words(text: &str, max_bytes: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("invariant: a label has a line");
        if line.is_empty() {
            word.clone_into(line);
        } else if line.len() + 1 + word.len() > max_bytes {
            lines.push(word.to_owned());
        } else {
            *line += " ";
            *line += word;
        }
    }
    lines
}
