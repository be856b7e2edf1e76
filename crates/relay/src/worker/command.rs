//! What the main thread tells a worker, and what it answers.

use std::sync::Arc;

use ekiden_sys::nfqueue::NfQueue;
use tokio::sync::oneshot;

use super::{StatusQuery, WorkerStatus};
use crate::config::budget::Budget;
use crate::config::{Config, Listener};
use crate::events::metrics::WorkerCounts;
use crate::tunnel::Device;

/// What the main thread tells a worker.
pub enum Command {
    /// Serve this from now on, and nothing else.
    Serve(WorkerService),
    /// Say that you do not hang.
    Answer(oneshot::Sender<()>),
    /// Describe yourself, as far as is wished.
    Describe(StatusQuery, oneshot::Sender<WorkerStatus>),
    /// The same in a few numbers.
    Count(oneshot::Sender<WorkerCounts>),
    /// Accept nothing more: another process does from now on. What clients and relays have open stays usable.
    Retire,
    /// Accept nothing more; end idle HTTP connections.
    Drain,
    /// End now, whatever is open.
    End,
}

/// A transparent listener, its number, and the queue of its first packets.
pub type GatedListener = (Arc<Listener>, usize, NfQueue);

/// What brings connections here that know nothing of us.
#[derive(Default)]
pub struct Interception {
    /// The queues of first packets, with the listeners they are for and the numbers of those.
    pub gates: Vec<GatedListener>,
    /// The devices of tunnels, with their listeners.
    pub devices: Vec<(Arc<Listener>, Arc<Device>)>,
}

/// What a worker has to serve.
pub struct WorkerService {
    /// The configuration for new sessions.
    pub config: Arc<Config>,
    /// The bounds on connections of all threads together.
    pub budget: Budget,
    /// The sockets to accept from, with what they are for.
    pub sockets: Vec<(Arc<Listener>, std::net::TcpListener)>,
    /// What it alone takes care of.
    pub steering: Interception,
    /// Whether some worker has a queue for every transparent listener.
    pub gated: bool,
}
