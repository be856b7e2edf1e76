//! Key bindings, and their descriptions on the help page.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::{App, Page};

/// Whether the program continues after a key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyAction {
    Continue,
    Quit,
}

/// Keys and their descriptions for the help page.
pub const HELP: [(&str, &str); 12] = [
    ("Up Down k j", "one session up or down"),
    ("PgUp PgDn", "one screen up or down"),
    ("Home End g G", "the first session, the last one"),
    ("Enter", "the selected session with its recent history; Esc returns"),
    ("Left Right < >", "sort by the previous or next column, also by hidden ones"),
    ("r", "reverse the order"),
    ("/", "filter: list sessions with all words in client, target, ..."),
    ("", "Enter applies the filter, Esc restores the old one"),
    ("Esc", "clear the filter"),
    ("p Space", "pause updates"),
    ("? h", "this page; any key closes it"),
    ("q Ctrl-C", "quit"),
];

/// Maximum length of a filter in bytes.
const MAX_FILTER: usize = 100;

/// Applies a key press to the state.
pub fn on_key(app: &mut App, key: KeyEvent) -> KeyAction {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return KeyAction::Quit;
    }
    if std::mem::take(&mut app.shows_help) {
        return if key.code == KeyCode::Char('q') { KeyAction::Quit } else { KeyAction::Continue };
    }
    match app.page {
        Page::Filter { .. } => edit_filter(app, key.code, control),
        _ if key.code == KeyCode::Char('q') => return KeyAction::Quit,
        Page::Session(_) => on_session_key(app, key.code),
        Page::List => on_list_key(app, key.code),
    }
    KeyAction::Continue
}

fn on_session_key(app: &mut App, key: KeyCode) {
    match key {
        KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => app.page = Page::List,
        KeyCode::Char('p' | ' ') => app.paused = !app.paused,
        KeyCode::Char('?' | 'h') => app.shows_help = true,
        _ => {}
    }
}

fn on_list_key(app: &mut App, key: KeyCode) {
    let (list, sessions) = (&mut app.list, &app.live.sessions);
    let page = isize::try_from(app.visible_rows).unwrap_or(isize::MAX);
    match key {
        KeyCode::Up | KeyCode::Char('k') => list.move_selection(-1, sessions),
        KeyCode::Down | KeyCode::Char('j') => list.move_selection(1, sessions),
        KeyCode::PageUp => list.move_selection(-page, sessions),
        KeyCode::PageDown => list.move_selection(page, sessions),
        KeyCode::Home | KeyCode::Char('g') => list.move_selection(isize::MIN, sessions),
        KeyCode::End | KeyCode::Char('G') => list.move_selection(isize::MAX, sessions),
        KeyCode::Left | KeyCode::Char('<') => list.sort_by_next(-1, sessions),
        KeyCode::Right | KeyCode::Char('>') => list.sort_by_next(1, sessions),
        KeyCode::Char('r') => list.reverse(sessions),
        KeyCode::Char('p' | ' ') => app.paused = !app.paused,
        KeyCode::Char('?' | 'h') => app.shows_help = true,
        KeyCode::Char('/') => app.page = Page::Filter { before: list.filter().to_owned() },
        KeyCode::Esc => list.set_filter(String::new(), sessions),
        KeyCode::Enter => app.open_selected(),
        _ => {}
    }
}

/// Edits the filter. Each change filters the list immediately.
fn edit_filter(app: &mut App, key: KeyCode, control: bool) {
    let Page::Filter { before } = &app.page else { return };
    let mut filter = app.list.filter().to_owned();
    match key {
        KeyCode::Enter => {
            app.page = Page::List;
            return;
        }
        KeyCode::Esc => {
            filter.clone_from(before);
            app.page = Page::List;
        }
        KeyCode::Backspace => {
            filter.pop();
        }
        KeyCode::Char('u') if control => filter.clear(),
        KeyCode::Char(letter) if !control && filter.len() < MAX_FILTER => filter.push(letter),
        _ => return,
    }
    app.list.set_filter(filter, &app.live.sessions);
}
