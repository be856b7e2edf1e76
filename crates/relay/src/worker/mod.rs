//! A worker thread with its own runtime, listening sockets and pipes, and the commands that the main thread sends to
//! it. A session never leaves its thread, so no data here needs a lock.

mod housekeeping;
mod status;

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use ekiden_sys::clock::thread_cpu_time;
use ekiden_sys::nfqueue::NfQueue;
use ekiden_sys::sockopt::{keep_urgent_data_inline, keeps_urgent_data_inline};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use super::config::budget::Budget;
use super::config::{Config, Listener};
use super::dial::{Resolver, is_exhaustion};
use super::events::metrics::WorkerCounts;
use super::ingress::gate;
use super::ingress::handoff::{self, HandedConnection, OwnSlot};
use super::ingress::listener::ListenerContext;
use super::ingress::services::Services;
use super::ingress::shutdown::StopSignal;
use super::ingress::thread::ThreadContext;
use super::pump::pause;
use super::tunnel::{self, Device};
use housekeeping::{TIDY_INTERVAL, measure_loop_lag};

pub use status::{SessionProgress, StatusQuery, WorkerStatus};

/// Maximum number of connections accepted from a socket that is about to be closed.
const MAX_LAST_ACCEPTS: usize = 4096;

/// The demand of all workers, and the channel of connections handed over by other workers.
pub type Exchange = (OwnSlot, mpsc::Receiver<HandedConnection>);

/// Runs a worker until [`Command::End`]. A thread without listening sockets has no `exchange`.
///
/// # Errors
/// The runtime cannot be created.
pub fn run(
    services: Arc<Services>,
    most_pipes: usize,
    exchange: Option<Exchange>,
    commands: mpsc::Receiver<Command>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (slot, connections) = exchange.unzip();
    let worker = Rc::new(ThreadContext::new(services, most_pipes, slot));
    // Dropping the set drops every open session, and each emits its closing event.
    let tasks = LocalSet::new();
    if let Some(connections) = connections {
        tasks.spawn_local(handoff::receive(Rc::clone(&worker), connections));
    }
    tasks.block_on(&runtime, run_commands(Rc::clone(&worker), commands));
    drop(tasks);
    Ok(())
}

async fn run_commands(worker: Rc<ThreadContext>, mut commands: mpsc::Receiver<Command>) {
    let mut stop_accepting = watch::Sender::new(());
    // Gates and device readers continue while the relay drains; otherwise their packets would wait.
    let mut stop_guarding = watch::Sender::new(());
    let mut tidy = interval(TIDY_INTERVAL);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::task::spawn_local(Rc::clone(&worker.shaper).run());
    tokio::task::spawn_local(Rc::clone(&worker.tuning).run());
    tokio::task::spawn_local(pause::run());
    tokio::task::spawn_local(measure_loop_lag(Rc::clone(&worker)));
    let mut most_sessions_seen = 0;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = tidy.tick() => {
                worker.tidy(&mut most_sessions_seen);
                worker.sample_sessions();
                continue;
            }
        };
        match command {
            Some(Command::Serve(service)) => {
                let accepting = std::mem::replace(&mut stop_accepting, watch::Sender::new(()));
                stop_guarding = watch::Sender::new(());
                worker.apply_service(service, &stop_accepting, &stop_guarding);
                // Until their end, the loops may serve new connections with the previous configuration.
                end_accept_loops(accepting).await;
            }
            Some(Command::Answer(answer)) => {
                // The requester may have given up.
                let _ = answer.send(());
            }
            Some(Command::Describe(request, answer)) => {
                tokio::task::spawn_local(Rc::clone(&worker).describe(request, answer));
            }
            Some(Command::Count(answer)) => {
                // The requester may have given up.
                let _ = answer.send(worker.counts());
            }
            Some(Command::Retire) => {
                let accepting = std::mem::replace(&mut stop_accepting, watch::Sender::new(()));
                stop_guarding = watch::Sender::new(());
                worker.drain_state.retire();
                end_accept_loops(accepting).await;
            }
            Some(Command::Drain) => {
                stop_accepting = watch::Sender::new(());
                worker.drain_state.drain();
            }
            Some(Command::End) | None => break,
        }
    }
    drop((stop_accepting, stop_guarding));
    worker.listeners.borrow_mut().clear();
}

/// Sends the stop signal to the accept loops, and waits for their end.
async fn end_accept_loops(stop: watch::Sender<()>) {
    stop.send_replace(());
    stop.closed().await;
}

/// Accepts connections until the stop signal. Connections that the kernel has established by then are still served.
async fn accept(context: Rc<ListenerContext>, socket: std::net::TcpListener, mut stop: StopSignal) {
    let inherited = keeps_urgent_data_inline(socket.as_fd()).unwrap_or(false);
    let prepare = |client: &TcpStream| {
        if !inherited {
            // Sockets of Multipath TCP, listening or connected, do not support the option; a connection needs none.
            let _ = keep_urgent_data_inline(client.as_fd());
        }
    };
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return context.warn(format!("cannot listen on {}: {error}", context.listener.bind)),
    };
    loop {
        if stop.stop_first(context.wait_for_place()).await.is_none() {
            // At the session limit, pending connections are left to the next owner of the socket: a new configuration
            // or process.
            if context.thread.current_listener(&context).is_some() {
                return;
            }
            break;
        }
        let Some(accepted) = stop.stop_first(listener.accept()).await else { break };
        match accepted {
            Ok((client, address)) => {
                prepare(&client);
                context.admit_on_some_worker(client, address);
            }
            Err(error) if is_exhaustion(&error) => {
                let pause = context.pause(missing_resource(&error));
                if stop.stop_first(pause).await.is_none() {
                    break;
                }
            }
            // The client closed the connection before it was accepted (accept(2)); the listener is not affected.
            Err(_) => {}
        }
    }
    let Ok(queue) = listener.into_std() else { return };
    for (client, address) in std::iter::from_fn(|| queue.accept().ok()).take(MAX_LAST_ACCEPTS) {
        if let Ok(client) = client.set_nonblocking(true).and_then(|()| TcpStream::from_std(client)) {
            prepare(&client);
            // Not handed over, because the other workers are about to stop as well.
            context.admit(client, address);
        }
    }
}

/// Returns the name of the exhausted resource for an error of accept(2).
fn missing_resource(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // ENFILE: the limit of open files of the whole system is reached.
        Some(23) => "host_out_of_descriptors",
        // ENOBUFS, ENOMEM.
        Some(105 | 12) => "out_of_memory",
        _ => "out_of_descriptors",
    }
}

/// Decides on the first packets of a queue until the stop signal.
async fn run_gate(context: Rc<ListenerContext>, queue: NfQueue, number: usize, stop: StopSignal) {
    if let Err(error) = gate::run(Rc::clone(&context), queue, number, stop).await {
        context.warn(format!("listener {} cannot hold first packets: {error}", context.listener.name));
    }
}

/// Reads packets from the device of a tunnel until the stop signal.
async fn run_device_reader(context: Rc<ListenerContext>, device: Arc<Device>, stop: StopSignal) {
    let name = device.name.clone();
    if let Err(error) = tunnel::read_device(Rc::clone(&context), device, stop).await {
        context.warn(format!("cannot read from {name}: {error}: reload (SIGHUP) to create the device again"));
    }
}

impl ThreadContext {
    fn apply_service(
        self: &Rc<Self>,
        service: WorkerService,
        stop: &watch::Sender<()>,
        stop_guarding: &watch::Sender<()>,
    ) {
        let WorkerService { config, budget, sockets, steering, gated } = service;
        let names = Rc::new(Resolver::new(&config.dns_servers));
        let new_context = |listener| Rc::new(ListenerContext::new(self, &config, listener, &names, budget, gated));
        self.shaper.update_interfaces();
        // Other workers may hand over connections of any listener, including those without a socket on this worker.
        let listeners = config.listeners.iter().filter(|_| self.slot.is_some());
        let contexts: Vec<_> = listeners.map(|listener| new_context(Arc::clone(listener))).collect();
        for (listener, socket) in sockets {
            let context = contexts.iter().find(|context| Arc::ptr_eq(&context.listener, &listener));
            let context = context.expect("invariant: sockets are those of the configuration");
            tokio::task::spawn_local(accept(Rc::clone(context), socket, StopSignal::subscribe(stop)));
        }
        self.listeners.replace(contexts);
        for (listener, number, queue) in steering.gates {
            tokio::task::spawn_local(run_gate(
                new_context(listener),
                queue,
                number,
                StopSignal::subscribe(stop_guarding),
            ));
        }
        for (listener, device) in steering.devices {
            tokio::task::spawn_local(run_device_reader(
                new_context(listener),
                device,
                StopSignal::subscribe(stop_guarding),
            ));
        }
    }

    fn counts(&self) -> WorkerCounts {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let handed_over = self.slot.as_ref().map_or(0, OwnSlot::handed_over);
        WorkerCounts { name, pipes: self.pipes.counts(), busy: thread_cpu_time(), handed_over }
    }
}

/// A command of the main thread.
pub enum Command {
    /// Serve this configuration with these sockets, in place of the previous one.
    Serve(WorkerService),
    /// Answer at once, as proof that the worker is not hung.
    Answer(oneshot::Sender<()>),
    /// Report the status of the worker, in the scope of the query.
    Describe(StatusQuery, oneshot::Sender<WorkerStatus>),
    /// Report a few counters.
    Count(oneshot::Sender<WorkerCounts>),
    /// Stop accepting, because another process accepts. Open connections from clients and relays stay usable.
    Retire,
    /// Stop accepting, and end idle HTTP connections.
    Drain,
    /// End at once and drop all open sessions.
    End,
}

/// A transparent listener, its index, and the queue for its first packets.
pub type GatedListener = (Arc<Listener>, usize, NfQueue);

/// The sources of intercepted connections.
#[derive(Default)]
pub struct Interception {
    /// The queues for first packets, with their listeners.
    pub gates: Vec<GatedListener>,
    /// The devices of tunnels, with their listeners.
    pub devices: Vec<(Arc<Listener>, Arc<Device>)>,
}

/// The configuration and the sockets that a worker serves.
pub struct WorkerService {
    /// The configuration for new sessions.
    pub config: Arc<Config>,
    /// Limits of connections for all threads together.
    pub budget: Budget,
    /// The listening sockets with their listeners.
    pub sockets: Vec<(Arc<Listener>, std::net::TcpListener)>,
    /// Packet queues and devices that only this worker serves.
    pub steering: Interception,
    /// Whether a worker has the queues of all transparent listeners.
    pub gated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;
    use crate::events::Events;
    use crate::events::log::Log;
    use crate::ingress::handoff::worker_slots;
    use crate::testing::config_listening_at;

    fn config() -> Arc<Config> {
        Arc::new(config_listening_at("auto://127.0.0.1:0"))
    }

    fn serve(config: &Arc<Config>, socket: &std::net::TcpListener) -> Command {
        let sockets = vec![(Arc::clone(&config.listeners[0]), socket.try_clone().unwrap())];
        let budget = Budget::new(1024, config);
        Command::Serve(WorkerService {
            config: Arc::clone(config),
            budget,
            sockets,
            steering: Interception::default(),
            gated: false,
        })
    }

    #[tokio::test]
    async fn worker_answers_after_the_previous_accept_loops_have_ended() {
        let (log, _writer) = Log::start(LogConfig::default()).unwrap();
        let slot = worker_slots(1).pop().map(|(slot, _)| slot);
        let worker = Rc::new(ThreadContext::new(Services::new(Events::new(log)), 0, slot));
        let (old, new) = (config(), config());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let (commands, receiver) = mpsc::channel(4);
        // All commands are queued before the first is executed, so the worker does not wait for a command in between.
        let answers = [&old, &new].map(|config| {
            let (answer, answered) = oneshot::channel();
            commands.try_send(serve(config, &socket)).unwrap_or_else(|_| panic!("the queue is full"));
            commands.try_send(Command::Answer(answer)).unwrap_or_else(|_| panic!("the queue is full"));
            answered
        });
        let users = |config| Arc::strong_count(config) - 1;
        let check = async {
            let running = run_commands(worker, receiver);
            tokio::pin!(running);
            let mut users_at_answers = Vec::new();
            for answer in answers {
                tokio::select! {
                    biased;
                    () = &mut running => panic!("the worker has ended"),
                    answer = answer => answer.unwrap(),
                }
                users_at_answers.push((users(&old), users(&new)));
            }
            users_at_answers
        };
        let users_at_answers = LocalSet::new().run_until(check).await;
        assert_ne!(users_at_answers[0].0, 0, "an accept loop serves the first configuration");
        assert_eq!(users_at_answers[1].0, 0, "no accept loop serves the previous configuration");
        assert_ne!(users_at_answers[1].1, 0, "an accept loop serves the new configuration");
    }
}
