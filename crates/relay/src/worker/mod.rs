//! One worker thread: its own runtime, its own listening sockets, its own pipes. A session never leaves its thread, so
//! nothing in here needs a lock.

mod command;
mod describing;
mod leaving;
mod stop;
mod tidying;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ekiden_sys::clock::thread_cpu_time;
use ekiden_sys::nfqueue::NfQueue;
use ekiden_sys::sockopt::{keep_urgent_data_inline, keeps_urgent_data_inline};
use slab::Slab;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::dial::{Names, is_exhaustion};
use crate::entrance::Entrance;
use crate::gate;
use crate::ingress::http::Kept;
use crate::load::Load;
use crate::pump::{PipePool, pause};
use crate::session::Session;
use crate::share::ThreadShaper;
use crate::shared::Shared;
use crate::tun::{self, Device};
use crate::tuning::TuneScheduler;

pub use command::{Command, Counts, Gated, Service, Steering};
pub use describing::{Description, Tally, Wish};
pub use leaving::Leaving;
pub use stop::Stop;

use tidying::{TIDY, wait_in_turn};

/// Most connections taken from the queue of a socket that is about to close.
const LAST_ACCEPTS: usize = 4096;

/// How long those who accept have for stopping.
const STOPPED: Duration = Duration::from_millis(100);

/// The state of one thread.
pub struct Worker {
    /// The log and the metrics.
    pub shared: Arc<Shared>,
    /// The pipes.
    pub pipes: PipePool,
    /// Shares of interfaces.
    pub desk: Rc<ThreadShaper>,
    /// Tuned sections.
    pub rounds: Rc<TuneScheduler>,
    /// How much of a processor this thread wants.
    pub load: Load,
    /// Whether its end is near.
    pub leaving: Leaving,
    /// Idle connections to servers and `http` hops.
    pub kept: Kept,
    sessions: RefCell<Slab<Weak<Session>>>,
    /// The session whose turn it is to be measured.
    turn: Cell<usize>,
    entrances: RefCell<Vec<Rc<Entrance>>>,
}

/// Runs a worker until it is told to end.
///
/// # Errors
/// The kernel's, when the runtime cannot be made.
pub fn run(shared: Arc<Shared>, most_pipes: usize, commands: mpsc::Receiver<Command>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let worker = Rc::new(Worker {
        kept: Kept::new(Arc::clone(&shared)),
        desk: ThreadShaper::new(Arc::clone(&shared.shared_interfaces)),
        rounds: TuneScheduler::new(),
        load: Load::default(),
        shared,
        pipes: PipePool::new(most_pipes),
        sessions: RefCell::default(),
        turn: Cell::new(0),
        entrances: RefCell::default(),
        leaving: Leaving::not_yet(),
    });
    // Dropping the set drops every session that is still open, and each says so in its closing event.
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, obey(Rc::clone(&worker), commands));
    drop(tasks);
    Ok(())
}

async fn obey(worker: Rc<Worker>, mut commands: mpsc::Receiver<Command>) {
    let mut stop_accepting = watch::Sender::new(());
    // Gates and readers of devices go on while the relay drains: what they let pass by then would otherwise wait.
    let mut stop_guarding = watch::Sender::new(());
    let mut tidy = interval(TIDY);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::task::spawn_local(Rc::clone(&worker.desk).run());
    tokio::task::spawn_local(Rc::clone(&worker.rounds).run());
    tokio::task::spawn_local(pause::run());
    tokio::task::spawn_local(wait_in_turn(Rc::clone(&worker)));
    let mut most_sessions_seen = 0;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = tidy.tick() => {
                worker.tidy(&mut most_sessions_seen);
                worker.measure();
                continue;
            }
        };
        match command {
            Some(Command::Serve(service)) => {
                stop_accepting = watch::Sender::new(());
                stop_guarding = watch::Sender::new(());
                worker.serve(service, &stop_accepting, &stop_guarding);
            }
            Some(Command::Answer(answer)) => {
                // Whoever asked may have given up.
                let _ = answer.send(());
            }
            Some(Command::Describe(wish, answer)) => {
                tokio::task::spawn_local(Rc::clone(&worker).describe(wish, answer));
            }
            Some(Command::Count(answer)) => {
                // Whoever asked may have given up.
                let _ = answer.send(worker.count());
            }
            Some(Command::Retire) => {
                let accepting = std::mem::replace(&mut stop_accepting, watch::Sender::new(()));
                stop_guarding = watch::Sender::new(());
                worker.leaving.retire();
                accepting.send_replace(());
                // When that is answered nobody comes to us any more. One that waits for a place accepts nothing either.
                let _ = timeout(STOPPED, accepting.closed()).await;
            }
            Some(Command::Drain) => {
                stop_accepting = watch::Sender::new(());
                worker.leaving.drain();
            }
            Some(Command::End) | None => break,
        }
    }
    drop((stop_accepting, stop_guarding));
    worker.entrances.borrow_mut().clear();
}

/// Accepts until told to stop. What the kernel had already accepted for us by then is still served.
async fn accept(entrance: Rc<Entrance>, socket: std::net::TcpListener, mut stop: Stop) {
    let inherited = keeps_urgent_data_inline(socket.as_fd()).unwrap_or(false);
    let admit = |client: TcpStream, address| {
        if !inherited {
            // A listener for Multipath TCP refuses the option; so does a Multipath TCP connection, which needs none.
            let _ = keep_urgent_data_inline(client.as_fd());
        }
        entrance.admit(client, address);
    };
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return entrance.warn(format!("cannot listen on {}: {error}", entrance.listener.bind)),
    };
    loop {
        if stop.or(entrance.wait_for_place()).await.is_none() {
            // At the session limit the queue is left to the next owner of the socket: a new configuration or process.
            if entrance.worker.successor(&entrance).is_some() {
                return;
            }
            break;
        }
        let Some(accepted) = stop.or(listener.accept()).await else { break };
        match accepted {
            Ok((client, address)) => admit(client, address),
            Err(error) if is_exhaustion(&error) => entrance.pause(lacking(&error)).await,
            // The client left before we looked (accept(2)); the listener itself is fine.
            Err(_) => {}
        }
    }
    let Ok(queue) = listener.into_std() else { return };
    for (client, address) in std::iter::from_fn(|| queue.accept().ok()).take(LAST_ACCEPTS) {
        if let Ok(client) = client.set_nonblocking(true).and_then(|()| TcpStream::from_std(client)) {
            admit(client, address);
        }
    }
}

/// What there is no more of, by the error of accept(2).
fn lacking(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // ENFILE: all processes together have too many.
        Some(23) => "host_out_of_descriptors",
        // ENOBUFS, ENOMEM.
        Some(105 | 12) => "out_of_memory",
        _ => "out_of_descriptors",
    }
}

/// Judges first packets until told to stop.
async fn guard(entrance: Rc<Entrance>, queue: NfQueue, number: usize, stop: Stop) {
    if let Err(error) = gate::run(Rc::clone(&entrance), queue, number, stop).await {
        entrance.warn(format!("no gate for listener {}: {error}", entrance.listener.name));
    }
}

/// Reads the device of a tunnel until told to stop.
async fn read(entrance: Rc<Entrance>, device: Arc<Device>, stop: Stop) {
    let name = device.name.clone();
    if let Err(error) = tun::read_device(Rc::clone(&entrance), device, stop).await {
        entrance.warn(format!("nobody reads {name} any more: {error}: a reload (SIGHUP) makes the device again"));
    }
}

impl Worker {
    fn serve(self: &Rc<Self>, service: Service, stop: &watch::Sender<()>, stop_guarding: &watch::Sender<()>) {
        let Service { config, budget, sockets, steering, gated } = service;
        let names = Rc::new(Names::new(&config.dns_servers));
        let entrance = |listener| Rc::new(Entrance::new(self, &config, listener, &names, budget, gated));
        self.desk.update_interfaces();
        self.kept.serve(&config);
        self.entrances.borrow_mut().clear();
        for (listener, socket) in sockets {
            let entrance = entrance(listener);
            self.entrances.borrow_mut().push(Rc::clone(&entrance));
            tokio::task::spawn_local(accept(entrance, socket, Stop::by(stop)));
        }
        for (listener, number, queue) in steering.gates {
            tokio::task::spawn_local(guard(entrance(listener), queue, number, Stop::by(stop_guarding)));
        }
        for (listener, device) in steering.devices {
            tokio::task::spawn_local(read(entrance(listener), device, Stop::by(stop_guarding)));
        }
    }

    /// Lists a session for `ekiden status` and returns its place.
    pub fn list(&self, session: &Rc<Session>) -> usize {
        self.sessions.borrow_mut().insert(Rc::downgrade(session))
    }

    /// Takes it off the list.
    pub fn unlist(&self, place: usize) {
        self.sessions.borrow_mut().remove(place);
    }

    /// The same way in under the configuration that is in force now; none when that configuration has no listener of this
    /// kind at the address.
    pub fn successor(&self, entrance: &Entrance) -> Option<Rc<Entrance>> {
        let before = &entrance.listener;
        let entrances = self.entrances.borrow();
        entrances.iter().find(|now| now.listener.has_same_address(before) && now.listener.kind == before.kind).cloned()
    }

    fn count(&self) -> Counts {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        Counts { name, pipes: self.pipes.counts(), busy: thread_cpu_time() }
    }
}
