//! What sections are like: measured on the connections of sessions, told by other relays, and looked at where nothing
//! flows.
//!
//! [`Book`] is where it gathers, shared by all threads; [`Watch`] is one connection of a session.

mod book;
mod chart;
mod place;
mod watch;

pub use book::Book;
pub use place::{Place, Via};
pub use watch::Watch;
