//! The errors that end the program.

use std::io;

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
    #[error("this takes a terminal: `ekiden top --once` prints one screen, `ekiden status` everything")]
    NoTerminal,
    /// TERM names a terminal that cannot position text.
    #[error(
        "the terminal cannot position text (TERM is {0:?}): set TERM to its type, or use `ekiden top --once` or \
         `ekiden status`"
    )]
    DumbTerminal(String),
    /// Reading from the terminal or writing to it failed.
    #[error("the terminal failed")]
    Terminal(#[source] io::Error),
    /// The signal handlers could not be installed.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
}
