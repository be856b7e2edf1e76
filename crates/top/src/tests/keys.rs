//! Effects of keys.

use super::*;
use crate::app::Page;
use crate::column::COLUMNS;
use crate::keys::HELP;

#[test]
fn every_column_sorts_with_unknown_values_last() {
    let mut app = app_with_rates();
    let start = app.list.sort();
    for _ in 0..COLUMNS.len() {
        let column = app.list.sort();
        let values: Vec<_> = app.list.listed(&app.live.sessions).collect();
        for pair in values.windows(2) {
            assert!(column.compare(app.list.is_descending(), pair[0], pair[1]).is_le(), "{column}");
        }
        let shown = lines(&mut app, 80, 24);
        assert!(shown[1].contains(&format!("by {column}, ")), "{shown:#?}");
        assert!(shown[3].contains(column.heading()), "the sort column is shown: {shown:#?}");
        press_key(&mut app, KeyCode::Right);
    }
    assert_eq!(app.list.sort(), start, "back at the first column");
    press_key(&mut app, KeyCode::Left);
    press_key(&mut app, KeyCode::Right);
    assert_eq!((app.list.sort(), listed(&app)), (start, vec![17, 4, 123]));
    press_key(&mut app, KeyCode::Char('r'));
    assert_eq!(listed(&app), [123, 4, 17]);
    app.list = crate::list::SessionList::new("rtt-up".parse().unwrap(), String::new());
    app.list.filter_and_sort(&app.live.sessions);
    assert_eq!(listed(&app), [4, 17, 123], "123 has no section up");
    press_key(&mut app, KeyCode::Char('r'));
    assert_eq!(listed(&app), [4, 17, 123], "unknown values are last in both orders");
}

#[test]
fn column_names_round_trip_and_unknown_names_are_refused() {
    for column in COLUMNS {
        assert_eq!(column.name().parse(), Ok(column));
    }
    assert!("speed".parse::<Column>().unwrap_err().to_string().starts_with("expected one of session, client, "));
}

#[test]
fn filter_matches_all_words_in_any_field_and_can_be_cleared() {
    let mut app = app_with_rates();
    type_text(&mut app, "/EXAMPLE");
    assert_eq!(listed(&app), [17, 4], "each letter filters at once, upper or lower case");
    type_text(&mut app, " q");
    assert!(listed(&app).is_empty(), "q is a letter in a filter");
    assert!(lines(&mut app, 80, 24)[23].starts_with("filter: EXAMPLE q_"), "{:#?}", lines(&mut app, 80, 24));
    press_key(&mut app, KeyCode::Esc);
    assert_eq!(listed(&app).len(), 3);
    for (words, found) in
        [("alice", vec![4]), ("via-osaka jp", vec![4]), ("path_rate", vec![17]), ("123", vec![123]), ("up:", vec![17])]
    {
        type_text(&mut app, &format!("/{words}"));
        press_key(&mut app, KeyCode::Enter);
        assert_eq!(listed(&app), found, "{words}");
        assert!(lines(&mut app, 80, 24)[1].contains(&format!("with \"{words}\"")));
        feed(&mut app, three_sessions(2));
        assert_eq!(listed(&app), found, "also in the next answer");
        press_key(&mut app, KeyCode::Esc);
    }
    type_text(&mut app, "/examplf");
    press_key(&mut app, KeyCode::Backspace);
    assert_eq!(listed(&app).len(), 2);
    on_key(&mut app, KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(app.list.filter(), "");
    type_text(&mut app, &"x".repeat(1000));
    assert_eq!(app.list.filter().len(), 100);
    assert!(lines(&mut app, 80, 24)[4].starts_with("no session matches the filter"));
}

#[test]
fn the_selection_stays_with_its_session() {
    let mut app = app();
    let rates = |fast: [u64; 4], second| {
        let sessions: Vec<Value> =
            fast.iter().zip(1..).map(|(rate, number)| session(number, "t:1", second, *rate)).collect();
        answer(&sessions)
    };
    feed(&mut app, rates([4000, 3000, 2000, 1000], 1));
    feed(&mut app, rates([4000, 3000, 2000, 1000], 2));
    assert_eq!(listed(&app), [1, 2, 3, 4]);
    let selected = |app: &App| app.list.selected(&app.live.sessions).unwrap().session.session;
    feed(&mut app, rates([4000, 3000, 2000, 9000], 3));
    assert_eq!(selected(&app), 4, "the first row until the selection moves");
    press_key(&mut app, KeyCode::Down);
    press_key(&mut app, KeyCode::Char('j'));
    assert_eq!(selected(&app), 2);
    feed(&mut app, rates([1, 9000, 2, 3], 4));
    assert_eq!((listed(&app)[0], selected(&app)), (2, 2));
    press_key(&mut app, KeyCode::End);
    let last = selected(&app);
    feed(&mut app, answer(&[session(7, "t:1", 1, 1)]));
    assert_ne!(last, selected(&app), "the session has ended");
    press_key(&mut app, KeyCode::Char('G'));
    press_key(&mut app, KeyCode::Up);
    assert_eq!(selected(&app), 7);
}

#[test]
fn session_page_follows_its_session_to_the_end() {
    let mut app = app_with_rates();
    press_key(&mut app, KeyCode::Enter);
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session 17, 1m41: "), "{:#?}", lines(&mut app, 80, 24));
    feed(&mut app, three_sessions(2));
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session 17, 1m42: "));
    feed(&mut app, answer(&[]));
    assert!(lines(&mut app, 80, 24)[2].starts_with("ENDED, last values: Session 17, 1m42: "));
    feed(&mut app, three_sessions(3));
    assert!(lines(&mut app, 80, 24)[2].starts_with("ENDED, last values: Session 17"), "an ended session stays ended");
    press_key(&mut app, KeyCode::Backspace);
    assert!(matches!(app.page, Page::List));
    feed(&mut app, answer(&[]));
    press_key(&mut app, KeyCode::Enter);
    assert!(matches!(app.page, Page::List), "there is no session to show");
}

#[test]
fn help_lists_every_key_and_returns_to_the_previous_page() {
    let mut app = app();
    feed(&mut app, three_sessions(0));
    press_key(&mut app, KeyCode::Enter);
    press_key(&mut app, KeyCode::Char('?'));
    let shown = lines(&mut app, 80, 24);
    for (keys, effect) in HELP {
        assert!(shown.iter().any(|line| line.starts_with(keys) && line.ends_with(effect)), "{keys}: {shown:#?}");
    }
    assert!(shown.iter().any(|line| line.ends_with("in words.")), "the last line of the notes: {shown:#?}");
    press_key(&mut app, KeyCode::Char('x'));
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session "));
}

#[test]
fn control_c_quits_from_every_page_and_q_outside_the_filter() {
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for before in [vec![], vec![KeyCode::Enter], vec![KeyCode::Char('?')], vec![KeyCode::Char('/')]] {
        let mut app = app();
        feed(&mut app, three_sessions(0));
        for code in &before {
            press_key(&mut app, *code);
        }
        assert_eq!(on_key(&mut app, control_c), KeyAction::Quit, "{before:?}");
        if before != [KeyCode::Char('/')] {
            let mut app = self::app();
            feed(&mut app, three_sessions(0));
            for code in &before {
                press_key(&mut app, *code);
            }
            assert_eq!(press_key(&mut app, KeyCode::Char('q')), KeyAction::Quit, "{before:?}");
        }
    }
}
