//! Hands new connections over to less loaded workers.
//!
//! The kernel distributes connections over the sockets of the workers by a hash of their addresses (`SO_REUSEPORT` in
//! socket(7)), regardless of their load. A few large sessions may therefore share one worker. That worker then hands
//! the connections that it accepts over to another worker. A running session never changes its worker.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::listener::ListenerContext;
use super::thread::ThreadContext;
use crate::config::budget::Budget;
use crate::config::{Config, Listener};
use crate::dial::Resolver;

/// A worker below this demand keeps its connections, because moving them costs more than it gains. In thousandths of a
/// core.
const MIN_DEMAND: u32 = 700;

/// Smallest difference in demand for a handover, in thousandths of a core.
const MIN_DIFFERENCE: u32 = 250;

/// Added to the demand of the new worker for each connection until that worker measures its demand again, so that the
/// connections of one interval are spread as well. In thousandths of a core.
const DEMAND_OF_CONNECTION: u32 = 10;

/// Largest number of connections in the queue of a worker, which `limits.sessions` does not count yet. If the queue is
/// full, a connection stays on the accepting worker.
const MAX_HANDED_OVER: usize = 32;

/// The part of a worker that is visible to the other workers.
#[derive(Debug)]
pub struct WorkerSlot {
    /// The processor time that the thread used and waited for, in thousandths of a core.
    demand: AtomicU32,
    connections: mpsc::Sender<HandedConnection>,
}

/// The slots of all workers, and the number of the own slot.
#[derive(Debug)]
pub struct OwnSlot {
    workers: Arc<[WorkerSlot]>,
    number: usize,
    handed_over: Cell<u64>,
}

/// A connection on its way to another worker, with the settings of its listener.
#[derive(Debug)]
pub struct HandedConnection {
    /// The connection, from which nothing has been read.
    pub stream: std::net::TcpStream,
    /// The address of the client.
    pub address: SocketAddr,
    /// The configuration in force when the connection was accepted.
    pub config: Arc<Config>,
    /// The listener that accepted the connection.
    pub listener: Arc<Listener>,
    /// The limits on connections of all threads together.
    pub budget: Budget,
    /// Whether the gate enforces the session limit.
    pub gated: bool,
}

/// Creates slots for `count` workers, each with the receiver of the connections handed over to that worker.
pub fn worker_slots(count: usize) -> Vec<(OwnSlot, mpsc::Receiver<HandedConnection>)> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(MAX_HANDED_OVER)).unzip();
    let workers: Arc<[WorkerSlot]> =
        senders.into_iter().map(|connections| WorkerSlot { demand: AtomicU32::new(0), connections }).collect();
    let slot = |number| OwnSlot { workers: Arc::clone(&workers), number, handed_over: Cell::new(0) };
    receivers.into_iter().enumerate().map(|(number, receiver)| (slot(number), receiver)).collect()
}

impl OwnSlot {
    /// Publishes the demand of this worker to the other workers, in cores.
    pub fn publish(&self, demand: f64) {
        self.workers[self.number].demand.store((demand * 1000.0) as u32, Ordering::Relaxed);
    }

    /// Returns the number of connections that this worker has handed over.
    pub fn handed_over(&self) -> u64 {
        self.handed_over.get()
    }

    /// Sends a connection to the worker `receiver`.
    ///
    /// # Errors
    /// The connection, if the queue of that worker is full.
    fn hand_over(&self, connection: HandedConnection, receiver: usize) -> Result<(), HandedConnection> {
        let receiver = &self.workers[receiver];
        receiver.connections.try_send(connection).map_err(mpsc::error::TrySendError::into_inner)?;
        receiver.demand.fetch_add(DEMAND_OF_CONNECTION, Ordering::Relaxed);
        self.handed_over.set(self.handed_over.get() + 1);
        Ok(())
    }

    fn less_loaded(&self) -> Option<usize> {
        less_loaded(self.number, self.workers.iter().map(|worker| worker.demand.load(Ordering::Relaxed)))
    }
}

/// Returns the worker with the least demand, if worker `own_number` should hand its connections over to that worker.
fn less_loaded(own_number: usize, demands: impl Iterator<Item = u32> + Clone) -> Option<usize> {
    let own_demand = demands.clone().nth(own_number).filter(|demand| *demand >= MIN_DEMAND)?;
    let (number, least_demand) = demands.enumerate().min_by_key(|(_, demand)| *demand)?;
    (least_demand + MIN_DIFFERENCE <= own_demand).then_some(number)
}

impl ListenerContext {
    /// Admits an accepted connection on this worker, or hands it over to a less loaded worker.
    pub fn admit_on_some_worker(self: &Rc<Self>, client: TcpStream, address: SocketAddr) {
        let slot = self.thread.slot.as_ref();
        let Some((slot, receiver)) = slot.and_then(|slot| Some((slot, slot.less_loaded()?))) else {
            return self.admit(client, address);
        };
        // Fails only if deregistration from epoll fails.
        let Ok(stream) = client.into_std() else { return };
        if let Err(connection) = slot.hand_over(self.handed_connection(stream, address), receiver) {
            self.admit_handed(connection);
        }
    }

    fn admit_handed(self: &Rc<Self>, connection: HandedConnection) {
        match TcpStream::from_std(connection.stream) {
            Ok(client) => self.admit(client, connection.address),
            Err(error) => self.warn(format!("cannot serve a connection of {}: {error}", connection.address)),
        }
    }
}

/// Admits the connections that other workers hand over to `worker`.
pub async fn receive(worker: Rc<ThreadContext>, mut connections: mpsc::Receiver<HandedConnection>) {
    while let Some(connection) = connections.recv().await {
        let current = worker
            .listeners
            .borrow()
            .iter()
            .find(|context| Arc::ptr_eq(&context.listener, &connection.listener))
            .cloned();
        // If the configuration has changed since the connection was accepted, the connection keeps its own.
        let context = current.unwrap_or_else(|| {
            let names = Rc::new(Resolver::new(&connection.config.dns_servers));
            let HandedConnection { config, listener, budget, gated, .. } = &connection;
            Rc::new(ListenerContext::new(&worker, config, Arc::clone(listener), &names, *budget, *gated))
        });
        context.admit_handed(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_workers_hand_off_to_much_less_loaded_workers() {
        for (demands, expected) in [
            (vec![1000, 0], Some(1)),
            (vec![1000, 740, 730], Some(2)),
            (vec![1000, 760], None),
            (vec![699, 0], None),
            (vec![0, 1000], None),
            (vec![1000], None),
        ] {
            assert_eq!(less_loaded(0, demands.iter().copied()), expected, "{demands:?}");
        }
    }
}
