//! The relay about itself: the dashboard for browsers, `/metrics` for Prometheus, and JSON for everything else; on a loopback
//! address or a unix socket, or with a token on any other address.
//!
//! Read-only. `listening` accepts, `crowd` bounds how many come, `access` says who may ask what, `answering` has the answers, `stream` is
//! the one that goes on, of what `snapshot` finds once a second, and `page` is what a browser gets. `asking` is the other side.

mod access;
mod client;
mod connections;
mod handler;
mod listener;
mod responses;
mod snapshot;
mod stream;
mod timeouts;

pub use client::{fetch, fetch_and_identify};
pub use listener::{AdminListener, start};
