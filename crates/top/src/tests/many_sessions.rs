//! Ten thousand sessions: drawing and moving access only visible rows, and memory is bounded. No time is measured.

use super::*;
use crate::answer::Session;
use crate::column::COLUMNS;
use crate::history::MAX_SESSIONS;
use crate::list::SessionList;

const MANY: u64 = 10_000;

fn many_sessions(second: u64) -> SessionsResponse {
    let all = answer(&[session(0, "", second, 0)]);
    let one = |number| {
        let target = Some(format!("host-{number}.example:443"));
        let bytes_down = (1000 + number * 7919 % 100_003) * second;
        Session { session: number, target, bytes_down, ..all.sessions[0].clone() }
    };
    SessionsResponse { sessions: (0..MANY).map(one).collect(), ..all.clone() }
}

fn app_with_many_sessions() -> App {
    let mut app = app();
    feed(&mut app, many_sessions(1));
    feed(&mut app, many_sessions(2));
    app
}

#[test]
fn drawing_accesses_only_visible_rows() {
    let mut app = app_with_many_sessions();
    app.list = SessionList::new("session".parse().unwrap(), String::new());
    app.list.reverse(&app.live.sessions);
    let before = lines(&mut app, 80, 24);
    // In the order of session numbers, row `n` is `sessions[n]`, so an access to a row below the screen panics.
    app.live.sessions.truncate(app.visible_rows);
    assert_eq!(lines(&mut app, 80, 24)[1..], before[1..]);
}

#[test]
fn end_and_page_keys_move_by_a_screen() {
    let mut app = app_with_many_sessions();
    let shown = lines(&mut app, 80, 24);
    assert!(shown[0].contains("10000 sessions  down 4.0"), "{shown:#?}");
    assert_eq!(app.visible_rows, 19, "24 lines less three lines and two headings");
    press_key(&mut app, KeyCode::End);
    let last = *listed(&app).last().unwrap();
    assert!(lines(&mut app, 80, 24)[22].starts_with(&format!("{last:>7} ")), "{:#?}", lines(&mut app, 80, 24));
    for _ in 0..3 {
        press_key(&mut app, KeyCode::PageUp);
    }
    let first = listed(&app)[MANY as usize - 1 - 3 * 19];
    assert!(lines(&mut app, 80, 24)[4].starts_with(&format!("{first:>7} ")), "{:#?}", lines(&mut app, 80, 24));
}

#[test]
fn moving_and_drawing_do_not_sort_again() {
    let mut app = app_with_many_sessions();
    let sorted = listed(&app);
    // The list stores indices, so it is unsorted until the next sort.
    app.live.sessions.reverse();
    let unsorted = listed(&app);
    assert_ne!(unsorted, sorted);
    for press in [KeyCode::Down, KeyCode::PageDown, KeyCode::End, KeyCode::Home] {
        press_key(&mut app, press);
        lines(&mut app, 80, 24);
    }
    assert_eq!(listed(&app), unsorted);
    app.list.filter_and_sort(&app.live.sessions);
    assert_eq!(listed(&app), sorted, "another sort restores the order");
}

#[test]
fn many_sessions_sort_by_every_column_with_bounded_histories() {
    let mut app = app_with_many_sessions();
    feed(&mut app, many_sessions(3));
    for _ in 0..COLUMNS.len() {
        let column = app.list.sort();
        let sessions: Vec<_> = app.list.listed(&app.live.sessions).collect();
        assert_eq!(sessions.len(), MANY as usize);
        assert!(
            sessions.windows(2).all(|pair| column.compare(app.list.is_descending(), pair[0], pair[1]).is_le()),
            "{column}"
        );
        press_key(&mut app, KeyCode::Char('>'));
    }
    assert!(listed(&app).len() > MAX_SESSIONS);
    press_key(&mut app, KeyCode::Enter);
    assert!(
        lines(&mut app, 80, 24).iter().any(|line| line.starts_with("the last 1s")),
        "the first sessions have a history"
    );
    press_key(&mut app, KeyCode::Esc);
    press_key(&mut app, KeyCode::End);
    press_key(&mut app, KeyCode::Enter);
    assert!(
        lines(&mut app, 80, 24).iter().any(|line| line.starts_with("the last 0s")),
        "the history of the last sessions begins now"
    );
    feed(&mut app, many_sessions(4));
    feed(&mut app, many_sessions(5));
    assert!(
        lines(&mut app, 80, 24).iter().any(|line| line.starts_with("the last 1s")),
        "{:#?}",
        lines(&mut app, 80, 24)
    );
}

#[test]
fn filter_finds_a_session_among_many() {
    let mut app = app();
    feed(&mut app, many_sessions(1));
    type_text(&mut app, "/host-77. ");
    assert_eq!(listed(&app), [77]);
    press_key(&mut app, KeyCode::Enter);
    assert!(lines(&mut app, 80, 24)[1].contains("1 with \"host-77. \""));
}
