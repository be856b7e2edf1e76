//! Commands of the main thread to a worker.

use std::sync::Arc;

use ekiden_sys::nfqueue::NfQueue;
use tokio::sync::oneshot;

use super::{StatusQuery, WorkerStatus};
use crate::config::budget::Budget;
use crate::config::{Config, Listener};
use crate::events::metrics::WorkerCounts;
use crate::tunnel::Device;

/// A command of the main thread.
pub enum Command {
    /// Serve this from now on, and nothing else.
    Serve(WorkerService),
    /// Say that you do not hang.
    Answer(oneshot::Sender<()>),
    /// Describe yourself, as far as is wished.
    Describe(StatusQuery, oneshot::Sender<WorkerStatus>),
    /// Report a few counters.
    Count(oneshot::Sender<WorkerCounts>),
    /// Accept no further connections, because another process does. Open connections of clients and relays stay usable.
    Retire,
    /// Accept nothing more; end idle HTTP connections.
    Drain,
    /// End now and drop all open sessions.
    End,
}

/// A transparent listener, its index, and the queue of its first packets.
pub type GatedListener = (Arc<Listener>, usize, NfQueue);

/// The sources of intercepted connections.
#[derive(Default)]
pub struct Interception {
    /// The queues of first packets with their listeners.
    pub gates: Vec<GatedListener>,
    /// The devices of tunnels, with their listeners.
    pub devices: Vec<(Arc<Listener>, Arc<Device>)>,
}

/// The configuration and the sockets that a worker serves.
pub struct WorkerService {
    /// The configuration for new sessions.
    pub config: Arc<Config>,
    /// The bounds on connections of all threads together.
    pub budget: Budget,
    /// The listening sockets with their listeners.
    pub sockets: Vec<(Arc<Listener>, std::net::TcpListener)>,
    /// Packet queues and devices that only this worker serves.
    pub steering: Interception,
    /// Whether some worker has a queue for every transparent listener.
    pub gated: bool,
}
