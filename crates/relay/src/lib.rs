//! The relay daemon. Its main path, in the order in which a connection passes it:
//!
//! [`server::run`] → `session::run` → `ingress::accept` → `path::select` → `dial::connect` → `pump::run` →
//! [`Event::Closed`](ekiden_proto::event::Event::Closed).
#![forbid(unsafe_code)]

mod accounting;
pub mod admin;
pub mod config;
mod database;
mod dial;
pub mod doctor;
mod events;
pub mod fleet;
mod ingress;
mod path;
mod pool;
pub mod probe;
mod pump;
pub mod rules;
pub mod server;
mod session;
mod shaping;
pub mod status;
#[cfg(test)]
mod testing;
mod tunnel;
mod worker;

/// Formats a line of an FTP server's directory listing as an HTML row. Public for fuzzing only.
#[doc(hidden)]
pub use ingress::http::ftp_row;
