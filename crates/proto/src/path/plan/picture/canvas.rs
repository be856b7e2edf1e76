//! Lines, texts and marks as SVG.

use std::fmt::Write;

use crate::path::plan::Roles;

/// A point on the drawing, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
}

/// A straight line between two points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LineSegment {
    pub from: Point,
    pub to: Point,
}

/// A rectangle on the drawing, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Point {
    pub fn add(self, other: Self) -> Self {
        Self { x: self.x + other.x, y: self.y + other.y }
    }

    pub fn scaled(self, factor: f64) -> Self {
        Self { x: self.x * factor, y: self.y * factor }
    }

    pub fn distance(self, other: Self) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }

    /// The point at the share `part` of the line to `other`.
    pub fn toward(self, other: Self, part: f64) -> Self {
        Self { x: self.x + (other.x - self.x) * part, y: self.y + (other.y - self.y) * part }
    }

    /// The unit vector perpendicular to the line to `other`, in pixels.
    pub fn normal(self, other: Self) -> Self {
        let length = self.distance(other).max(1.0);
        Self { x: (self.y - other.y) / length, y: (other.x - self.x) / length }
    }
}

/// The drawing, to which elements are appended.
pub(super) struct Canvas {
    width: f64,
    body: String,
}

impl Canvas {
    pub fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    pub fn rectangle(&mut self, Area { left, top, right, bottom }: Area, fill: &str, stroke: &str) {
        let (width, height) = (right - left, bottom - top);
        self.add(format_args!(
            r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="{stroke}"/>"#
        ));
    }

    /// Draws a line; `dashes` is empty for a solid one.
    pub fn line(&mut self, LineSegment { from, to }: LineSegment, colour: &str, width: f64, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dashes}""#) };
        self.add(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}" stroke-width="{width}" stroke-linecap="round"{dashes}/>"#,
            from.x, from.y, to.x, to.y
        ));
    }

    /// Draws a text that begins at `at`, with a light outline that separates it from lines under it. The outline is a
    /// separate element, because renderers without `paint-order` paint the outline over the text.
    pub fn text(&mut self, at: Point, text: &str, colour: &str, size: f64, weight: &str) {
        let weight = if weight.is_empty() { "normal" } else { weight };
        let text = escape(text);
        let Point { x, y } = at;
        let font = format!(r#"x="{x:.1}" y="{y:.1}" font-size="{size}" font-weight="{weight}""#);
        self.add(format_args!(
            r##"<text {font} stroke="#f7f9fb" stroke-width="4" stroke-linejoin="round" aria-hidden="true">{text}</text>"##
        ));
        self.add(format_args!(r#"<text {font} fill="{colour}">{text}</text>"#));
    }

    /// Draws the mark of a site: a circle for clients, a square for servers, a diamond for a relay, a dashed diamond
    /// for a possible relay.
    pub fn site(&mut self, Point { x, y }: Point, roles: Roles) {
        if roles.server {
            self.add(format_args!(
                r##"<rect x="{:.1}" y="{:.1}" width="18" height="18" fill="#ffffff" stroke="#1b2733" stroke-width="2"/>"##,
                x - 9.0,
                y - 9.0
            ));
        }
        if roles.client {
            self.add(format_args!(
                r##"<circle cx="{x:.1}" cy="{y:.1}" r="9" fill="#ffffff" stroke="#1b2733" stroke-width="2"/>"##
            ));
        }
        if roles.relay || roles.possible {
            let (fill, dashes) = if roles.relay { ("#1b2733", "") } else { ("#ffffff", r#" stroke-dasharray="3 2""#) };
            let radius = if roles.client || roles.server { 5.0 } else { 9.0 };
            self.add(format_args!(
                r##"<polygon points="{:.1},{y:.1} {x:.1},{:.1} {:.1},{y:.1} {x:.1},{:.1}" fill="{fill}" stroke="#1b2733" stroke-width="1.6"{dashes}/>"##,
                x - radius,
                y - radius,
                x + radius,
                y + radius
            ));
        }
        if roles == Roles::default() {
            self.add(format_args!(r##"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="#8a97a3"/>"##));
        }
    }

    /// Draws a ring around the best place for the next relay.
    pub fn ring(&mut self, Point { x, y }: Point) {
        self.add(format_args!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="16" fill="none" stroke="#e69f00" stroke-width="3"/>"##
        ));
    }

    /// Draws the legend of the marks in one line that begins at `at`. Returns its lower edge.
    pub fn mark_legend(&mut self, at: Point) -> f64 {
        let with_role = |set: fn(&mut Roles)| {
            let mut roles = Roles::default();
            set(&mut roles);
            roles
        };
        let marks: [(Roles, &str, f64); 4] = [
            (with_role(|roles| roles.client = true), "clients", 84.0),
            (with_role(|roles| roles.server = true), "servers", 86.0),
            (with_role(|roles| roles.relay = true), "relay", 74.0),
            (with_role(|roles| roles.possible = true), "possible place (+)", 150.0),
        ];
        let mut x = at.x + 10.0;
        for (roles, word, width) in marks {
            self.site(Point { x, ..at }, roles);
            self.mark_text(x + 16.0, at.y, word);
            x += width;
        }
        self.ring(Point { x: x + 6.0, ..at });
        self.mark_text(x + 28.0, at.y, "best place for the next relay");
        x += 222.0;
        self.line(LineSegment { from: Point { x, ..at }, to: Point { x: x + 30.0, ..at } }, "#5b6b79", 1.6, "2 5");
        self.mark_text(x + 38.0, at.y, "direct");
        x += 88.0;
        self.line(LineSegment { from: Point { x, ..at }, to: Point { x: x + 30.0, ..at } }, "#5b6b79", 4.0, "");
        self.mark_text(x + 38.0, at.y, "most useful path, ~ estimated");
        at.y + 6.0
    }

    fn mark_text(&mut self, x: f64, y: f64, word: &str) {
        self.text(Point { x, y: y + 4.0 }, word, "#5b6b79", 12.0, "");
    }

    /// The complete SVG document of this height.
    pub fn finish(self, height: f64) -> String {
        let Self { width, body } = self;
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0}" viewBox="0 0 {0} {1:.0}" "#,
                r#"font-family="DejaVu Sans, Verdana, sans-serif">"#,
                "\n<rect width=\"100%\" height=\"100%\" fill=\"#f7f9fb\"/>\n{2}</svg>\n"
            ),
            width, height, body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a `String` does not fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
