//! What keys do.

use super::*;
use crate::app::Page;
use crate::column::ALL;
use crate::keys::HELP;

#[test]
fn every_column_sorts_and_what_is_unknown_comes_last() {
    let mut app = app();
    hear(&mut app, three(0));
    hear(&mut app, three(1));
    let start = app.list.sort();
    for _ in 0..ALL.len() {
        let column = app.list.sort();
        let values: Vec<_> = app.list.listed(&app.live.sessions).collect();
        for pair in values.windows(2) {
            assert!(column.compare(app.list.is_descending(), pair[0], pair[1]).is_le(), "{column}");
        }
        let shown = lines(&mut app, 80, 24);
        assert!(shown[1].contains(&format!("by {column}, ")), "{shown:#?}");
        assert!(shown[3].contains(column.heading()), "what is sorted by is shown: {shown:#?}");
        key(&mut app, KeyCode::Right);
    }
    assert_eq!(app.list.sort(), start, "all the way around");
    key(&mut app, KeyCode::Left);
    key(&mut app, KeyCode::Right);
    assert_eq!((app.list.sort(), listed(&app)), (start, vec![17, 4, 123]));
    key(&mut app, KeyCode::Char('r'));
    assert_eq!(listed(&app), [123, 4, 17]);
    app.list = crate::list::List::new("rtt-up".parse().unwrap(), String::new());
    app.list.arrange(&app.live.sessions);
    assert_eq!(listed(&app), [4, 17, 123], "123 has no section up");
    key(&mut app, KeyCode::Char('r'));
    assert_eq!(listed(&app), [4, 17, 123], "either way, and the same otherwise");
}

#[test]
fn columns_have_names_for_the_command_line() {
    for column in ALL {
        assert_eq!(column.name().parse(), Ok(column));
    }
    assert!("speed".parse::<Column>().unwrap_err().to_string().starts_with("expected one of session, client, "));
}

#[test]
fn a_filter_takes_all_words_anywhere_and_can_be_taken_back() {
    let mut app = app();
    hear(&mut app, three(0));
    hear(&mut app, three(1));
    write(&mut app, "/EXAMPLE");
    assert_eq!(listed(&app), [17, 4], "every letter filters at once, small or large");
    write(&mut app, " q");
    assert!(listed(&app).is_empty(), "also q is a letter here");
    assert!(lines(&mut app, 80, 24)[23].starts_with("filter: EXAMPLE q_"), "{:#?}", lines(&mut app, 80, 24));
    key(&mut app, KeyCode::Esc);
    assert_eq!(listed(&app).len(), 3);
    for (words, found) in
        [("alice", vec![4]), ("via-osaka jp", vec![4]), ("path_rate", vec![17]), ("123", vec![123]), ("up:", vec![17])]
    {
        write(&mut app, &format!("/{words}"));
        key(&mut app, KeyCode::Enter);
        assert_eq!(listed(&app), found, "{words}");
        assert!(lines(&mut app, 80, 24)[1].contains(&format!("with \"{words}\"")));
        hear(&mut app, three(2));
        assert_eq!(listed(&app), found, "of the next answer as well");
        key(&mut app, KeyCode::Esc);
    }
    write(&mut app, "/examplf");
    key(&mut app, KeyCode::Backspace);
    assert_eq!(listed(&app).len(), 2);
    press(&mut app, KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(app.list.filter(), "");
    write(&mut app, &"x".repeat(1000));
    assert_eq!(app.list.filter().len(), 100);
    assert!(lines(&mut app, 80, 24)[4].starts_with("no session has that"));
}

#[test]
fn the_selection_stays_with_its_session() {
    let mut app = app();
    let rates = |fast: [u64; 4], second| {
        let sessions: Vec<Value> =
            fast.iter().zip(1..).map(|(rate, number)| session(number, "t:1", second, *rate)).collect();
        answer(&sessions)
    };
    hear(&mut app, rates([4000, 3000, 2000, 1000], 1));
    hear(&mut app, rates([4000, 3000, 2000, 1000], 2));
    assert_eq!(listed(&app), [1, 2, 3, 4]);
    let selected = |app: &App| app.list.selected(&app.live.sessions).unwrap().session.session;
    hear(&mut app, rates([4000, 3000, 2000, 9000], 3));
    assert_eq!(selected(&app), 4, "the first row, while it was not left");
    key(&mut app, KeyCode::Down);
    key(&mut app, KeyCode::Char('j'));
    assert_eq!(selected(&app), 2);
    hear(&mut app, rates([1, 9000, 2, 3], 4));
    assert_eq!((listed(&app)[0], selected(&app)), (2, 2));
    key(&mut app, KeyCode::End);
    let last = selected(&app);
    hear(&mut app, answer(&[session(7, "t:1", 1, 1)]));
    assert_ne!(last, selected(&app), "it is over");
    key(&mut app, KeyCode::Char('G'));
    key(&mut app, KeyCode::Up);
    assert_eq!(selected(&app), 7);
}

#[test]
fn one_session_is_followed_to_its_end() {
    let mut app = app();
    hear(&mut app, three(0));
    hear(&mut app, three(1));
    key(&mut app, KeyCode::Enter);
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session 17, 1m41: "), "{:#?}", lines(&mut app, 80, 24));
    hear(&mut app, three(2));
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session 17, 1m42: "));
    hear(&mut app, answer(&[]));
    assert!(lines(&mut app, 80, 24)[2].starts_with("OVER: this is how it ended. Session 17, 1m42: "));
    hear(&mut app, three(3));
    assert!(lines(&mut app, 80, 24)[2].starts_with("OVER"), "it does not come back");
    key(&mut app, KeyCode::Backspace);
    assert!(matches!(app.page, Page::List));
    hear(&mut app, answer(&[]));
    key(&mut app, KeyCode::Enter);
    assert!(matches!(app.page, Page::List), "there is none to look at");
}

#[test]
fn help_has_every_key_and_goes_back_where_it_was() {
    let mut app = app();
    hear(&mut app, three(0));
    key(&mut app, KeyCode::Enter);
    key(&mut app, KeyCode::Char('?'));
    let shown = lines(&mut app, 80, 24);
    for (keys, what) in HELP {
        assert!(shown.iter().any(|line| line.starts_with(keys) && line.ends_with(what)), "{keys}: {shown:#?}");
    }
    assert!(shown.iter().any(|line| line.ends_with("in words.")), "all of it: {shown:#?}");
    key(&mut app, KeyCode::Char('x'));
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session "));
}

#[test]
fn q_and_control_c_end_it_wherever_it_is() {
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for before in [vec![], vec![KeyCode::Enter], vec![KeyCode::Char('?')], vec![KeyCode::Char('/')]] {
        let mut app = app();
        hear(&mut app, three(0));
        for code in &before {
            key(&mut app, *code);
        }
        assert_eq!(press(&mut app, control_c), Flow::End, "{before:?}");
        if before != [KeyCode::Char('/')] {
            let mut app = self::app();
            hear(&mut app, three(0));
            for code in &before {
                key(&mut app, *code);
            }
            assert_eq!(key(&mut app, KeyCode::Char('q')), Flow::End, "{before:?}");
        }
    }
}
