//! The fleet: who else there is, learnt from etcd, and who we are, told there.
//!
//! A thread of its own talks to etcd; nobody else waits for it. What it has learnt stays when etcd is away, in memory and
//! in a file. Relays that come and go reach the sessions as a reload does: [`Config::with_fleet`](crate::config::Config)
//! makes a configuration of the one that was written and of those that are there, for new sessions.
//!
//! It trusts nothing that it reads: [`ekiden_proto::fleet`] says who is believed.

mod author;
mod directory;
mod doubts;
mod etcd;
mod join;
mod listing;
mod measured;
mod session;
mod state;
mod thread;
mod view;

pub use crate::status::fleet::table;
pub(crate) use directory::FleetDirectory;

/// Why nothing came of asking etcd, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct EtcdErrorMessage(String);
