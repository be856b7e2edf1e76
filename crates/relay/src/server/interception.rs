//! Interception of transparent connections: the netfilter queues for their first packets, and the packet rules in the
//! kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ekiden_proto::event::Event;
use ekiden_sys::nfqueue::NfQueue;

use super::sockets::NEEDS_NET_ADMIN;
use super::upgrade::{Inheritance, Inherited};
use crate::config::{Config, ConnectMode, Listener, RuleManagement};
use crate::ingress::services::Services;
use crate::rules::{self, Holder, Marks, Owner, Queue, RulesError, Ruleset};
use crate::worker::GatedListener;

/// Maximum number of first packets in a queue. When the queue is full, the kernel passes packets without a verdict.
const MAX_QUEUED: u32 = 8192;

/// Text of the warning for a kernel without netfilter queues.
const NO_QUEUE: &str = "no queue for first packets of clients: connect = \"hold\" behaves like \"strict\", and at \
                        limits.sessions no connection bypasses the relay";

/// A queue for the first packets of a transparent listener cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("listener {name} cannot bind queue {number} of first packets: {cause}{}", hint(cause))]
pub struct QueueError {
    name: String,
    number: u16,
    /// The cause, which the message already contains.
    cause: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NEEDS_NET_ADMIN,
        io::ErrorKind::ResourceBusy => " (another ekiden uses the queue: set another [transparent] instance)",
        _ => "",
    }
}

/// The queues that are bound at present. The gates get duplicates of the descriptors, so that a queue that stays
/// configured stays bound over a reload.
#[derive(Debug, Default)]
pub struct PacketQueues {
    queues: BTreeMap<u16, NfQueue>,
    /// Whether the warning about missing queues was emitted.
    has_warned: bool,
}

impl PacketQueues {
    /// Adopts the queue `number` of another process.
    pub fn adopt(&mut self, number: u16, descriptor: OwnedFd) {
        self.queues.insert(number, NfQueue::from_fd(descriptor, number));
    }

    /// Returns duplicates of all queues, for a successor process.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn inheritance(&self) -> io::Result<Inheritance> {
        let inherited = |(number, queue): (&u16, &NfQueue)| {
            Ok((Inherited::Queue { number: *number }, queue.as_fd().try_clone_to_owned()?))
        };
        self.queues.iter().map(inherited).collect()
    }

    /// Binds the queues of `config` that are not bound yet. A kernel without queues is not an error: no packet is held
    /// then.
    ///
    /// # Errors
    /// The first queue that cannot be bound; nothing has changed then.
    pub fn bind(&mut self, config: &Config, services: &Services) -> Result<(), QueueError> {
        let mut fresh = BTreeMap::new();
        for (number, listener) in numbered_listeners(config) {
            if self.queues.contains_key(&number) {
                continue;
            }
            match NfQueue::bind(number, MAX_QUEUED) {
                Ok(queue) => drop(fresh.insert(number, queue)),
                Err(cause) if NfQueue::is_unsupported(&cause) => {
                    self.disable_hold(config, services);
                    return Ok(());
                }
                Err(cause) => return Err(QueueError { name: listener.name.clone(), number, cause }),
            }
        }
        self.queues.append(&mut fresh);
        Ok(())
    }

    fn disable_hold(&mut self, config: &Config, services: &Services) {
        let holds = config.transparent_listeners().any(|listener| listener.connect == ConnectMode::Hold);
        if holds && !std::mem::replace(&mut self.has_warned, true) {
            let message = format!("{NO_QUEUE} (CONFIG_NETFILTER_NETLINK_QUEUE)");
            services.events.emit(&Event::Warning { message });
        }
    }

    /// Whether every transparent listener has a queue.
    #[must_use]
    pub fn are_complete(&self, config: &Config) -> bool {
        numbered_listeners(config).all(|(number, _)| self.queues.contains_key(&number))
    }

    /// Returns duplicates of the queues for the gates, with listeners and indices.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn duplicate(&self, config: &Config) -> io::Result<Vec<GatedListener>> {
        let lend = |(index, (number, listener)): (usize, (u16, &Arc<Listener>))| {
            let queue = self.queues.get(&number)?;
            Some(queue.try_clone().map(|queue| (Arc::clone(listener), index, queue)))
        };
        numbered_listeners(config).enumerate().filter_map(lend).collect()
    }

    /// Closes queues that `config` does not need. With managed rules, the queues of removed listeners stay bound: no
    /// packet reaches them, the gate of a removed listener still uses its queue for a while, and if the listener is
    /// configured again, its queue cannot be bound a second time.
    pub fn commit(&mut self, config: &Config) {
        let (marks, managed) = (config.marks(), config.transparent.rules == RuleManagement::Managed);
        let is_ours = |queue_number| (0..Marks::MOST_LISTENERS).any(|index| marks.queue(index) == queue_number);
        self.queues.retain(|queue_number, _| {
            managed && is_ours(*queue_number) || numbered_listeners(config).any(|(number, _)| number == *queue_number)
        });
    }
}

/// Returns the transparent listeners with the numbers of their queues.
fn numbered_listeners(config: &Config) -> impl Iterator<Item = (u16, &Arc<Listener>)> {
    let marks = config.marks();
    config.transparent_listeners().enumerate().map(move |(index, listener)| (marks.queue(index), listener))
}

/// The rules that this process has installed in the kernel and has to remove again.
#[derive(Debug)]
pub struct InstalledRules {
    applied: Option<Ruleset>,
    /// How first packets reach the gate, while the rules in the kernel are exactly those of `applied`.
    queue: Option<Queue>,
    owner: Owner,
}

impl InstalledRules {
    /// Creates the state without installed rules. `owner` is the party that later rules are installed for.
    pub const fn new(owner: Owner) -> Self {
        Self { applied: None, queue: None, owner }
    }

    /// Allows the next change to replace rules that are registered for process `pid`, a successor that failed.
    pub const fn reclaim_from(&mut self, pid: u32) {
        self.owner = Owner::Successor(pid);
    }

    /// Hands the rules over to a process that serves already and has replaced them. If its configuration needs no
    /// rules, this process still owns the old ones: new connections are no longer intercepted, and the rules are
    /// removed when this process ends.
    pub fn hand_over(&mut self, services: &Services) {
        let Some(instance) = self.applied.as_ref().map(Ruleset::instance) else { return };
        let ours = Holder::Running(std::process::id());
        if rules::holder(instance).is_ok_and(|holder| holder == Some(ours)) {
            self.release(services);
        } else {
            self.applied = None;
        }
    }

    /// Checks that no other daemon owns the instance that `config` needs.
    ///
    /// # Errors
    /// Another running daemon owns the instance, or nft failed.
    pub fn claim(&self, config: &Config) -> Result<(), RulesError> {
        let instance = config.transparent.instance;
        let ours = self.applied.as_ref().is_some_and(|applied| applied.instance() == instance);
        if ours || config.transparent.rules == RuleManagement::Manual || Ruleset::of(config).is_none() {
            return Ok(());
        }
        rules::claim(instance, self.owner).map(drop)
    }

    /// Replaces the installed rules by those of `config` if they differ. Returns whether first packets reach the gate.
    ///
    /// # Errors
    /// The failure of nft or the conflict with another owner, with the remedy; nothing has changed then.
    pub fn apply(&mut self, config: &Config, services: &Services) -> Result<bool, RulesError> {
        if config.transparent.rules == RuleManagement::Manual {
            self.remove(services);
            return Ok(true);
        }
        let Some(mut ruleset) = Ruleset::of(config) else {
            // Sessions of removed listeners may still run.
            self.release(services);
            return Ok(true);
        };
        let instance = ruleset.instance();
        if let Some(applied) = self.applied.as_ref().filter(|applied| applied.instance() == instance) {
            ruleset.add_sessions_of(applied);
        }
        if self.try_keep(&ruleset) {
            return Ok(true);
        }
        self.queue = None;
        let queue = ruleset.apply(self.owner)?.queue;
        // After the step that can fail. Instances have no mark, queue or route in common.
        if let Some(previous) = self.applied.replace(ruleset).filter(|previous| previous.instance() != instance) {
            emit_result(rules::remove(previous.instance()).map(drop), services);
        }
        if let Queue::Missing(why) = &queue {
            services.events.emit(&Event::Warning { message: format!("{NO_QUEUE} ({why})") });
            return Ok(false);
        }
        self.queue = Some(queue);
        Ok(true)
    }

    /// Keeps the rules in the kernel if they are those of `ruleset`, and restores the parts beside the table that other
    /// programs have removed. Returns false if the rules must be applied, which should not happen without need: when a
    /// chain is deleted, the kernel drops all packets that wait in a queue, also those of other programs.
    fn try_keep(&self, ruleset: &Ruleset) -> bool {
        let (Some(applied), Some(queue)) = (&self.applied, &self.queue) else { return false };
        let ours = Holder::Running(std::process::id());
        applied.is_equivalent(ruleset)
            && rules::holder(ruleset.instance()).is_ok_and(|holder| holder == Some(ours))
            && ruleset.restore(queue).is_ok()
    }

    /// Stops the interception of new connections; existing sessions continue.
    pub fn release(&mut self, services: &Services) {
        self.queue = None;
        if let Some(applied) = &self.applied {
            emit_result(applied.released().apply(self.owner).map(drop), services);
            rules::forget_ended(Marks::new(applied.instance()));
        }
    }

    /// Removes the rules from the kernel.
    pub fn remove(&mut self, services: &Services) {
        if let Some(applied) = self.applied.take() {
            emit_result(rules::remove(applied.instance()).map(drop), services);
        }
    }
}

fn emit_result(result: Result<(), RulesError>, services: &Services) {
    if let Err(error) = result {
        services.events.emit(&Event::Warning { message: format!("cannot change the rules: {error}") });
    }
}
