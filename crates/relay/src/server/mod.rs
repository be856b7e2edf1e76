//! The relay as a process: binds the listeners, starts a worker for each core, and handles signals.
//!
//! SIGHUP reloads the configuration: the new configuration is checked and all its sockets are bound before anything
//! changes; if that fails, the old configuration stays in force. SIGTERM and SIGINT drain: no new connection is
//! accepted, connections that would be intercepted bypass the relay, and running sessions have until the deadline to
//! finish; a second signal ends the process at once. SIGUSR2 starts the program again and hands over to the new process
//! ([`upgrade`]).

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

/// Interval of checks for changed target list files.
const LIST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Error that prevents the start of the relay, or the change to a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A listener cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A queue for first packets cannot be bound.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The device of a tunnel, or a route into it, cannot be created.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// The packet rules that intercept connections cannot be installed.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// Another error of the operating system.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Function that loads the configuration.
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
    /// `written` with the relays of the fleet added.
    served: Arc<Config>,
}

/// How the relay ends, with the configuration in force at that time.
enum Shutdown {
    /// A signal requested the end, and no other process accepts connections.
    Drains(Arc<Config>),
    /// Another process has taken over.
    Retires(Arc<Config>),
}

/// Runs the relay until a signal ends it or an upgrade replaces it. `load` reads the configuration, at the start and at
/// every SIGHUP; `provide` loads the congestion controls of the configuration into the kernel. Must be called while the
/// process has a single thread.
///
/// # Errors
/// [`RunError`] if the relay cannot start. After the start, errors do not end it.
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
    /// Reloads at every SIGHUP and applies changes of the fleet, until a signal requests the end or another process has
    /// taken over.
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
        // Without a listening service manager, the relay continues.
        let _ = notify(&self.notifier);
    }

    /// Notifies the service manager's watchdog as long as all worker threads respond. Never returns.
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

/// Reads target lists again when their files have changed. Never returns.
async fn refresh_lists<T>(config: &Config, events: &Arc<Events>) -> T {
    let lists: Vec<_> = config.routes.iter().flat_map(|route| &route.lists).cloned().collect();
    if lists.is_empty() {
        return std::future::pending().await;
    }
    loop {
        sleep(LIST_CHECK_INTERVAL).await;
        let (lists, events) = (lists.clone(), Arc::clone(events));
        // Reading a large file takes time, so it is done on another thread: this one has to notify the watchdog. An
        // error means that the reading has panicked.
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

/// Completes when the old process has ended. Returns whether the kernel removed congestion controls with that process.
async fn lost_controls(predecessor: Option<&Predecessor>, config: &Config) -> bool {
    let Some(predecessor) = predecessor else { return std::future::pending().await };
    predecessor.wait_ended().await;
    config.congestion.wait_removed().await
}

/// Returns one message for each mistake.
fn messages(error: &RunError) -> Vec<String> {
    match error {
        RunError::Config(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    }
}
