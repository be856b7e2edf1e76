//! The relay as a process: binds the listeners, starts a worker for each core, and waits for signals.
//!
//! SIGHUP reads the configuration again: it is checked and every new socket bound before anything changes, and when
//! that fails the old one stays. SIGTERM and SIGINT drain: nothing new is accepted, what the rules would catch goes by
//! without us, running sessions have until the deadline; a second one ends at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use ekiden_sys::process;
use tokio::time::{Instant, sleep, timeout};

use crate::admin;
use crate::budget::Budget;
use crate::config::read::Mistakes;
use crate::config::{Admin, Config};
use crate::congestion::{Controls, Provide};
use crate::log::Log;
use crate::rules::RulesError;
use crate::share;
use crate::shared::Shared;
use crate::signals::{Signals, Wanted};
use crate::sockets::{BindError, Sockets};
use crate::steering::{QueueError, Queues, Rules};
use crate::tun::{Devices, TunnelError};
use crate::worker::{Command, Steering};
use crate::workers::Workers;

/// How often a draining relay looks whether it is empty.
const LOOK: Duration = Duration::from_millis(20);

/// How long the workers have for going over to it, before the fleet hears of us all the same.
const SETTLED: Duration = Duration::from_secs(1);

/// How long changes of the fleet are gathered before they are taken in.
const GATHER: Duration = Duration::from_millis(50);

/// Why the relay could not start, or go over to a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] Mistakes),
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A queue of first packets.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The device of a tunnel.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// The rules that catch connections.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The system.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Reads the configuration.
type Load<'a> = &'a dyn Fn() -> Result<Config, Mistakes>;

/// Where a configuration, and what it asks for, come from.
type Means<'a> = (Load<'a>, Provide<'a>);

/// Runs the relay until it is told to end. `load` reads the configuration, at the start and at every SIGHUP, and
/// `provide` has the kernel have the congestion controls it asks for.
///
/// # Errors
/// [`RunError`] when it cannot start; once it runs, nothing ends it but a signal.
pub fn run(load: Load<'_>, provide: Provide<'_>) -> Result<(), RunError> {
    let config = load()?;
    let budget = Budget::new(process::raise_open_files()?, &config);
    let (log, _writer) = Log::start(config.log)?;
    let shared = Shared::new(log);
    let config = with_controls(config, &Controls::default(), provide, &shared);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let workers = Workers::start(&shared, config.threads, budget.pipes)?;
        // Before the listeners, so that whoever sees "listening" can ask for the status as well.
        let admin = start_admin(&config, &shared, &workers);
        let mut relay = Relay {
            shared,
            workers,
            sockets: Sockets::default(),
            queues: Queues::default(),
            rules: Rules::default(),
            devices: Devices::default(),
            notifier: Notifier::from_environment()?,
        };
        let served = relay.take_all(&config).await?;
        relay.tell_manager(Notifier::ready);
        let config = relay.govern((load, provide), (config, served), &mut signals).await;
        relay.drain(&config, &mut signals).await;
        drop(admin);
        Ok(())
    })
}

/// Sees to the congestion controls that `config` asks for; without one there is another in its place.
fn with_controls(mut config: Config, before: &Controls, provide: Provide<'_>, shared: &Shared) -> Arc<Config> {
    config.congestion = Controls::obtain(&config, before, provide, |event| shared.emit(event));
    Arc::new(config)
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

/// The parts of a running relay.
struct Relay {
    shared: Arc<Shared>,
    workers: Workers,
    sockets: Sockets,
    queues: Queues,
    rules: Rules,
    devices: Devices,
    notifier: Notifier,
}

impl Relay {
    /// Goes over to `config` with the relays of its fleet, as far as they are known; returns what is in force by that.
    async fn take_all(&mut self, config: &Arc<Config>) -> Result<Arc<Config>, RunError> {
        self.shared.fleet.serve(config.fleet.as_ref())?;
        let (members, change) = self.shared.fleet.members();
        let served = Arc::new(config.with_fleet(&members));
        self.take(&served).await?;
        self.shared.fleet.served(change);
        Ok(served)
    }

    /// Relays of the fleet have come or gone: goes over to what `written` is by that. Listeners stay as they are bound.
    async fn follow_fleet(&mut self, written: &Config, served: &mut Arc<Config>) {
        // Many may come at once.
        sleep(GATHER).await;
        let (members, change) = self.shared.fleet.members();
        let new = Arc::new(written.with_fleet(&members));
        let Some(news) = new.fleet_news(served) else { return self.shared.fleet.served(change) };
        match self.go_over(&new).await {
            Ok(()) => {
                *served = new;
                // Whoever is told that we are there may be let in by any of them. One that hangs is told elsewhere.
                let _ = timeout(SETTLED, self.workers.answer()).await;
                self.shared.fleet.served(change);
                self.shared.emit(&news);
            }
            Err(error) => {
                let message = format!("the relays of the fleet cannot be taken in, those before stay: {error}");
                self.shared.emit(&Event::Warning { message });
            }
        }
    }

    /// Goes over to `config`. What can fail comes first, so that a configuration that is turned down leaves no trace.
    async fn take(&mut self, config: &Arc<Config>) -> Result<(), RunError> {
        self.go_over(config).await?;
        self.sockets.settle(config, &self.shared);
        self.queues.settle(config);
        self.devices.settle(config, &self.shared);
        share::missing(&config.interfaces).for_each(|message| self.shared.emit(&Event::Warning { message }));
        Ok(())
    }

    /// The same, where all that was there before stays: nothing of it is let go.
    async fn go_over(&mut self, config: &Arc<Config>) -> Result<(), RunError> {
        let budget = Budget::new(process::raise_open_files()?, config);
        self.sockets.bind(config)?;
        // Whose it is says more than that a queue is taken.
        self.rules.claim(config)?;
        self.queues.bind(config, &self.shared)?;
        self.devices.bind(config)?;
        let gated = self.rules.apply(config, &self.shared)? && self.queues.are_complete(config);
        self.shared.pools.serve(config, budget.ready)?;
        self.shared.reports.serve(config, &self.shared)?;
        self.shared.history.serve(config.history.as_ref(), &self.shared)?;
        self.shared.choosing.serve(config)?;
        let gates = if gated { self.queues.lend(config)? } else { Vec::new() };
        self.shared.shares.serve(&config.interfaces);
        let devices = self.devices.lend(config);
        self.shared.tunnels.serve(devices.iter().map(|(_, device)| Arc::clone(device)).collect());
        self.workers.serve(config, &self.sockets, Steering { gates, devices }, budget.sessions).await?;
        Ok(())
    }

    /// Reloads at every SIGHUP, and follows the fleet, until told to end; returns the configuration then in force. Given
    /// are the one that was written, and what it is with the fleet.
    async fn govern(
        &mut self,
        means: Means<'_>,
        (mut config, mut served): (Arc<Config>, Arc<Config>),
        signals: &mut Signals,
    ) -> Arc<Config> {
        loop {
            let wanted = tokio::select! {
                wanted = signals.next() => wanted,
                () = self.shared.fleet.changed() => {
                    self.follow_fleet(&config, &mut served).await;
                    continue;
                }
                never = self.show_life() => never,
            };
            if wanted == Wanted::End {
                return served;
            }
            self.tell_manager(Notifier::reloading);
            match self.reload(means, (&config, &served)).await {
                Ok(new) => (config, served) = new,
                Err(error) => self.shared.emit(&Event::ReloadRejected { mistakes: mistakes(&error) }),
            }
            self.tell_manager(Notifier::ready);
        }
    }

    async fn reload(
        &mut self,
        (load, provide): Means<'_>,
        (old, served): (&Arc<Config>, &Config),
    ) -> Result<(Arc<Config>, Arc<Config>), RunError> {
        let new = with_controls(load()?, &old.congestion, provide, &self.shared);
        let taken = self.take_all(&new).await;
        let new_served = match taken {
            Ok(new_served) => new_served,
            Err(error) => {
                self.sockets.forget_all_but(served);
                self.queues.settle(served);
                self.devices.settle(served, &self.shared);
                self.shared.fleet.serve(old.fleet.as_ref())?;
                return Err(error);
            }
        };
        if (new.threads, &new.admin, new.log) != (old.threads, &old.admin, old.log) {
            let message = "threads, [admin] and [log] change at the next start only".to_owned();
            self.shared.emit(&Event::Warning { message });
        }
        self.shared.emit(&Event::Reloaded { listeners: new.listeners.len() });
        Ok((new, new_served))
    }

    /// Tells whoever started us (sd_notify(3)).
    fn tell_manager(&self, tell: impl Fn(&Notifier) -> io::Result<()>) {
        // A manager that does not listen is no reason to stop.
        let _ = tell(&self.notifier);
    }

    /// Tells whoever started us that no thread hangs, as often as that is wanted.
    async fn show_life<T>(&self) -> T {
        let Some(span) = self.notifier.watchdog().map(|span| span / 2) else { return std::future::pending().await };
        loop {
            sleep(span / 2).await;
            if timeout(span, self.workers.answer()).await.is_ok() {
                self.tell_manager(Notifier::alive);
            }
        }
    }

    /// Lets running sessions finish until the deadline or a second signal.
    async fn drain(&mut self, config: &Config, signals: &mut Signals) {
        let deadline = config.timeouts.drain;
        self.tell_manager(Notifier::stopping);
        // Others stop choosing us before we stop accepting.
        self.shared.fleet.drain().await;
        self.rules.release(&self.shared);
        self.shared.emit(&Event::Draining { open: self.shared.open_sessions(), deadline });
        self.workers.tell_all(|| Command::Drain).await;
        self.shared.reports.close();
        self.shared.pools.close();
        self.shared.choosing.close();
        self.sockets.close();
        tokio::select! {
            () = self.is_empty(deadline) => {}
            () = signals.end() => {}
            () = self.show_life() => {}
        }
        self.shared.fleet.leave().await;
        let aborted = self.shared.open_sessions();
        self.workers.tell_all(|| Command::End).await;
        self.workers.join();
        self.shared.history.close();
        self.rules.remove(&self.shared);
        self.shared.emit(&Event::Stopped { aborted });
    }

    async fn is_empty(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        while self.shared.open_sessions() > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
    }
}

/// Each by itself.
fn mistakes(error: &RunError) -> Vec<String> {
    match error {
        RunError::Config(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    }
}
