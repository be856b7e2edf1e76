//! The event loop: requests answers, draws, and handles keys and signals until the user quits.

use std::io;
use std::pin::pin;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::Event;
use ratatui::layout::{Position, Rect, Size};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

use crate::TopError;
use crate::answer::SessionsResponse;
use crate::app::{App, TopOptions};
use crate::draw::draw;
use crate::keys::{KeyAction, on_key};
use crate::screen::{Screen, key_events};

/// A request fails after this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Shows the sessions of a relay until the user quits. `relay` is its address for display; `ask` fetches the JSON text
/// of `/api/sessions`.
///
/// # Errors
/// Fails if there is no usable terminal, or if the relay does not answer the first request. Later failures only appear
/// on the screen.
pub async fn run(options: &TopOptions, relay: &str, ask: impl AsyncFn() -> io::Result<String>) -> Result<(), TopError> {
    let mut due = Instant::now();
    let mut app = connect(options, relay, &ask).await?;
    let mut signals = TerminationSignals::new().map_err(TopError::Signals)?;
    let mut screen = Screen::open()?;
    let mut keys = key_events();
    due = next_due(due, options.interval);
    let mut answer = pin!(fetch_at(due, &ask));
    loop {
        screen.draw(|area, out| draw(&mut app, area, out))?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.is_release() => {}
                Some(Event::Key(key)) => if on_key(&mut app, key) == KeyAction::Quit { return Ok(()) },
                Some(_) => {}
                None => return Ok(()),
            },
            result = &mut answer, if !app.paused => {
                app.on_response(result, Instant::now().into_std());
                due = next_due(due, options.interval);
                answer.set(fetch_at(due, &ask));
            }
            () = signals.next() => return Ok(()),
        }
    }
}

/// Returns one screen of `size` characters as text. It fetches two answers, because rates need two.
///
/// # Errors
/// Fails if the relay does not answer one of the two requests.
pub async fn run_once(
    options: &TopOptions,
    relay: &str,
    size: Size,
    ask: impl AsyncFn() -> io::Result<String>,
) -> Result<String, TopError> {
    let begun = Instant::now();
    let mut app = connect(options, relay, &ask).await?;
    let second = fetch_at(begun + options.interval, &ask).await;
    let second = second.map_err(|why| TopError::NoAnswer { relay: relay.to_owned(), why })?;
    app.on_response(Ok(second), Instant::now().into_std());
    let mut screen = Buffer::empty(Rect::from((Position::ORIGIN, size)));
    draw(&mut app, screen.area, &mut screen);
    Ok(screen_text(&screen))
}

/// Returns the characters of a screen as lines, without trailing spaces.
pub(crate) fn screen_text(screen: &Buffer) -> String {
    let line = |row: Rect| {
        let line: String = row.columns().map(|at| screen[(at.x, at.y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    screen.area.rows().map(line).collect()
}

async fn connect(
    options: &TopOptions,
    relay: &str,
    ask: &impl AsyncFn() -> io::Result<String>,
) -> Result<App, TopError> {
    let first = fetch_at(Instant::now(), ask).await;
    let first = first.map_err(|why| TopError::NoAnswer { relay: relay.to_owned(), why })?;
    let mut app = App::new(relay, options);
    app.on_response(Ok(first), Instant::now().into_std());
    Ok(app)
}

/// Returns the time of the next request: `every` after the last one was due. After a slow answer it is at least the
/// answer's delay from now, at most `every`, so that a slow relay is not overloaded.
fn next_due(due: Instant, every: Duration) -> Instant {
    let now = Instant::now();
    (due + every).max(now + now.duration_since(due).min(every))
}

/// Fetches and parses an answer at `due`. Parsing runs on a blocking thread because a long answer would delay drawing.
async fn fetch_at(due: Instant, ask: &impl AsyncFn() -> io::Result<String>) -> Result<SessionsResponse, String> {
    sleep_until(due).await;
    let text = match timeout(ANSWER_TIMEOUT, ask()).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
    };
    let read = tokio::task::spawn_blocking(move || SessionsResponse::parse(&text)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

/// The signals that end the program: SIGTERM, SIGINT and SIGHUP (signal(7)).
struct TerminationSignals([Signal; 3]);

impl TerminationSignals {
    fn new() -> io::Result<Self> {
        let [terminate, interrupt, hangup] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        Ok(Self([signal(terminate)?, signal(interrupt)?, signal(hangup)?]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
