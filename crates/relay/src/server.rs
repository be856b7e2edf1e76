//! The relay as a process: binds the listeners, starts a worker for each core, and waits for signals.
//!
//! SIGHUP reads the configuration again: it is checked and every new socket bound before anything changes, and when
//! that fails the old one stays. SIGTERM and SIGINT drain: nothing new is accepted, running sessions have until the
//! deadline; a second one ends at once.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::process;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::admin;
use crate::config::read::Mistakes;
use crate::config::{Admin, Config};
use crate::log::Log;
use crate::shared::Shared;
use crate::sockets::{BindError, Sockets};
use crate::worker::{self, Command};

/// How often a draining relay looks whether it is empty.
const LOOK: Duration = Duration::from_millis(20);

/// Most pipes of one worker; more would only move the wait from the sockets into pipes.
const MOST_PIPES: usize = 512;

/// Why the relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] Mistakes),
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs the relay until it is told to end. `load` reads the configuration, at the start and at every SIGHUP.
///
/// # Errors
/// [`RunError`] when it cannot start; once it runs, nothing ends it but a signal.
pub fn run(load: &dyn Fn() -> Result<Config, Mistakes>) -> Result<(), RunError> {
    let config = Arc::new(load()?);
    let budget = Budget::new(process::raise_open_files()?, &config);
    let (log, _writer) = Log::start(config.log)?;
    let shared = Shared::new(log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut sockets = Sockets::default();
        let mut workers = Workers::start(&shared, config.threads, budget.pipes)?;
        // Before the listeners, so that whoever sees "listening" can ask for the status as well.
        let admin = start_admin(&config, &shared, &workers);
        sockets.bind(&config)?;
        shared.pools.serve(&config, budget.ready)?;
        workers.serve(&config, &sockets, budget.sessions).await?;
        sockets.settle(&config, &shared);
        let config = govern(load, config, &mut sockets, &workers, &mut signals).await?;
        drain(&config, &mut sockets, &mut workers, &mut signals).await;
        drop(admin);
        Ok(())
    })
}

/// How descriptors are shared out.
struct Budget {
    sessions: usize,
    pipes: usize,
    /// Ready connections to each next relay.
    ready: usize,
}

impl Budget {
    fn new(open_files: u64, config: &Config) -> Self {
        let files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let pipes = (files / 16 / config.threads).clamp(1, MOST_PIPES);
        let relays = config.relays.iter().filter(|hop| config.calls(hop)).count();
        let ready = (files / 4 / relays.max(1)).clamp(1, config.limits.ready_connections.max(1));
        let reserved = (files / 4).min(64) + 2 * pipes * config.threads + ready * relays;
        // Two sockets for each session.
        let affordable = (files.saturating_sub(reserved) / 2).max(1);
        Self { sessions: config.limits.sessions.unwrap_or(affordable).min(affordable), pipes, ready }
    }
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::End,
            _ = self.interrupt.recv() => Wanted::End,
            _ = self.hangup.recv() => Wanted::Reload,
        }
    }

    async fn end(&mut self) {
        while self.next().await != Wanted::End {}
    }
}

/// What a signal asks for.
#[derive(PartialEq, Eq)]
enum Wanted {
    Reload,
    End,
}

/// The worker threads, and the way to talk to them.
pub struct Workers {
    shared: Arc<Shared>,
    commands: Vec<mpsc::Sender<Command>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Workers {
    fn start(shared: &Arc<Shared>, count: usize, most_pipes: usize) -> io::Result<Self> {
        let mut workers = Self { shared: Arc::clone(shared), commands: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let (sender, receiver) = mpsc::channel(16);
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            workers.threads.push(thread.spawn(move || worker::run(shared, most_pipes, receiver))?);
            workers.commands.push(sender);
        }
        Ok(workers)
    }

    async fn tell_all(&self, command: impl Fn() -> Command) {
        for worker in &self.commands {
            // A worker that is gone has nothing left to do.
            let _ = worker.send(command()).await;
        }
    }

    async fn serve(&self, config: &Arc<Config>, sockets: &Sockets, most_sessions: usize) -> io::Result<()> {
        for (number, worker) in self.commands.iter().enumerate() {
            let sockets = sockets.for_worker(config, number)?;
            let _ = worker.send(Command::Serve { config: Arc::clone(config), most_sessions, sockets }).await;
        }
        Ok(())
    }

    /// Where the admin listener sends its questions.
    #[must_use]
    pub fn commands(&self) -> Vec<mpsc::Sender<Command>> {
        self.commands.clone()
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A worker that failed to start its runtime was useless from the start; the others went on.
            let _ = thread.join();
        }
    }
}

fn start_admin(config: &Config, shared: &Arc<Shared>, workers: &Workers) -> Option<admin::Running> {
    if config.admin == Admin::Off {
        return None;
    }
    match admin::start(&config.admin, Arc::clone(shared), workers.commands()) {
        Ok(running) => Some(running),
        Err(error) => {
            let message = format!("no admin listener, so `ekiden status` cannot ask: {error}");
            shared.emit(&Event::Warning { message });
            None
        }
    }
}

/// Reloads at every SIGHUP until told to end; returns the configuration then in force.
async fn govern(
    load: &dyn Fn() -> Result<Config, Mistakes>,
    mut config: Arc<Config>,
    sockets: &mut Sockets,
    workers: &Workers,
    signals: &mut Signals,
) -> io::Result<Arc<Config>> {
    while signals.next().await == Wanted::Reload {
        if let Some(new) = reload(load, &config, sockets, workers).await? {
            config = new;
        }
    }
    Ok(config)
}

/// Reads, checks and binds the new configuration, and only then swaps.
async fn reload(
    load: &dyn Fn() -> Result<Config, Mistakes>,
    old: &Config,
    sockets: &mut Sockets,
    workers: &Workers,
) -> io::Result<Option<Arc<Config>>> {
    let shared = &workers.shared;
    let reject = |mistakes| shared.emit(&Event::ReloadRejected { mistakes });
    let new = match load() {
        Ok(new) => Arc::new(new),
        Err(mistakes) => {
            reject(mistakes.0.iter().map(ToString::to_string).collect());
            return Ok(None);
        }
    };
    if let Err(error) = sockets.bind(&new) {
        reject(vec![error.to_string()]);
        return Ok(None);
    }
    if (new.threads, &new.admin, new.log) != (old.threads, &old.admin, old.log) {
        let message = "threads, [admin] and [log] change at the next start only".to_owned();
        shared.emit(&Event::Warning { message });
    }
    let budget = Budget::new(process::raise_open_files()?, &new);
    shared.pools.serve(&new, budget.ready)?;
    workers.serve(&new, sockets, budget.sessions).await?;
    sockets.settle(&new, shared);
    shared.emit(&Event::Reloaded { listeners: new.listeners.len() });
    Ok(Some(new))
}

/// Lets running sessions finish until the deadline or a second signal.
async fn drain(config: &Config, sockets: &mut Sockets, workers: &mut Workers, signals: &mut Signals) {
    let shared = Arc::clone(&workers.shared);
    let deadline = config.timeouts.drain;
    shared.emit(&Event::Draining { open: shared.open_sessions(), deadline });
    workers.tell_all(|| Command::Drain).await;
    shared.pools.close();
    sockets.close();
    let empty = async {
        let until = Instant::now() + deadline;
        while shared.open_sessions() > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = empty => {}
        () = signals.end() => {}
    }
    let aborted = shared.open_sessions();
    workers.tell_all(|| Command::End).await;
    workers.join();
    shared.emit(&Event::Stopped { aborted });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::{Flags, load};
    use crate::config::{Hop, HopKind, Peering};
    use ekiden_proto::{addr::Target, key::PrivateKey, profile::Profile};

    /// A configuration with so many next relays.
    fn config(relays: u16) -> Config {
        let flags = Flags { listen: vec!["auto://127.0.0.1:0".to_owned()], ..Flags::default() };
        let mut config = load(None, &flags).unwrap();
        let own = Arc::new(PrivateKey::generate());
        let kind = HopKind::Section(Peering { key: own.public(), own, encrypt: false });
        let hop = |port: u16| Hop {
            name: port.to_string().into(),
            kind: kind.clone(),
            address: Target::parse("127.0.0.1", Some(port)).unwrap(),
            profile: Arc::new(Profile::named("test")),
        };
        config.go_by((1..=relays).map(|port| Arc::new(hop(port))).collect());
        config.threads = 2;
        config
    }

    #[test]
    fn ready_connections_have_their_share_of_the_descriptors() {
        for (files, relays, ready) in [(1 << 20, 3, 256), (1024, 1, 256), (1024, 4, 64), (8, 100, 1)] {
            let config = config(relays);
            let budget = Budget::new(files, &config);
            assert_eq!(budget.ready, ready, "{files} files, {relays} relays");
            let (relays, files) = (usize::from(relays), files as usize);
            let all = 2 * budget.sessions + 2 * budget.pipes * config.threads + relays * budget.ready;
            assert!(all <= files || files == 8, "{all} of {files} descriptors");
        }
    }
}
