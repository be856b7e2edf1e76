//! The admin listener: the dashboard for browsers, `/metrics` for Prometheus, and JSON. It listens on a loopback
//! address or a unix socket, or on any other address if a token is configured. Read-only.
//!
//! `listener` accepts connections, `connections` limits their number, `access` checks requests, `handler` answers them,
//! `stream` sends the snapshots that `snapshot` takes once a second, and `responses` has headers and the dashboard.
//! `client` is the client side.

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
