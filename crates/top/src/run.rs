//! Asks, draws, and listens to keys and signals, until the end is asked for.

use std::io;
use std::pin::pin;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::Event;
use ratatui::layout::Rect;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

use crate::answer::SessionsResponse;
use crate::app::App;
use crate::column::Column;
use crate::draw::draw;
use crate::keys::{KeyAction, on_key};
use crate::look::Theme;
use crate::screen::{Screen, key_events};

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct TopOptions {
    /// How often to ask the relay.
    pub interval: Duration,
    /// What to sort by at first.
    pub sort: Column,
    /// Words that a session must have to be listed; all while empty.
    pub filter: String,
    /// What may be used to draw.
    pub theme: Theme,
}

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The relay, or what is taken for it.
    #[error("no relay answers at {relay} (is `ekiden run` up?): {why}")]
    NoAnswer {
        /// Where it was asked.
        relay: String,
        /// What came of it.
        why: String,
    },
    /// Standard input or output is something else.
    #[error("this takes a terminal: `ekiden top --once` prints one screen, `ekiden status` everything")]
    NoTerminal,
    /// It can only write line after line.
    #[error(
        "the terminal cannot place text (TERM is {0:?}): set TERM to what it is, or use `ekiden top --once` or \
         `ekiden status`"
    )]
    DumbTerminal(String),
    /// Reading it, or writing to it.
    #[error("the terminal failed")]
    Terminal(#[source] io::Error),
    /// Watching for signals.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
}

/// A relay that does not answer within this is as good as gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Watches the relay called `relay` until the user has seen enough. `ask` is the question.
///
/// # Errors
/// When there is no usable terminal, or the relay does not answer the first time. Later it may come and go.
pub async fn run(options: &TopOptions, relay: &str, ask: impl AsyncFn() -> io::Result<String>) -> Result<(), TopError> {
    let mut due = Instant::now();
    let mut app = connect(options, relay, &ask).await?;
    let mut signals = TerminationSignals::new().map_err(TopError::Signals)?;
    let mut screen = Screen::open()?;
    let mut keys = key_events();
    due = next_due(due, options.interval);
    let mut answer = pin!(fetch_at(due, &ask));
    loop {
        screen.draw(&mut app)?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.is_release() => {}
                Some(Event::Key(key)) => if on_key(&mut app, key) == KeyAction::Quit { return Ok(()) },
                Some(_) => {}
                None => return Ok(()),
            },
            heard = &mut answer, if !app.paused => {
                app.on_response(heard, Instant::now().into_std());
                due = next_due(due, options.interval);
                answer.set(fetch_at(due, &ask));
            }
            () = signals.next() => return Ok(()),
        }
    }
}

/// One screen of `size` characters by lines as text, of two answers so that there are rates.
///
/// # Errors
/// When the relay does not answer.
pub async fn run_once(
    options: &TopOptions,
    relay: &str,
    (width, height): (u16, u16),
    ask: impl AsyncFn() -> io::Result<String>,
) -> Result<String, TopError> {
    let begun = Instant::now();
    let mut app = connect(options, relay, &ask).await?;
    let second = fetch_at(begun + options.interval, &ask).await;
    let second = second.map_err(|why| TopError::NoAnswer { relay: relay.to_owned(), why })?;
    app.on_response(Ok(second), Instant::now().into_std());
    let mut screen = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut app, screen.area, &mut screen);
    Ok(screen_text(&screen))
}

/// The characters of a screen.
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

/// When to ask again: at the beat; but a relay that took long to answer is left alone for as long.
fn next_due(due: Instant, every: Duration) -> Instant {
    let now = Instant::now();
    (due + every).max(now + now.duration_since(due).min(every))
}

/// Asks at that time. Reading a long answer is no matter for the thread that draws.
async fn fetch_at(due: Instant, ask: &impl AsyncFn() -> io::Result<String>) -> Result<SessionsResponse, String> {
    sleep_until(due).await;
    let text = match timeout(ANSWER_TIMEOUT, ask()).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("nothing within {} s", ANSWER_TIMEOUT.as_secs())),
    };
    let read = tokio::task::spawn_blocking(move || SessionsResponse::parse(&text)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

/// The signals that ask for the end (signal(7)).
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
