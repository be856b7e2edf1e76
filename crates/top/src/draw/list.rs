//! Draws the table of sessions. The work depends on the number of visible rows only.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::draw_text;
use crate::app::App;
use crate::column::Column;
use crate::fit::fit;
use crate::live::LiveSession;
use crate::theme::Theme;

/// The two lines of headings are drawn if the table area has at least this many rows.
const MIN_HEIGHT_FOR_HEADINGS: u16 = 5;

pub fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let columns = fit(area.width, app.list.sort());
    let headed = if area.height >= MIN_HEIGHT_FOR_HEADINGS { 2 } else { 0 };
    if headed > 0 {
        groups(&columns, app.theme, area, buffer);
        headings(&columns, app, area, buffer);
    }
    let body = Rect { y: area.y + headed, height: area.height - headed, ..area };
    app.visible_rows = usize::from(body.height).max(1);
    let theme = app.theme;
    let (visible, cursor) = app.list.visible(app.visible_rows, &app.live.sessions);
    rows(visible, cursor, &columns, theme, body, buffer);
    if app.list.len() == 0 {
        let nothing =
            if app.list.filter().is_empty() { "no sessions" } else { "no session matches the filter; Esc clears it" };
        draw_text(buffer, Position::new(body.x, body.y), nothing, body.width, theme, theme.dim());
    }
}

/// Draws one row per session, as many as fit. Row `selected` is highlighted.
fn rows<'a>(
    sessions: impl Iterator<Item = &'a LiveSession>,
    selected: usize,
    columns: &[(Column, u16)],
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    for (at, (row, running)) in area.rows().zip(sessions).enumerate() {
        let style = if at == selected { theme.selected() } else { Style::new() };
        buffer.set_style(row, style);
        let mut x = row.x;
        for (column, width) in columns {
            draw_cell(buffer, Position::new(x, row.y), *column, *width, &column.text(running), theme, style);
            x += width + 1;
        }
    }
}

fn headings(columns: &[(Column, u16)], app: &App, area: Rect, buffer: &mut Buffer) {
    let mut x = area.x;
    for (column, width) in columns {
        let style = if *column == app.list.sort() { app.theme.sorted() } else { app.theme.heading() };
        draw_cell(buffer, Position::new(x, area.y + 1), *column, *width, column.heading(), app.theme, style);
        x += width + 1;
    }
}

/// Draws the heading that both columns of a pair (down and up) share, centred over the pair.
fn groups(columns: &[(Column, u16)], theme: Theme, area: Rect, buffer: &mut Buffer) {
    let mut x = area.x;
    let mut before = "";
    for (column, width) in columns {
        let group = column.group();
        if group != before && !group.is_empty() {
            let pair_width = 2 * width + 1;
            draw_text(
                buffer,
                Position::new(x, area.y),
                &format!("{group:^0$}", usize::from(pair_width)),
                pair_width,
                theme,
                theme.heading(),
            );
        }
        before = group;
        x += width + 1;
    }
}

/// Draws a cell: text is left-aligned, numbers are right-aligned.
fn draw_cell(buffer: &mut Buffer, at: Position, column: Column, width: u16, text: &str, theme: Theme, style: Style) {
    let padding = usize::from(width).saturating_sub(text.len());
    if column.is_text() || padding == 0 {
        draw_text(buffer, at, text, width, theme, style);
    } else {
        draw_text(buffer, at, &format!("{:padding$}{text}", ""), width, theme, style);
    }
}
