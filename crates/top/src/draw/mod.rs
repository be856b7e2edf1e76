//! Draws the state into a character buffer. No function here blocks or does I/O.

mod list;
mod plot;
mod session;
mod summary;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::app::{App, Page};
use crate::keys::HELP;
use crate::theme::Theme;

/// Draws the whole screen: summary, current page or help, and the line of keys.
pub fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let body = summary::draw(app, area, buffer);
    match &app.page {
        _ if app.shows_help => draw_help(app.theme, body, buffer),
        Page::List | Page::Filter { .. } => list::draw(app, body, buffer),
        Page::Session(followed) => session::draw(followed, app.theme, body, buffer),
    }
}

fn draw_help(theme: Theme, area: Rect, buffer: &mut Buffer) {
    let line = |(keys, effect): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{keys:<16}"), theme.strong()), Span::raw(*effect)])
    };
    let notes = [
        "",
        "DOWN is toward the client, UP toward the server, for bytes and for sections.",
        "Queued and window count packets, retrans counts segments.",
        "LIMITED BY names the section that limits the faster direction, and the cause.",
        "Enter shows the reason in words.",
    ];
    draw_lines(HELP.iter().map(line).chain(notes.map(Line::raw)), area, buffer);
}

/// Draws lines from the top of `area`, as many as fit, and returns their number.
fn draw_lines<'a>(lines: impl IntoIterator<Item = Line<'a>>, area: Rect, buffer: &mut Buffer) -> u16 {
    let mut used = 0;
    for (row, line) in area.rows().zip(lines) {
        line.render(row, buffer);
        used += 1;
    }
    used
}

/// Writes text into at most `width` columns, clipped at the edge of the screen. Truncated text ends in an ellipsis.
fn draw_text(buffer: &mut Buffer, at: Position, text: &str, width: u16, theme: Theme, style: Style) {
    if !buffer.area.contains(at) {
        return;
    }
    let width = width.min(buffer.area.right() - at.x);
    let (end, _) = buffer.set_stringn(at.x, at.y, text, usize::from(width), style);
    if Span::raw(text).width() > usize::from(width) && end > at.x {
        buffer.set_stringn(end - 1, at.y, theme.ellipsis(), 1, style);
    }
}

/// Wraps text at spaces into lines of at most `width` characters, each of which starts with `indent`.
fn wrap(text: &str, indent: &str, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![indent.to_owned()];
    let mut is_line_empty = true;
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if !is_line_empty && last + 1 + word.chars().count() > usize::from(width) {
            lines.push(indent.to_owned());
            is_line_empty = true;
        }
        let line = lines.len() - 1;
        if !std::mem::replace(&mut is_line_empty, false) {
            lines[line].push(' ');
        }
        lines[line].push_str(word);
    }
    lines.into_iter().map(Line::raw).collect()
}
