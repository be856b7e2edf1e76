//! Draws the two summary lines at the top and the line of keys at the bottom.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::draw_text;
use crate::amount::short;
use crate::answer::Pool;
use crate::app::{App, Page};

/// Screens with fewer rows show only the body, and a line while the relay does not answer.
const MIN_HEIGHT: u16 = 8;

/// Draws the three lines if they fit, and returns the remaining area.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) -> Rect {
    let (x, bottom) = (area.x, area.bottom());
    if area.height < MIN_HEIGHT {
        let Some(outage) = outage_line(app).filter(|_| area.height > 1) else { return area };
        draw_text(buffer, Position::new(x, area.y), &outage, area.width, app.theme, app.theme.warning());
        return inset(area, 1, 0);
    }
    draw_text(buffer, Position::new(x, area.y), &relay_line(app), area.width, app.theme, app.theme.strong());
    let (text, style) = match outage_line(app) {
        Some(outage) => (outage, app.theme.warning()),
        None => (state_line(app), Style::new()),
    };
    draw_text(buffer, Position::new(x, area.y + 1), &text, area.width, app.theme, style);
    draw_text(buffer, Position::new(x, bottom - 1), &key_line(app), area.width, app.theme, app.theme.dim());
    inset(area, 2, 1)
}

fn inset(area: Rect, above: u16, under: u16) -> Rect {
    Rect { y: area.y + above, height: area.height - above - under, ..area }
}

/// Returns the relay's version and address, its number of sessions, and their total rates.
fn relay_line(app: &App) -> String {
    let (summary, count) = (&app.live.summary, app.live.sessions.len());
    let [down, up] = summary.rates.map(short);
    let plural = if count == 1 { "session" } else { "sessions" };
    format!("ekiden {}  {count} {plural}  down {down} up {up} bit/s  at {}", summary.version, app.relay)
}

fn outage_line(app: &App) -> Option<String> {
    let lost = app.outage.as_ref()?;
    let since = if lost.seconds == 0 { String::new() } else { format!(" for {} s", lost.seconds) };
    Some(format!("no answer from {}{since}: {}; is `ekiden run` up? Still asking", app.relay, lost.why))
}

/// Returns sort order and filter of the list, and the relay's pipes and pools.
fn state_line(app: &App) -> String {
    let (list, summary) = (&app.list, &app.live.summary);
    let mut parts = Vec::new();
    if app.paused {
        parts.push("PAUSED".to_owned());
    }
    let order = match (list.sort().is_text(), list.is_descending()) {
        (false, true) => "highest first",
        (false, false) => "lowest first",
        (true, true) => "from Z",
        (true, false) => "from A",
    };
    parts.push(format!("by {}, {order}", list.sort()));
    if !list.filter().is_empty() {
        parts.push(format!("{} with \"{}\"", list.len(), list.filter()));
    }
    if let Some((open, idle)) = summary.pipes {
        let plural = if open == 1 { "pipe" } else { "pipes" };
        parts.push(format!("{open} {plural} ({idle} idle)"));
    }
    if !summary.pools.is_empty() {
        parts.push(format!("ready {}", summary.pools.iter().map(pool_text).collect::<Vec<_>>().join(", ")));
    }
    parts.join("  ")
}

fn pool_text(pool: &Pool) -> String {
    let Pool { relay, up, ready, wanted } = pool;
    if *up { format!("{relay} {ready}/{wanted}") } else { format!("{relay} DOWN") }
}

fn key_line(app: &App) -> String {
    match &app.page {
        _ if app.shows_help => "any key closes this page, q quits".to_owned(),
        Page::List => "q quit  Enter session  / filter  < > sort  r reverse  p pause  ? help".to_owned(),
        Page::Filter { .. } => format!("filter: {}_   Enter applies it, Esc restores the old one", app.list.filter()),
        Page::Session(_) => "q quit  Esc back to the list  p pause  ? help".to_owned(),
    }
}
