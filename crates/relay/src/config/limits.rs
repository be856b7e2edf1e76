//! How much clients can take, and how long everything may last.

use std::time::Duration;

/// Bounds on what clients can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Sessions at once; `None` for what the open-file limit allows.
    pub sessions: Option<usize>,
    /// Sessions at once from one source address, or from one relay among `peers`; `None` for no bound of its own.
    pub sessions_per_client: Option<usize>,
    /// Longest HTTP head and SOCKS handshake, in bytes.
    pub head: usize,
    /// Idle connections to servers and `http` hops kept for later requests, per thread.
    pub kept_connections: usize,
    /// Most authenticated connections kept ready for each next relay.
    pub ready_connections: usize,
}

/// Deadlines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From accept to the end of the client's handshake, all reads together.
    pub handshake: Duration,
    /// How long the first packet of a connection waits for the target's answer before it is let pass without us.
    pub hold: Duration,
    /// From the client's request until the whole path stands.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Without a byte after one side has closed its direction.
    pub half_close_idle: Duration,
    /// How long an HTTP client may wait with its next request.
    pub keep_alive: Duration,
    /// How long an idle connection to a server is kept for later requests.
    pub kept_idle: Duration,
    /// How long a ready connection to a relay is kept, at most. A connection of a relay that has opened no session is
    /// closed after this and `handshake`.
    pub ready_age: Duration,
    /// How long sessions may go on after SIGTERM.
    pub drain: Duration,
    /// How long the new process of an upgrade may take until it serves.
    pub upgrade: Duration,
    /// How long sessions of the old one may go on after that.
    pub upgrade_drain: Duration,
}
