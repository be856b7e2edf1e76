//! Draws the details of one session: directions, sections and recent history.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::{draw_lines, draw_text, plot, wrap};
use crate::amount::{age, bytes, milliseconds, percent, short};
use crate::answer::Direction::{Down, Up};
use crate::answer::{ChosenPath, DIRECTIONS, Direction, Jump, Limit, Section, Session};
use crate::app::FollowedSession;
use crate::history::Quantity::{Queued, Rate, Rtt};
use crate::history::{History, Quantity};
use crate::theme::Theme;

/// The plots, the most important first. A low screen shows only the first ones.
const PLOTS: [(Quantity, Direction); 6] =
    [(Rate, Down), (Rate, Up), (Rtt, Up), (Rtt, Down), (Queued, Up), (Queued, Down)];

/// Maximum height of a plot in rows.
const MAX_PLOT_HEIGHT: u16 = 4;

pub fn draw(followed: &FollowedSession, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let (title, directions) = (title(followed, theme, area.width), directions(followed, theme, area.width));
    let text = title.into_iter().chain(directions).chain(sections(followed, theme));
    let used = draw_lines(text, area, buffer);
    plots(&followed.history, theme, Rect { y: area.y + used, height: area.height - used, ..area }, buffer);
}

/// Returns the lines that identify the session and its path.
fn title(followed: &FollowedSession, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let Session { session, client, target, server, path, listener, user, peer, trace, chosen, seconds, .. } =
        &followed.running.session;
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let named = |name: &str, text: &Option<String>| text.as_ref().map(|text| format!("  {name} {text}"));
    let ended_note = if followed.is_over { "ENDED, last values: " } else { "" };
    let first = format!("Session {session}, {}: {client} -> {}", age(*seconds), or_dash(target));
    let details = [named("user", user), named("relay", peer), named("trace", trace)].into_iter().flatten();
    let by = format!("by {}, server {}, listener {}", or_dash(path), or_dash(server), or_dash(listener));
    let mut title = vec![
        Line::from(vec![Span::styled(ended_note, theme.warning()), Span::styled(first, theme.strong())]),
        Line::raw(by + &details.collect::<String>()),
    ];
    if let Some(ChosenPath { reason, why }) = chosen {
        title.extend(wrap(&format!("chosen, {reason}: {why}"), "", width));
    }
    title
}

/// Returns rate, bytes and limit of each direction.
fn directions(followed: &FollowedSession, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let running = &followed.running;
    let direction = |side| {
        let word = match side {
            Down => "down",
            Up => "up",
        };
        let rate = running.rate(side).map_or_else(|| "-".to_owned(), short);
        let moved = bytes(running.session.bytes(side));
        let limit = running.session.limit(side);
        let by = limit.map_or_else(|| "-".to_owned(), Limit::factor);
        let first = format!("{word:<5}{rate:>5} bit/s, {moved:>5} bytes in all, limited by {by}");
        let why = limit.filter(|limit| !limit.why.is_empty()).map(|limit| wrap(&limit.why, "     ", width));
        std::iter::once(Line::styled(first, theme.strong())).chain(why.into_iter().flatten())
    };
    DIRECTIONS.into_iter().flat_map(direction).collect()
}

/// Returns the kernel's figures of both sections side by side (`TCP_INFO`, tcp(7)).
fn sections(followed: &FollowedSession, theme: Theme) -> Vec<Line<'static>> {
    let pick = |side| followed.running.session.section(side);
    let row = |name: &str, text: fn(&Section) -> Option<String>| {
        let [down, up] = DIRECTIONS.map(|side| pick(side).and_then(text).unwrap_or_else(|| "-".to_owned()));
        Line::raw(format!("{name:<30}{down:<24}{up}"))
    };
    let has_jump = DIRECTIONS.into_iter().any(|side| pick(side).is_some_and(|section| section.jump.is_some()));
    let jump = has_jump.then(|| {
        row("jump, outcome", |section| {
            section.jump.as_ref().map(|Jump { bytes: sent, outcome }| format!("{}, {outcome}", bytes(*sent)))
        })
    });
    let mut lines = vec![
        Line::styled(format!("{:<30}{:<24}{}", "section", "down, to the client", "up, to the server"), theme.heading()),
        row("RTT ms", |section| section.rtt_seconds.map(milliseconds)),
        row("RTT without queues", |section| section.base_rtt_seconds.map(milliseconds)),
        row("packets: window, queued", |section| {
            let queued = section.queued.map_or_else(|| "-".to_owned(), |queued| queued.to_string());
            section.window.map(|window| format!("{window}, {queued}"))
        }),
        row("retransmitted", |section| {
            let (again, sent) = (section.retransmitted? as f64, section.segments_out.unwrap_or(0) as f64);
            Some(format!("{again:.0}{}", percent(again, sent).map_or_else(String::new, |share| format!(" ({share})"))))
        }),
        row("held by receiver, by buffer", |section| {
            let busy = section.busy_seconds?;
            let share = |held: Option<f64>| percent(held?, busy).or_else(|| Some("0 %".to_owned()));
            Some(format!("{}, {}", share(section.rwnd_limited_seconds)?, share(section.sndbuf_limited_seconds)?))
        }),
        row("delivers, congestion control", |section| {
            let rate = section.delivery_rate.map_or_else(|| "-".to_owned(), |rate| short(rate as f64 * 8.0));
            Some(format!("{rate} bit/s, {}", section.congestion.as_deref().unwrap_or("-")))
        }),
        row("start", Section::start_text),
    ];
    lines.extend(jump);
    lines
}

/// Draws as many plots as fit, and below them the time that they cover.
fn plots(history: &History, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let count = PLOTS.len().min(usize::from(area.height.saturating_sub(1)));
    let Some(height) = (area.height.saturating_sub(1)).checked_div(count as u16) else { return };
    let height = height.min(MAX_PLOT_HEIGHT);
    for (at, (quantity, side)) in PLOTS[..count].iter().enumerate() {
        let y = area.y + at as u16 * height;
        plot::draw(history, *quantity, *side, theme, Rect { y, height, ..area }, buffer);
    }
    let axis = format!("the last {}, the newest at the right", age(history.span()));
    draw_text(buffer, Position::new(area.x, area.y + count as u16 * height), &axis, area.width, theme, theme.dim());
}
