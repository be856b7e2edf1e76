//! The relay daemon. It reads like the life of a connection:
//!
//! [`server::run`] → `session::run` → `ingress::accept` → `path::select` → `dial::connect` → `pump::run` →
//! [`Event::Closed`](ekiden_proto::event::Event::Closed).
#![forbid(unsafe_code)]

pub mod admin;
mod admission;
mod budget;
mod choose;
pub mod config;
pub mod congestion;
mod dial;
pub mod doctor;
mod entrance;
pub mod fleet;
mod gate;
mod ingress;
mod load;
mod log;
mod measure;
mod metrics;
mod path;
mod pool;
pub mod probe;
mod pump;
mod recent;
pub mod rules;
pub mod server;
mod session;
mod share;
mod shared;
mod signals;
mod sockets;
pub mod status;
mod steering;
mod traces;
mod tun;
mod tuning;
pub mod upgrade;
pub mod users;
mod worker;
mod workers;

/// For fuzzing: one row of an FTP server's list, as HTML.
#[doc(hidden)]
pub use ingress::http::ftp_row;
