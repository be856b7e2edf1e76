//! Tests of the whole program without a terminal and without a relay: answers and keys go in, screens are checked.

mod failures;
mod keys;
mod many_sessions;
mod screens;

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use crate::answer::SessionsResponse;
use crate::app::{App, TopOptions};
use crate::draw::draw;
use crate::keys::{KeyAction, on_key};
use crate::run::screen_text;
use crate::{Column, Direction, Theme};

const PLAIN: Theme = Theme { colour: false, unicode: true };

fn options() -> TopOptions {
    let every = Duration::from_secs(1);
    TopOptions { interval: every, sort: Column::Rate(Direction::Down), filter: String::new(), theme: PLAIN }
}

fn app() -> App {
    App::new("127.0.0.1:9090", &options())
}

/// Returns a section with this round-trip time in seconds and this queue length in packets.
fn section(rtt: f64, queued: u64) -> Value {
    json!({
        "congestion": "bbr", "rtt_seconds": rtt, "base_rtt_seconds": rtt * 0.9, "min_rtt_seconds": rtt * 0.9,
        "window": 120, "cwnd": 120, "queued": queued, "retransmitted": 30, "segments_out": 40_000,
        "delivery_rate": 12_500_000, "busy_seconds": 50.0, "rwnd_limited_seconds": 12.0, "sndbuf_limited_seconds": 0.1,
        "start": "cold", "earlier_sessions": 0, "jump": null, "told": null, "tuning": null, "what_later_versions_tell": {},
    })
}

/// Returns a session that transfers `rate` bytes down and `rate / 64` bytes up per second of its age.
fn session(number: u64, target: &str, seconds: u64, rate: u64) -> Value {
    json!({
        "session": number, "listener": "socks", "client": format!("203.0.113.{}:50555", number % 250),
        "user": null, "peer": null, "trace": null, "target": target, "server": "198.51.100.7:443",
        "path": "direct", "chosen": null, "seconds": seconds, "bytes_up": rate / 64 * seconds,
        "bytes_down": rate * seconds, "down": section(0.000_31, 0), "up": section(0.0823, 17), "limits": null,
    })
}

fn answer(sessions: &[Value]) -> SessionsResponse {
    let pools = json!([{"relay": "osaka", "up": true, "ready": 7, "wanted": 8, "hits": 1, "misses": 0, "stale": 0},
        {"relay": "tokyo", "up": false, "ready": 0, "wanted": 4, "hits": 1, "misses": 0, "stale": 0}]);
    let answer = json!({"version": "0.1.0", "pipes_open": 24, "pipes_idle": 3, "sessions": sessions, "pools": pools});
    SessionsResponse::parse(&answer.to_string()).unwrap()
}

/// Returns an answer with three sessions, `second` seconds after the start of the test.
fn three_sessions(second: u64) -> SessionsResponse {
    let mut fast = session(17, "files.example.org:443", 100 + second, 101_250_000);
    fast["limits"] = json!({
        "down": {"section": "up", "by": "path_rate", "why": "the path carries 812 Mbit/s and its queue stands at 17 packets"},
        "up": null,
    });
    let mut chosen = session(4, "www.example.jp:443", 7000 + second, 40_000);
    chosen["path"] = json!("via-osaka");
    chosen["user"] = json!("alice");
    chosen["down"]["start"] = json!("resumed");
    chosen["down"]["jump"] = json!({"bytes": 524_288, "outcome": "confirmed"});
    chosen["up"]["start"] = json!("reused");
    chosen["up"]["earlier_sessions"] = json!(12);
    chosen["chosen"] = json!({"reason": "best", "why": "predicted 1.2 s, direct 3.1 s"});
    chosen["limits"] = json!({"down": {"section": "down", "by": "client_slow", "why": "its window was closed"}});
    let mut old = session(123, "[2001:db8::1]:22", 3 + second, 0);
    old["client"] = json!("[2001:db8:7::2]:50555");
    for absent in ["limits", "chosen", "user", "peer", "trace"] {
        old.as_object_mut().unwrap().remove(absent);
    }
    old["up"] = Value::Null;
    answer(&[chosen, fast, old])
}

fn feed(app: &mut App, answer: SessionsResponse) {
    app.on_response(Ok(answer), Instant::now());
}

/// Returns the state after two answers: rates are known.
fn app_with_rates() -> App {
    let mut app = app();
    feed(&mut app, three_sessions(0));
    feed(&mut app, three_sessions(1));
    app
}

/// Draws the screen of a terminal of this size.
fn screen(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the lines of text of a screen of this size.
fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    screen_text(&screen(app, width, height)).lines().map(str::to_owned).collect()
}

fn press_key(app: &mut App, code: KeyCode) -> KeyAction {
    on_key(app, KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(app: &mut App, text: &str) {
    for letter in text.chars() {
        assert_eq!(press_key(app, KeyCode::Char(letter)), KeyAction::Continue, "{letter}");
    }
}

/// Returns the numbers of the sessions in the order of the list.
fn listed(app: &App) -> Vec<u64> {
    app.list.listed(&app.live.sessions).map(|running| running.session.session).collect()
}
