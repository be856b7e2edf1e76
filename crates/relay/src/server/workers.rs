//! Handles of the worker threads for the main thread.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::sockets::AssignedSockets;
use crate::config::Config;
use crate::config::budget::Budget;
use crate::ingress::handoff::worker_slots;
use crate::ingress::services::Services;
use crate::worker::{self, Command, Exchange, Interception, WorkerService};

/// The worker threads and their command channels.
pub struct Workers {
    /// The services shared by all threads.
    pub services: Arc<Services>,
    commands: Vec<mpsc::Sender<Command>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Workers {
    /// Starts `count` workers, and one thread for the gates. Each has at most `most_pipes` pipes.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn start(services: &Arc<Services>, count: usize, most_pipes: usize) -> io::Result<Self> {
        let mut workers = Self { services: Arc::clone(services), commands: Vec::new(), threads: Vec::new() };
        for (number, exchange) in worker_slots(count).into_iter().enumerate() {
            workers.spawn(format!("worker-{number}"), most_pipes, Some(exchange))?;
        }
        // The gates run on their own thread, so that the verdict on a first packet does not wait for session traffic.
        workers.spawn("gate".to_owned(), most_pipes, None)?;
        Ok(workers)
    }

    fn spawn(&mut self, name: String, most_pipes: usize, exchange: Option<Exchange>) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel(16);
        let services = Arc::clone(&self.services);
        let thread = std::thread::Builder::new().name(name);
        self.threads.push(thread.spawn(move || worker::run(services, most_pipes, exchange, receiver))?);
        self.commands.push(sender);
        Ok(())
    }

    /// Returns the number of workers that accept connections: all but the thread of the gates.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.commands.len() - 1
    }

    /// Sends a command to every worker.
    pub async fn send_all(&self, command: impl Fn() -> Command) {
        for worker in &self.commands {
            // A worker that has ended needs no command.
            let _ = worker.send(command()).await;
        }
    }

    /// Sends each worker its part of `config`, with its `sockets`.
    pub async fn apply_config(
        &self,
        config: &Arc<Config>,
        sockets: Vec<AssignedSockets>,
        steering: Interception,
        budget: Budget,
    ) {
        let gated = !steering.gates.is_empty();
        let gate = self.count();
        let mut parts: Vec<Interception> = self.commands.iter().map(|_| Interception::default()).collect();
        parts[gate].gates = steering.gates;
        for (index, device) in steering.devices.into_iter().enumerate() {
            parts[index % gate].devices.push(device);
        }
        // The thread of the gates, the last one, gets no listening sockets.
        let sockets = sockets.into_iter().chain([Vec::new()]);
        for ((worker, sockets), steering) in self.commands.iter().zip(sockets).zip(parts) {
            let service = WorkerService { config: Arc::clone(config), budget, sockets, steering, gated };
            let _ = worker.send(Command::Serve(service)).await;
        }
    }

    /// Completes when every worker has answered or ended, so that none is hung.
    pub async fn wait_answers(&self) {
        for worker in &self.commands {
            let (answer, answered) = oneshot::channel();
            if worker.send(Command::Answer(answer)).await.is_ok() {
                // An error means that the worker has ended, so it is not hung.
                let _ = answered.await;
            }
        }
    }

    /// Returns the command channels of all workers, for requests of the admin listener.
    #[must_use]
    pub fn commands(&self) -> Vec<mpsc::Sender<Command>> {
        self.commands.clone()
    }

    /// Waits until all worker threads have ended.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A worker whose runtime could not be created has ended at its start; the others continue.
            let _ = thread.join();
        }
    }
}
