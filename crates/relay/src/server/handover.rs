//! Both sides of an upgrade: taking over from the old process, and handing over to a new one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::time::timeout;

use super::interception::PacketQueues;
use super::reload::{Relay, SETTLE_TIMEOUT};
use super::shutdown::Signals;
use super::upgrade::{Failure, Inheritance, Inherited, Predecessor, Successor};
use super::{RunError, Shutdown};
use crate::admin;
use crate::config::{AdminBind, Config};
use crate::worker::Command;

impl Relay {
    /// Takes over from `predecessor` and starts serving. Returns the configuration in force.
    pub async fn take_over(
        &mut self,
        predecessor: &Predecessor,
        inheritance: Inheritance,
        config: &Arc<Config>,
    ) -> Result<Arc<Config>, RunError> {
        let admin = self.inherit(inheritance);
        self.services.fleet.observe();
        self.services.fleet.apply_config(config.fleet.as_ref())?;
        // The first session may need a relay of the fleet.
        self.services.fleet.wait_synced().await;
        let served = self.apply_with_fleet(config).await?;
        predecessor.send_serving().await?;
        self.devices.set_shared(false);
        self.services.fleet.join();
        self.inherit_admin(config, admin);
        Ok(served)
    }

    /// Adopts the inherited descriptors of kinds that this version supports, and closes the rest. Returns the address
    /// and the descriptor of the admin listener, which starts last.
    fn inherit(&mut self, inheritance: Inheritance) -> Option<(String, OwnedFd)> {
        let mut admin = None;
        for (inherited, descriptor) in inheritance {
            match inherited {
                Inherited::Socket { listener, asked } => self.sockets.adopt(listener, asked, descriptor),
                Inherited::Queue { number } => self.queues.adopt(number, descriptor),
                Inherited::Device { name, mtu, routed } => {
                    let routed = routed.iter().filter_map(|(net, source)| Some((net.parse().ok()?, *source))).collect();
                    self.devices.adopt(name, mtu, routed, descriptor);
                }
                Inherited::Admin { at } => admin = Some((at, descriptor)),
                Inherited::Unknown => {}
            }
        }
        admin
    }

    fn inherit_admin(&mut self, config: &Config, admin: Option<(String, OwnedFd)>) {
        let (current, stale): (Vec<_>, Vec<_>) = admin.into_iter().partition(|(at, _)| *at == config.admin.to_string());
        for (_, descriptor) in stale {
            // No process accepts on this socket any more, so its file is removed.
            let address = UnixListener::from(descriptor).local_addr();
            let _ = address.map(|address| address.as_pathname().map(std::fs::remove_file));
        }
        self.start_admin(config, current.into_iter().next().map(|(_, descriptor)| descriptor));
    }

    /// Starts the program again and hands over to the new process. If that fails, this process continues to serve and
    /// `None` is returned.
    pub async fn upgrade(&mut self, served: &Arc<Config>, signals: &mut Signals) -> Option<Shutdown> {
        let inheritance = match self.inheritance() {
            Ok(inheritance) => inheritance,
            Err(error) => return self.resume(served, Failure { why: error.into(), pid: None }).await,
        };
        let started = tokio::select! {
            biased;
            () = signals.wait_end() => return Some(Shutdown::Drains(Arc::clone(served))),
            started = Successor::start(&inheritance, served.timeouts.upgrade) => started,
            never = self.keep_watchdog_alive() => never,
        };
        match started {
            Ok(successor) => {
                self.hand_over(successor).await;
                Some(Shutdown::Retires(Arc::clone(served)))
            }
            Err(failure) => self.resume(served, failure).await,
        }
    }

    /// All descriptors that a new process needs to continue.
    fn inheritance(&self) -> io::Result<Inheritance> {
        let mut inheritance = self.sockets.inheritance()?;
        inheritance.extend(self.queues.inheritance()?);
        inheritance.extend(self.devices.inheritable()?);
        if let Some(running) = self.admin.as_ref().filter(|_| self.admin_at.bind != AdminBind::Off) {
            inheritance.push((Inherited::Admin { at: self.admin_at.to_string() }, running.try_clone_descriptor()?));
        }
        Ok(inheritance)
    }

    async fn hand_over(&mut self, mut successor: Successor) {
        let (pid, version) = successor.identity();
        self.workers.send_all(|| Command::Retire).await;
        // After the workers have answered, new connections go to the other process. A hung worker does not accept any
        // either.
        let _ = timeout(SETTLE_TIMEOUT, self.workers.wait_answers()).await;
        // The fleet entry must have one writer: two processes would each remove the entry of the other.
        self.services.fleet.stop().await;
        self.notify_manager(|notifier| notifier.set_main_pid(pid));
        // From now on the service manager gets its notifications from the new process.
        self.notifier = Notifier::default();
        self.rules.hand_over(&self.services);
        self.queues = PacketQueues::default();
        self.devices.set_shared(true);
        self.admin.take().into_iter().for_each(admin::AdminListener::hand_over);
        successor.release().await;
        self.successor = Some(successor);
        self.services.events.emit(&Event::Upgraded { pid, version });
    }

    /// Continues to serve after a failed upgrade, and restores kernel state and sockets that the new process may have
    /// changed.
    async fn resume(&mut self, served: &Arc<Config>, failure: Failure) -> Option<Shutdown> {
        let why = failure.why.to_string();
        if let Some(pid) = failure.pid {
            self.rules.reclaim_from(pid);
            if let Err(error) = self.apply(served).await {
                let message =
                    format!("cannot apply the configuration after a failed upgrade: {error}: reload (SIGHUP) to retry");
                self.services.events.emit(&Event::Warning { message });
            }
        }
        self.notify_manager(|notifier| {
            notifier.status(&format!("upgrade failed, the old process continues to serve: {why}"))
        });
        self.services.events.emit(&Event::UpgradeFailed { why: why.clone() });
        self.services.upgrades.record_failure(why);
        None
    }
}
