//! Relays that stop answering, answer unexpectedly, or have unusual names; screens of all sizes.

use std::io;

use ratatui::layout::Size;

use super::*;

#[test]
fn unreachable_relay_is_reported_and_the_last_answer_stays() {
    let mut app = app();
    let begin = Instant::now();
    feed(&mut app, three_sessions(0));
    app.on_response(Err("Connection refused (os error 111)".to_owned()), begin);
    let shown = lines(&mut app, 200, 24);
    let expected = "no answer from 127.0.0.1:9090: Connection refused (os error 111); is `ekiden run` up? Still asking";
    assert_eq!(shown[1], expected);
    assert!(shown[4].contains("example"), "{shown:#?}");
    app.on_response(Err("Connection refused (os error 111)".to_owned()), begin + Duration::from_secs(7));
    assert!(lines(&mut app, 200, 24)[1].starts_with("no answer from 127.0.0.1:9090 for 7 s: "));
    assert!(lines(&mut app, 80, 7)[0].starts_with("no answer from 127.0.0.1:9090 for 7 s: "), "also on a low screen");
    feed(&mut app, three_sessions(1));
    assert!(
        lines(&mut app, 200, 24)[1]
            .starts_with("by down, highest first  24 pipes (3 idle)  ready osaka 7/8, tokyo DOWN")
    );
}

#[test]
fn pause_is_shown() {
    let mut app = app();
    feed(&mut app, three_sessions(0));
    press_key(&mut app, KeyCode::Char('p'));
    assert!(app.paused && lines(&mut app, 80, 24)[1].starts_with("PAUSED  by down"));
    press_key(&mut app, KeyCode::Char(' '));
    assert!(!app.paused && !lines(&mut app, 80, 24)[1].contains("PAUSED"));
}

#[test]
fn drawing_works_at_every_screen_size() {
    for before in [&[][..], &[KeyCode::Enter], &[KeyCode::Char('?')], &[KeyCode::Char('/')]] {
        let mut app = app_with_rates();
        for code in before {
            press_key(&mut app, *code);
        }
        for (width, height) in
            (0..=91).step_by(7).flat_map(|width| (0..=30).step_by(3).map(move |height| (width, height)))
        {
            screen(&mut app, width, height);
        }
        feed(&mut app, answer(&[]));
        for (width, height) in [(0, 0), (1, 1), (5, 3), (80, 1), (1, 24), (80, 24), (1000, 300)] {
            screen(&mut app, width, height);
        }
    }
    let mut app = app_with_rates();
    let small = lines(&mut app, 46, 10).join("\n");
    for part in ["3 sessions", "TARGET", "files.example.", "810M"] {
        assert!(small.contains(part), "{small}");
    }
    assert!(lines(&mut app, 30, 3).join("\n").contains("810M"), "{:#?}", lines(&mut app, 30, 3));
}

#[test]
fn control_characters_in_names_are_not_drawn() {
    let mut app = app();
    let wild = "a\u{1b}[2J\u{1b}]0;title\u{7}\r\nb\u{9b}1mc\u{202e}日本語日本語日本語日本語:443";
    feed(&mut app, answer(&[session(1, wild, 1, 1)]));
    for open in [false, true] {
        if open {
            press_key(&mut app, KeyCode::Enter);
        }
        for width in [1, 2, 3, 20, 33, 34, 35, 36, 37, 38, 60, 80, 81, 150] {
            let shown = screen_text(&screen(&mut app, width, 24));
            assert!(shown.chars().all(|letter| letter == '\n' || !letter.is_control()), "{shown:?}");
        }
    }
}

#[test]
fn missing_fields_are_accepted_and_other_answers_are_refused() {
    let mut app = app();
    feed(
        &mut app,
        SessionsResponse::parse(
            r#"{"sessions":[{"session":1},{"session":2,"limits":{"up":{"section":"x","by":"y"}}}]}"#,
        )
        .unwrap(),
    );
    let shown = lines(&mut app, 80, 24);
    assert!(shown[4].starts_with("      1 ") && shown[5].contains("x:y"), "{shown:#?}");
    press_key(&mut app, KeyCode::Enter);
    assert!(lines(&mut app, 80, 24)[2].starts_with("Session 1, 0s:  -> -"));
    for text in ["", "404 page not found", "{}", "[]", r#"{"sessions":"none"}"#] {
        let why = SessionsResponse::parse(text).unwrap_err();
        assert!(why.starts_with("the answer is not that of a relay"), "{text}: {why}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_once_requests_two_answers() {
    let asked = std::cell::Cell::new(0);
    let ask = async || {
        asked.set(asked.get() + 1);
        let fast = session(17, "files.example.org:443", asked.get(), 101_250_000);
        Ok(json!({"version": "0.1.0", "sessions": [fast]}).to_string())
    };
    let shown = crate::run_once(&options(), "here", Size::new(80, 24), ask).await.unwrap();
    assert_eq!((asked.get(), shown.lines().count()), (2, 24));
    assert!(
        shown.contains("810M") && shown.starts_with("ekiden 0.1.0  1 session  down 810M up 12.7M bit/s  at here"),
        "{shown}"
    );
}

#[tokio::test(start_paused = true)]
async fn refused_silent_and_foreign_answers_are_reported() {
    let refuses = async || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    let error = crate::run(&options(), "here", refuses).await.unwrap_err().to_string();
    assert_eq!(error, "no relay answers at here (is `ekiden run` up?): connection refused");
    let silent = async || std::future::pending().await;
    let error = crate::run_once(&options(), "here", Size::new(80, 24), silent).await.unwrap_err().to_string();
    assert!(error.ends_with("no answer within 10 s"), "{error}");
    let other = async || Ok("<html>".to_owned());
    let error = crate::run_once(&options(), "here", Size::new(80, 24), other).await.unwrap_err().to_string();
    assert!(error.contains("not that of a relay"), "{error}");
}
