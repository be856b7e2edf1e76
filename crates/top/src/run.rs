//! Asks, draws, and listens to keys and signals, until the end is asked for.

use std::io;
use std::pin::pin;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::Event;
use ratatui::layout::Rect;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

use crate::answer::Answer;
use crate::app::App;
use crate::column::Column;
use crate::draw::draw;
use crate::keys::{Flow, press};
use crate::look::Look;
use crate::screen::{Screen, events};

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often to ask the relay.
    pub every: Duration,
    /// What to sort by at first.
    pub sort: Column,
    /// Words that a session must have to be listed; all while empty.
    pub filter: String,
    /// What may be used to draw.
    pub look: Look,
}

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The relay, or what is taken for it.
    #[error("no relay answers at {relay} (is `ekiden run` up?): {why}")]
    Nobody {
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
    Dumb(String),
    /// Reading it, or writing to it.
    #[error("the terminal failed")]
    Terminal(#[source] io::Error),
    /// Watching for signals.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
}

/// A relay that does not answer within this is as good as gone.
const DEADLINE: Duration = Duration::from_secs(10);

/// Watches the relay called `relay` until the user has seen enough. `ask` is the question.
///
/// # Errors
/// When there is no usable terminal, or the relay does not answer the first time. Later it may come and go.
pub async fn run(options: &Options, relay: &str, ask: impl AsyncFn() -> io::Result<String>) -> Result<(), TopError> {
    let mut due = Instant::now();
    let mut app = begin(options, relay, &ask).await?;
    let mut signals = Ends::new().map_err(TopError::Signals)?;
    let mut screen = Screen::open()?;
    let mut keys = events();
    due = next(due, options.every);
    let mut answer = pin!(answer_at(due, &ask));
    loop {
        screen.show(&mut app)?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.is_release() => {}
                Some(Event::Key(key)) => if press(&mut app, key) == Flow::End { return Ok(()) },
                Some(_) => {}
                None => return Ok(()),
            },
            heard = &mut answer, if !app.paused => {
                app.hear(heard, Instant::now().into_std());
                due = next(due, options.every);
                answer.set(answer_at(due, &ask));
            }
            () = signals.next() => return Ok(()),
        }
    }
}

/// One screen of `size` characters by lines as text, of two answers so that there are rates.
///
/// # Errors
/// When the relay does not answer.
pub async fn once(
    options: &Options,
    relay: &str,
    (width, height): (u16, u16),
    ask: impl AsyncFn() -> io::Result<String>,
) -> Result<String, TopError> {
    let begun = Instant::now();
    let mut app = begin(options, relay, &ask).await?;
    let second = answer_at(begun + options.every, &ask).await;
    let second = second.map_err(|why| TopError::Nobody { relay: relay.to_owned(), why })?;
    app.hear(Ok(second), Instant::now().into_std());
    let mut screen = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut app, screen.area, &mut screen);
    Ok(text(&screen))
}

/// The characters of a screen.
pub(crate) fn text(screen: &Buffer) -> String {
    let line = |row: Rect| {
        let line: String = row.columns().map(|at| screen[(at.x, at.y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    screen.area.rows().map(line).collect()
}

async fn begin(options: &Options, relay: &str, ask: &impl AsyncFn() -> io::Result<String>) -> Result<App, TopError> {
    let first = answer_at(Instant::now(), ask).await;
    let first = first.map_err(|why| TopError::Nobody { relay: relay.to_owned(), why })?;
    let mut app = App::new(relay, options);
    app.hear(Ok(first), Instant::now().into_std());
    Ok(app)
}

/// When to ask again: at the beat; but a relay that took long to answer is left alone for as long.
fn next(due: Instant, every: Duration) -> Instant {
    let now = Instant::now();
    (due + every).max(now + now.duration_since(due).min(every))
}

/// Asks at that time. Reading a long answer is no matter for the thread that draws.
async fn answer_at(due: Instant, ask: &impl AsyncFn() -> io::Result<String>) -> Result<Answer, String> {
    sleep_until(due).await;
    let text = match timeout(DEADLINE, ask()).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("nothing within {} s", DEADLINE.as_secs())),
    };
    let read = tokio::task::spawn_blocking(move || Answer::read(&text)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

/// The signals that ask for the end (signal(7)).
struct Ends([Signal; 3]);

impl Ends {
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
