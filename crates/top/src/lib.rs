//! `ekiden top`: a live view of a relay's sessions in the terminal.
//!
//! The crate requests `/api/sessions` once per interval and computes rates from the difference of two answers. An
//! answer passes through these steps: [`run`] fetches it, `SessionsResponse::parse` parses it, `LiveSessions::update`
//! computes rates, `SessionList::filter_and_sort` filters and sorts, and `draw` draws the visible part.
//!
//! This is a package of its own so that the daemon does not depend on terminal libraries. It does not depend on the
//! relay either: the caller passes a function that fetches an answer.
#![forbid(unsafe_code)]

mod amount;
mod answer;
mod app;
mod column;
mod draw;
mod error;
mod fit;
mod history;
mod keys;
mod list;
mod live;
mod run;
mod screen;

#[cfg(test)]
mod tests;
mod theme;

pub use answer::Direction;
pub use app::TopOptions;
pub use column::{Column, UnknownColumn};
pub use error::TopError;
pub use run::{run, run_once};
pub use screen::screen_size;
pub use theme::Theme;
