//! Both sides of an upgrade: taking the place of the process before, and handing over to a new one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::time::timeout;

use super::relay::{Relay, SETTLED};
use super::{Leaves, RunError};
use crate::admin;
use crate::config::{AdminBind, Config};
use crate::signals::Signals;
use crate::steering::Queues;
use crate::upgrade::{Failure, Legacy, Predecessor, Successor, Thing};
use crate::worker::Command;

impl Relay {
    /// Serves with what `before` hands over, and takes its place.
    pub async fn succeed(
        &mut self,
        before: &Predecessor,
        legacy: Legacy,
        config: &Arc<Config>,
    ) -> Result<Arc<Config>, RunError> {
        let admin = self.inherit(legacy);
        self.shared.fleet.observe();
        self.shared.fleet.apply_config(config.fleet.as_ref())?;
        // Its relays are to be known to the first session.
        self.shared.fleet.wait_synced().await;
        let served = self.take_with_fleet(config).await?;
        before.serves().await?;
        self.devices.set_shared(false);
        self.shared.fleet.join();
        self.inherit_admin(config, admin);
        Ok(served)
    }

    /// Takes what is known to this version; the rest is closed. Returns the admin listener, which comes last.
    fn inherit(&mut self, legacy: Legacy) -> Option<(String, OwnedFd)> {
        let mut admin = None;
        for (thing, descriptor) in legacy {
            match thing {
                Thing::Socket { listener, asked } => self.sockets.adopt(listener, asked, descriptor),
                Thing::Queue { number } => self.queues.adopt(number, descriptor),
                Thing::Device { name, mtu, routed } => {
                    let routed = routed.iter().filter_map(|(net, source)| Some((net.parse().ok()?, *source))).collect();
                    self.devices.adopt(name, mtu, routed, descriptor);
                }
                Thing::Admin { at } => admin = Some((at, descriptor)),
                Thing::Unknown => {}
            }
        }
        admin
    }

    fn inherit_admin(&mut self, config: &Config, admin: Option<(String, OwnedFd)>) {
        let (same, other): (Vec<_>, Vec<_>) = admin.into_iter().partition(|(at, _)| *at == config.admin.to_string());
        for (at, _) in other {
            if let Some(path) = at.strip_prefix("unix:") {
                // Nobody answers there any more.
                let _ = std::fs::remove_file(path);
            }
        }
        self.start_admin(config, same.into_iter().next().map(|(_, descriptor)| descriptor));
    }

    /// Starts the program again, and hands over to it. Goes on if that comes to nothing.
    pub async fn upgrade(&mut self, served: &Arc<Config>, signals: &mut Signals) -> Option<Leaves> {
        let legacy = match self.legacy() {
            Ok(legacy) => legacy,
            Err(error) => return self.stay(served, Failure { why: error.into(), pid: None }).await,
        };
        let raised = tokio::select! {
            biased;
            () = signals.end() => return Some(Leaves::Drains(Arc::clone(served))),
            raised = Successor::raise(&legacy, served.timeouts.upgrade) => raised,
            never = self.show_life() => never,
        };
        match raised {
            Ok(successor) => {
                self.hand_over(successor).await;
                Some(Leaves::Retires(Arc::clone(served)))
            }
            Err(failure) => self.stay(served, failure).await,
        }
    }

    /// All that a new process needs to go on where this one is.
    fn legacy(&self) -> io::Result<Legacy> {
        let mut legacy = self.sockets.legacy()?;
        legacy.extend(self.queues.legacy()?);
        legacy.extend(self.devices.inheritable()?);
        if let Some(running) = self.admin.as_ref().filter(|_| self.admin_at.bind != AdminBind::Off) {
            legacy.push((Thing::Admin { at: self.admin_at.to_string() }, running.try_clone_descriptor()?));
        }
        Ok(legacy)
    }

    async fn hand_over(&mut self, mut successor: Successor) {
        let (pid, version) = successor.is();
        self.workers.tell_all(|| Command::Retire).await;
        // Whoever comes when that is done comes to the other process. One that hangs does not accept either.
        let _ = timeout(SETTLED, self.workers.answer()).await;
        // Two that write our entry would take each other's away.
        self.shared.fleet.stop().await;
        self.tell_manager(|notifier| notifier.set_main_pid(pid));
        // From now on the manager hears only the other one.
        self.notifier = Notifier::default();
        self.rules.hand_over(&self.shared);
        self.queues = Queues::default();
        self.devices.set_shared(true);
        self.admin.take().into_iter().for_each(admin::AdminListener::hand_over);
        successor.go().await;
        self.successor = Some(successor);
        self.shared.emit(&Event::Upgraded { pid, version });
    }

    /// Goes on. What the new process may have changed, in the kernel or of our sockets, is made as it was.
    async fn stay(&mut self, served: &Arc<Config>, failure: Failure) -> Option<Leaves> {
        let why = failure.why.to_string();
        if let Some(pid) = failure.pid {
            self.rules.take_back_from(pid);
            if let Err(error) = self.take(served).await {
                let message = format!("after a failed upgrade: {error}: a reload (SIGHUP) tries again");
                self.shared.emit(&Event::Warning { message });
            }
        }
        self.tell_manager(|notifier| notifier.status(&format!("upgrade failed, goes on as before: {why}")));
        self.shared.emit(&Event::UpgradeFailed { why: why.clone() });
        self.shared.upgrades.failed(why);
        None
    }
}
