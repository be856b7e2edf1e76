//! The admin listener: the dashboard for browsers, `/metrics` for Prometheus, and JSON; on a loopback address or a unix
//! socket, or with a token on any other address. Read-only.
//!
//! `listener` accepts, `connections` bounds the number of clients, `access` checks requests, `handler` answers them, `stream`
//! sends the snapshots that `snapshot` takes once a second, `responses` has headers and pages. `client` is the other side.

mod access;
mod client;
mod connections;
mod handler;
mod listener;
mod responses;
mod snapshot;
mod stream;

pub use client::{fetch, fetch_and_identify};
pub use listener::{AdminListener, start};
