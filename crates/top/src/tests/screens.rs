//! Exact contents of screens.

use ratatui::style::{Color, Modifier};

use super::*;

#[test]
fn list_screen_of_80_by_24_has_the_expected_content() {
    let mut app = app();
    feed(&mut app, three_sessions(0));
    let expected = "
ekiden 0.1.0  3 sessions  down 0 up 0 bit/s  at 127.0.0.1:9090
by down, highest first  24 pipes (3 idle)  ready osaka 7/8, tokyo DOWN
                                           bit/s      RTT ms
SESSION CLIENT          TARGET           DOWN    UP  DOWN    UP LIMITED BY
      4 203.0.113.4:50… www.example.jp…     -     -  0.31  82.3 down:client_slow
     17 203.0.113.17:5… files.example.…     -     -  0.31  82.3 up:path_rate
    123 [2001:db8:7::2… [2001:db8::1]:…     -     -  0.31     - -";
    assert_eq!(lines(&mut app, 80, 24)[..7].join("\n"), expected.trim_start_matches('\n'));
    feed(&mut app, three_sessions(1));
    let expected = "
ekiden 0.1.0  3 sessions  down 810M up 12.7M bit/s  at 127.0.0.1:9090
by down, highest first  24 pipes (3 idle)  ready osaka 7/8, tokyo DOWN
                                           bit/s      RTT ms
SESSION CLIENT          TARGET           DOWN    UP  DOWN    UP LIMITED BY
     17 203.0.113.17:5… files.example.…  810M 12.7M  0.31  82.3 up:path_rate
      4 203.0.113.4:50… www.example.jp…  320k 5.00k  0.31  82.3 down:client_slow
    123 [2001:db8:7::2… [2001:db8::1]:…     0     0  0.31     - -";
    let shown = lines(&mut app, 80, 24);
    assert_eq!(shown[..7].join("\n"), expected.trim_start_matches('\n'));
    assert_eq!(shown[23], "q quit  Enter session  / filter  < > sort  r reverse  p pause  ? help");
    assert!(shown.iter().all(|line| line.is_ascii() || line.contains('…')), "{shown:#?}");
}

#[test]
fn session_page_shows_both_sections_and_the_history() {
    let mut app = app();
    for second in 0..40 {
        feed(&mut app, three_sessions(second));
    }
    press_key(&mut app, KeyCode::Enter);
    let expected = "
ekiden 0.1.0  3 sessions  down 810M up 12.7M bit/s  at 127.0.0.1:9090
by down, highest first  24 pipes (3 idle)  ready osaka 7/8, tokyo DOWN
Session 17, 2m19: 203.0.113.17:50555 -> files.example.org:443
by direct, server 198.51.100.7:443, listener socks
down  810M bit/s, 13.1G bytes in all, limited by up:path_rate
     the path carries 812 Mbit/s and its queue stands at 17 packets
up   12.7M bit/s,  210M bytes in all, limited by -
section                       down, to the client     up, to the server
RTT ms                        0.31                    82.3
RTT without queues            0.28                    74.1
packets: window, queued       120, 0                  120, 17
retransmitted                 30 (0.1 %)              30 (0.1 %)
held by receiver, by buffer   24 %, 0.2 %             24 %, 0.2 %
delivers, congestion control  100M bit/s, bbr         100M bit/s, bbr
start                         cold                    cold
rate down    810M, most 810M             ███████████████████████████████████████
rate up     12.7M, most 12.7M            ███████████████████████████████████████
RTT up       82.3, most 82.3            ████████████████████████████████████████
RTT down     0.31, most 0.31            ████████████████████████████████████████
queued up      17, most 17              ████████████████████████████████████████
queued down     0, most 0
the last 39s, the newest at the right

q quit  Esc back to the list  p pause  ? help";
    assert_eq!(lines(&mut app, 80, 24).join("\n"), expected.trim_start_matches('\n'));
    press_key(&mut app, KeyCode::Esc);
    press_key(&mut app, KeyCode::Down);
    press_key(&mut app, KeyCode::Enter);
    let shown = lines(&mut app, 80, 40).join("\n");
    for part in [
        "Session 4, 1h57: ",
        "user alice",
        "chosen, best: predicted 1.2 s",
        "down:client_slow",
        "its window was closed",
        "start                         resumed                 reused 12 times",
        "jump, outcome                 512K, confirmed         -",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
}

#[test]
fn history_is_recorded_before_a_session_is_opened() {
    let mut app = app();
    for second in 0..10 {
        feed(&mut app, three_sessions(second));
    }
    press_key(&mut app, KeyCode::Enter);
    let Some(at) = lines(&mut app, 80, 24).iter().position(|line| line.starts_with("the last 9s")) else {
        panic!("{:#?}", lines(&mut app, 80, 24))
    };
    assert!(lines(&mut app, 80, 24)[at - 6].ends_with("█████████"), "{:#?}", lines(&mut app, 80, 24));
}

#[test]
fn theme_without_colour_uses_underline_and_reverse_only() {
    let mut app = app_with_rates();
    let plain = screen(&mut app, 80, 24);
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let modified = |y: u16, modifier| {
        plain.content()[usize::from(y) * 80..][..80].iter().any(|cell| cell.modifier.contains(modifier))
    };
    assert!(modified(3, Modifier::UNDERLINED), "the sort column");
    assert!(modified(4, Modifier::REVERSED) && !modified(5, Modifier::REVERSED), "the selected row");
    app.theme.colour = true;
    let coloured = screen(&mut app, 80, 24);
    assert!(coloured.content().iter().any(|cell| cell.fg != Color::Reset));
    assert_eq!(screen_text(&plain), screen_text(&coloured), "colour does not change the text");
}

#[test]
fn theme_without_unicode_draws_only_ascii() {
    let mut app = app();
    app.theme.unicode = false;
    for second in 0..10 {
        feed(&mut app, three_sessions(second));
    }
    let list = lines(&mut app, 80, 24).join("\n");
    assert!(list.contains("files.example.~") && list.is_ascii(), "{list}");
    press_key(&mut app, KeyCode::Enter);
    let session = lines(&mut app, 80, 24).join("\n");
    assert!(session.contains("#########") && session.is_ascii(), "{session}");
}

#[test]
fn wide_screen_shows_more_columns() {
    let mut app = app_with_rates();
    let wide = lines(&mut app, 200, 24);
    for heading in ["USER", "PATH", "AGE", "LIMITED BY"] {
        assert!(wide[3].contains(heading), "{wide:#?}");
    }
    for group in ["bit/s", "bytes", "RTT ms", "queued", "retrans", "window", "start"] {
        assert!(wide[2].contains(group), "{wide:#?}");
    }
    assert!(wide[4].contains("files.example.org:443") && wide[4].contains("203.0.113.17:50555"), "{wide:#?}");
}
