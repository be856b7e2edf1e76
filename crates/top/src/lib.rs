//! `ekiden top`: a live view of a relay's sessions in the terminal.
//!
//! The crate requests `/api/sessions` once per interval and computes rates from the difference of two answers. An
//! answer passes through these steps: [`run`](fn@run) fetches it, `SessionsResponse::parse` parses it, `LiveSessions::update`
//! computes rates, `SessionList::filter_and_sort` filters and sorts, and `draw` draws the visible part.
//!
//! This is a separate package, so that the daemon does not depend on terminal libraries. The package does not depend on
//! the relay either: the caller passes a function that fetches an answer.
#![forbid(unsafe_code)]

mod amount;
mod answer;
mod app;
mod column;
mod draw;
mod fit;
mod history;
mod keys;
mod list;
mod live;
mod run;
mod screen;
mod theme;

#[cfg(test)]
mod tests;

use std::io;

pub use answer::Direction;
pub use app::TopOptions;
pub use column::{Column, UnknownColumn};
pub use run::{run, run_once};
pub use screen::screen_size;
pub use theme::Theme;

/// A reason why sessions cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The relay does not answer, or its answer is not that of a relay.
    #[error("no relay answers at {relay} (is `ekiden run` up?): {why}")]
    NoAnswer {
        /// Address of the relay.
        relay: String,
        /// Cause of the failed request.
        why: String,
    },
    /// Standard input or output is not a terminal.
    #[error(
        "standard input and output must be a terminal: `ekiden top --once` prints one screen, `ekiden status` all \
         sessions"
    )]
    NoTerminal,
    /// TERM names a terminal that cannot position text.
    #[error(
        "the terminal cannot position text (TERM is {0:?}): set TERM to its type, or use `ekiden top --once` or \
         `ekiden status`"
    )]
    DumbTerminal(String),
    /// Reading from the terminal or writing to it failed.
    #[error("cannot read from or write to the terminal")]
    Terminal(#[source] io::Error),
    /// The signal handlers could not be installed.
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
}
