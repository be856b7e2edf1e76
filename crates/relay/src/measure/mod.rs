//! What sections are like: measured on the connections of sessions, told by other relays, and looked at where nothing
//! flows.
//!
//! [`Book`] is where it gathers, shared by all threads; [`Watch`] is one connection of a session; [`answer`] and [`Reports`]
//! are the two sides of the connections on which relays tell each other.

pub mod answer;
mod between;
mod book;
mod caller;
mod chart;
mod history;
mod keeper;
mod place;
#[cfg(test)]
mod tests;
mod told;
mod watch;

pub use between::BetweenView;
pub use book::Book;
pub use history::History;
pub use keeper::Reports;
pub use place::{Place, Via};
pub use watch::Watch;
