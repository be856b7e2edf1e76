//! The fleet: the other relays, as listed in etcd, and the entry of this relay.
//!
//! One thread exchanges messages with etcd, and no other thread waits for etcd. The known entries survive an outage of
//! etcd, in memory and in a file. Changes of the fleet take effect as a reload does:
//! [`Config::with_fleet`](crate::config::Config) adds the relays of the fleet to the written configuration, for new
//! sessions.
//!
//! Entries are not trusted: [`ekiden_proto::fleet`] verifies them.

mod author;
mod directory;
mod etcd;
mod join;
mod listing;
mod rejections;
mod session;
mod state;
mod thread;
mod view;

pub(crate) use directory::FleetDirectory;

/// The message for the operator about a failed request to etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct EtcdErrorMessage(String);
