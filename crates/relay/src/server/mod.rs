//! The relay as a process: binds the listeners, starts a worker for each core, and waits for signals.
//!
//! SIGHUP reads the configuration again: it is checked and every new socket bound before anything changes, and when
//! that fails the old one stays. SIGTERM and SIGINT drain: no new connection is accepted, intercepted ones pass
//! directly, running sessions have until the deadline; a second signal ends the process at once. SIGUSR2 starts the
//! program again and hands over to it ([`upgrade`]).

mod certificates;
mod handover;
pub mod interception;
mod reload;
mod shutdown;
pub mod sockets;
pub mod tun_devices;
pub mod upgrade;
pub mod workers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use reload::Relay;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tun_devices::TunnelError;

use crate::config::budget::{Budget, limit_open_files};
use crate::config::congestion::{CongestionControls, ControlProvider};
use crate::config::read::ConfigErrors;
use crate::config::{Config, TargetList};
use crate::events::Events;
use crate::events::log::Log;
use crate::ingress::services::Services;
use crate::rules::RulesError;
use crate::server::interception::QueueError;
use crate::server::sockets::BindError;
use crate::server::upgrade::{Inheritance, Predecessor, UpgradeCall};
use crate::server::workers::Workers;
use shutdown::{SignalRequest, Signals};

/// How often the files of lists are looked at.
const LIST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why the relay could not start, or go over to a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A listener cannot be bound.
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
    /// Any other error of the system.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Loads the configuration.
type ConfigLoader<'a> = &'a dyn Fn() -> Result<Config, ConfigErrors>;

/// Loaders of the configuration and of congestion controls.
#[derive(Clone, Copy)]
struct Loaders<'a> {
    load: ConfigLoader<'a>,
    provide: ControlProvider<'a>,
}

/// The configuration in force.
struct ActiveConfig {
    written: Arc<Config>,
    /// With the relays of the fleet.
    served: Arc<Config>,
}

/// How a relay ends, and the configuration then in force.
enum Shutdown {
    /// A signal asked for the end.
    Drains(Arc<Config>),
    /// Another process goes on.
    Retires(Arc<Config>),
}

/// Runs the relay until it is told to end. `load` reads the configuration, at the start and at every SIGHUP, and
/// `provide` has the kernel have the congestion controls it asks for. To be called while there is one thread.
///
/// # Errors
/// [`RunError`] when it cannot start; once it runs, nothing ends it but a signal.
pub fn run(load: ConfigLoader<'_>, provide: ControlProvider<'_>) -> Result<(), RunError> {
    let loaders = Loaders { load, provide };
    let call = UpgradeCall::from_environment()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Some(call) = call else { return serve(loaders, None, Inheritance::new()).await };
        let (predecessor, inheritance) = call.answer().await?;
        let served = serve(loaders, Some(&predecessor), inheritance).await;
        if let Err(error) = &served {
            predecessor.send_failure(error.to_string()).await;
        }
        served
    })
}

async fn serve(
    loaders: Loaders<'_>,
    predecessor: Option<&Predecessor>,
    inheritance: Inheritance,
) -> Result<(), RunError> {
    let config = (loaders.load)()?;
    let budget = Budget::new(limit_open_files()?, &config);
    let (log, _writer) = Log::start(config.log)?;
    let services = Services::new(Events::new(log));
    warn(&config, &services);
    let config = obtain_controls(config, &CongestionControls::default(), loaders.provide, &services);
    let mut signals = Signals::new()?;
    let workers = Workers::start(&services, config.threads, budget.pipes)?;
    let mut relay = Relay::new(services, workers, predecessor)?;
    let served = match predecessor {
        None => relay.begin(&config).await?,
        Some(predecessor) => relay.take_over(predecessor, inheritance, &config).await?,
    };
    relay.notify_manager(Notifier::ready);
    match relay.run_until_shutdown(loaders, ActiveConfig { written: config, served }, predecessor, &mut signals).await {
        Shutdown::Drains(config) => relay.drain(&config, &mut signals).await,
        Shutdown::Retires(config) => relay.retire(&config, &mut signals).await,
    }
    Ok(())
}

/// Prints the warnings of a configuration.
fn warn(config: &Config, services: &Services) {
    for warning in &config.warnings {
        services.events.emit(&Event::Warning { message: warning.to_string() });
    }
}

/// Loads the congestion controls of `config`; a missing control is replaced, with a warning.
fn obtain_controls(
    mut config: Config,
    before: &CongestionControls,
    provide: ControlProvider<'_>,
    services: &Services,
) -> Arc<Config> {
    config.congestion = CongestionControls::obtain(&config, before, provide, |event| services.events.emit(event));
    Arc::new(config)
}

impl Relay {
    /// Reloads at every SIGHUP, and follows the fleet, until told to end or another process goes on.
    async fn run_until_shutdown(
        &mut self,
        loaders: Loaders<'_>,
        mut active: ActiveConfig,
        mut predecessor: Option<&Predecessor>,
        signals: &mut Signals,
    ) -> Shutdown {
        loop {
            let request = tokio::select! {
                request = signals.next() => request,
                () = self.services.fleet.wait_changed() => {
                    self.follow_fleet(&active.written, &mut active.served).await;
                    continue;
                }
                lost = lost_controls(predecessor, &active.written) => {
                    predecessor = None;
                    if lost {
                        self.reload_controls(loaders.provide, &mut active).await;
                    }
                    continue;
                }
                () = self.certificates.wait_due() => {
                    self.certificates.check(&active.served, &self.services);
                    continue;
                }
                never = self.keep_watchdog_alive() => never,
                never = refresh_lists(&active.served, &self.services.events) => never,
            };
            match request {
                SignalRequest::End => return Shutdown::Drains(active.served),
                SignalRequest::Upgrade => {
                    if let Some(shutdown) = self.upgrade(&active.served, signals).await {
                        return shutdown;
                    }
                }
                SignalRequest::Reload => {
                    self.notify_manager(Notifier::reloading);
                    let started_at = Instant::now();
                    match self.reload(loaders, &active).await {
                        Ok(reloaded) => active = reloaded,
                        Err(error) => self.services.events.emit(&Event::ReloadRejected { mistakes: messages(&error) }),
                    }
                    self.services.events.metrics.record_reload_duration(started_at.elapsed());
                    self.notify_manager(Notifier::ready);
                }
            }
        }
    }

    /// Notifies the service manager (sd_notify(3)).
    fn notify_manager(&self, notify: impl Fn(&Notifier) -> io::Result<()>) {
        // A manager that does not listen is no reason to stop.
        let _ = notify(&self.notifier);
    }

    /// Notifies the service manager's watchdog while no thread hangs.
    async fn keep_watchdog_alive<T>(&self) -> T {
        let Some(span) = self.notifier.watchdog_timeout().map(|span| span / 2) else {
            return std::future::pending().await;
        };
        loop {
            // `select!` recreates this future on each turn, so the deadline is kept in `self.alive`.
            sleep_until(self.alive.get() + span / 2).await;
            let answered = timeout(span, self.workers.wait_answers()).await.is_ok();
            self.alive.set(Instant::now());
            if answered {
                self.notify_manager(Notifier::watchdog_ping);
            }
        }
    }
}

/// Reads lists of targets again when their files have changed.
async fn refresh_lists<T>(config: &Config, events: &Arc<Events>) -> T {
    let lists: Vec<_> = config.routes.iter().flat_map(|route| &route.lists).cloned().collect();
    if lists.is_empty() {
        return std::future::pending().await;
    }
    loop {
        sleep(LIST_CHECK_INTERVAL).await;
        let (lists, events) = (lists.clone(), Arc::clone(events));
        // Large files take some time, in which this thread answers the service manager. Fails only if the reading panics.
        let _ = spawn_blocking(move || lists.iter().for_each(|list| refresh_list(list, &events))).await;
    }
}

fn refresh_list(list: &TargetList, events: &Events) {
    let Some(read) = list.refresh() else { return };
    let result = if read.is_ok() { "accepted" } else { "rejected" };
    events.metrics.record_list_reload(list.path.display().to_string(), result);
    if let Err(mistake) = read {
        events.emit(&Event::Warning { message: format!("the previous list remains in force: {mistake}") });
    }
}

/// Completes when the old process has ended. Returns whether congestion controls ended with it.
async fn lost_controls(predecessor: Option<&Predecessor>, config: &Config) -> bool {
    let Some(predecessor) = predecessor else { return std::future::pending().await };
    predecessor.wait_ended().await;
    config.congestion.wait_removed().await
}

/// One message for each error.
fn messages(error: &RunError) -> Vec<String> {
    match error {
        RunError::Config(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    }
}
