//! `ekiden top`: what a running relay does, live in a terminal.
//!
//! It asks the relay as `ekiden status` does, each second, and takes every rate from the difference of two answers. The
//! way of one answer: [`run`] asks, `SessionsResponse::parse` reads, `LiveSessions::update` makes rates, `SessionList::filter_and_sort` filters and sorts,
//! `draw` draws what is visible.
//!
//! A package of its own, so that the daemon has no terminal in it. It does not know the relay either: it is handed a
//! function that asks, and reads what comes.
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
mod look;
mod run;
mod screen;

#[cfg(test)]
mod tests;

pub use answer::Direction;
pub use column::{Column, UnknownColumn};
pub use look::Theme;
pub use run::{TopError, TopOptions, run, run_once};
pub use screen::screen_size;
