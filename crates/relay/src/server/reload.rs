//! The components of a running relay, and the change from one configuration to the next.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::time::{Instant, sleep, timeout};

use super::certificates::CertificateWatch;
use super::interception::{InstalledRules, PacketQueues};
use super::sockets::Sockets;
use super::tun_devices::Devices;
use super::upgrade::{Predecessor, Successor};
use super::workers::Workers;
use super::{ActiveConfig, Loaders, RunError, obtain_controls, warn};
use crate::admin;
use crate::config::budget::{Budget, limit_open_files};
use crate::config::congestion::ControlProvider;
use crate::config::{AdminBind, AdminConfig, Config};
use crate::ingress::services::Services;
use crate::rules::{Owner, Ruleset};
use crate::shaping::fair_share;
use crate::worker::Interception;

/// Maximum time to wait for the workers to confirm a change of state.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time over which changes of the fleet are collected before they are applied.
const FLEET_BATCH_DELAY: Duration = Duration::from_millis(50);

/// The components of a running relay.
pub(super) struct Relay {
    pub services: Arc<Services>,
    pub workers: Workers,
    pub sockets: Sockets,
    pub queues: PacketQueues,
    pub rules: InstalledRules,
    pub devices: Devices,
    pub notifier: Notifier,
    pub certificates: CertificateWatch,
    /// Time of the last check that waited for answers of all worker threads.
    pub alive: Cell<Instant>,
    pub admin: Option<admin::AdminListener>,
    /// The configuration of the admin listener that runs.
    pub admin_at: AdminConfig,
    /// The new process, after an upgrade: dropping it closes the channel to that process.
    pub successor: Option<Successor>,
}

impl Relay {
    /// Creates a relay that does not serve yet; `predecessor` is the process to replace.
    pub fn new(services: Arc<Services>, workers: Workers, predecessor: Option<&Predecessor>) -> io::Result<Self> {
        Ok(Self {
            services,
            workers,
            sockets: Sockets::default(),
            queues: PacketQueues::default(),
            rules: InstalledRules::new(
                predecessor.map_or(Owner::Daemon, |predecessor| Owner::Successor(predecessor.pid)),
            ),
            devices: Devices::default(),
            notifier: Notifier::from_env()?,
            certificates: CertificateWatch::new(),
            alive: Cell::new(Instant::now()),
            admin: None,
            admin_at: AdminBind::Off.into(),
            successor: None,
        })
    }

    /// Starts serving without a predecessor. Returns the configuration in force.
    pub async fn begin(&mut self, config: &Arc<Config>) -> Result<Arc<Config>, RunError> {
        // The admin listener starts first, because a client may request the status as soon as it sees "listening".
        self.start_admin(config, None);
        let served = self.apply_with_discovery(config).await?;
        // etcd may have answered before the configuration was applied; `follow_fleet` reports only members that are
        // added later.
        if let Some(event) = served.fleet_change(&config.with_fleet(&[])) {
            self.services.events.emit(&event);
        }
        Ok(served)
    }

    /// Starts the admin listener, on the inherited socket if the address matches.
    pub fn start_admin(&mut self, config: &Config, inherited: Option<std::os::fd::OwnedFd>) {
        self.services.upgrades.set_timeout(config.timeouts.upgrade);
        if config.admin.bind == AdminBind::Off {
            return;
        }
        match admin::start(&config.admin, inherited, Arc::clone(&self.services), self.workers.commands()) {
            Ok(running) => (self.admin, self.admin_at) = (Some(running), config.admin.clone()),
            Err(error) => {
                let message = format!("no admin listener, so `ekiden status` does not work: {error}");
                self.services.events.emit(&Event::Warning { message });
            }
        }
    }

    /// Configures fleet discovery and applies `config` with the known relays of the fleet. Returns the configuration in
    /// force.
    pub async fn apply_with_discovery(&mut self, config: &Arc<Config>) -> Result<Arc<Config>, RunError> {
        self.services.fleet.apply_config(config.fleet.as_ref())?;
        self.apply_with_fleet(config).await
    }

    /// Applies `config` with the known relays of the fleet, whose discovery is configured already. Returns the
    /// configuration in force.
    pub async fn apply_with_fleet(&mut self, config: &Arc<Config>) -> Result<Arc<Config>, RunError> {
        let (members, change) = self.services.fleet.members();
        let served = Arc::new(config.with_fleet(&members));
        self.apply(&served).await?;
        self.services.fleet.mark_applied(change);
        Ok(served)
    }

    /// Applies `written` with the changed relays of the fleet, and updates `served`. Listeners stay bound.
    pub async fn follow_fleet(&mut self, written: &Config, served: &mut Arc<Config>) {
        // Several changes may arrive at once.
        sleep(FLEET_BATCH_DELAY).await;
        let (members, change) = self.services.fleet.members();
        let new = Arc::new(written.with_fleet(&members));
        let Some(event) = new.fleet_change(served) else { return self.services.fleet.mark_applied(change) };
        match self.apply_in_place(&new).await {
            Ok(_) => {
                *served = new;
                self.services.fleet.mark_applied(change);
                self.services.events.emit(&event);
            }
            Err(error) => {
                let message =
                    format!("cannot apply the relays of the fleet, the previous relays remain in force: {error}");
                self.services.events.emit(&Event::Warning { message });
            }
        }
    }

    /// Applies `config`. Steps that can fail come first, so that a rejected configuration changes nothing.
    pub async fn apply(&mut self, config: &Arc<Config>) -> Result<(), RunError> {
        let budget = self.apply_in_place(config).await?;
        self.sockets.commit(config, &self.services);
        self.queues.commit(config);
        self.devices.commit(config, &self.services);
        self.certificates.restart(config, &self.services);
        let hints = fair_share::missing_interface_warnings(&config.interfaces)
            .chain(config.unused_relay_warnings())
            .chain(config.unbound_network_warnings())
            .chain(budget.sessions_warning(config));
        hints.for_each(|message| self.services.events.emit(&Event::Warning { message }));
        Ok(())
    }

    /// Applies `config` without closing sockets, queues or devices of the previous configuration. Returns its budget of
    /// descriptors.
    async fn apply_in_place(&mut self, config: &Arc<Config>) -> Result<Budget, RunError> {
        let budget = Budget::new(limit_open_files()?, config);
        // Not `config.threads`, which a reload does not change: no worker would accept from the other sockets.
        self.sockets.bind(config, self.workers.count())?;
        // Before the queues: the error of a conflict names the owner of the rules, that of a busy queue does not.
        self.rules.claim(config)?;
        self.queues.bind(config, &self.services)?;
        self.devices.bind(config)?;
        let usage_file = config.limits.usage_file.as_deref();
        self.services.accounts.check_usage_file(usage_file)?;
        // Before the first change: without descriptors for all workers, no worker may get the new configuration.
        let sockets = self.sockets.duplicate(config, self.workers.count())?;
        let gates = self.queues.duplicate(config)?;
        let gated = self.rules.apply(config, &self.services)? && self.queues.are_complete(config);
        self.services.events.metrics.rules.set_instance(Ruleset::of(config).map(|rules| rules.instance()));
        self.services.events.traces.apply_config(config, &self.services.events)?;
        self.services.pools.serve(config, budget.ready)?;
        self.services.reports.apply_config(config, &self.services.estimates, &self.services.events)?;
        self.services.history.apply_config(config.history.as_ref(), &self.services.estimates, &self.services.events)?;
        self.services.path_selector.apply_config(config)?;
        self.services.accounts.open_usage_file(usage_file, &self.services.events)?;
        let gates = if gated { gates } else { Vec::new() };
        self.services.shared_interfaces.apply_config(&config.interfaces);
        self.services.accounts.apply_config(config);
        // Before the workers switch, so that connections which their sessions return to the pool are checked against
        // the new configuration.
        self.services.upstream_pool.apply_config(config);
        let devices = self.devices.devices_for(config);
        self.services.tunnels.apply_config(devices.iter().map(|(_, device)| Arc::clone(device)).collect(), config);
        self.workers.apply_config(config, sockets, Interception { gates, devices }, budget).await;
        // Once all workers have answered, no new connection is served with the previous configuration. A hung worker is
        // reported elsewhere.
        let _ = timeout(SETTLE_TIMEOUT, self.workers.wait_answers()).await;
        Ok(budget)
    }

    /// Reads the configuration again and applies it. Returns the configuration in force.
    pub async fn reload(&mut self, loaders: Loaders<'_>, active: &ActiveConfig) -> Result<ActiveConfig, RunError> {
        let ActiveConfig { written: old, served } = active;
        let new = (loaders.load)()?;
        warn(&new, &self.services);
        let new = obtain_controls(new, &old.congestion, loaders.provide, &self.services);
        let result = self.apply_with_discovery(&new).await;
        let new_served = match result {
            Ok(new_served) => new_served,
            Err(error) => {
                self.sockets.retain(served);
                self.queues.commit(served);
                self.devices.commit(served, &self.services);
                self.services.fleet.apply_config(old.fleet.as_ref())?;
                return Err(error);
            }
        };
        if (new.threads, &new.admin, new.log) != (old.threads, &old.admin, old.log) {
            let message = "changes of threads, [admin] and [log] require a restart".to_owned();
            self.services.events.emit(&Event::Warning { message });
        }
        self.services.upgrades.set_timeout(new.timeouts.upgrade);
        self.services.events.emit(&Event::Reloaded { listeners: new.listeners.len() });
        Ok(ActiveConfig { written: new, served: new_served })
    }

    /// Loads the congestion controls again that the kernel removed when their loader, the predecessor, ended.
    pub async fn reload_controls(&mut self, provide: ControlProvider<'_>, active: &mut ActiveConfig) {
        let written = &active.written;
        let reloaded = obtain_controls(Config::clone(written), &written.congestion, provide, &self.services);
        match self.apply_with_discovery(&reloaded).await {
            Ok(served) => *active = ActiveConfig { written: reloaded, served },
            Err(error) => {
                let message =
                    format!("cannot apply the congestion controls after an upgrade: {error}: reload (SIGHUP) to retry");
                self.services.events.emit(&Event::Warning { message });
            }
        }
    }
}
