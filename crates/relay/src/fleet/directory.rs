//! The directory of the fleet, which all threads share, and the requests to the etcd thread.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::event::Event;
use ekiden_proto::fleet::{FleetMember, MemberList};
use ekiden_proto::key::PublicKey;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::rejections::Rejections;
use super::thread;
use super::view::{EtcdStatus, fleet_view};
use crate::config::FleetConfig;
use crate::events::Events;
use crate::path::estimates::EstimateStore;
use crate::status::fleet::FleetView;

/// Timeout for writing to etcd that this relay is draining.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for other relays to learn of a drain before this relay stops accepting.
const DRAIN_PROPAGATION: Duration = Duration::from_millis(500);

/// Timeout for applying a change of the fleet.
pub const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for removing the entry of this relay from etcd, and for the end of the thread.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The directory of the fleet.
#[derive(Debug)]
pub struct FleetDirectory {
    pub(super) shared: Arc<FleetShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State that the etcd thread shares with the other threads.
pub struct FleetShared {
    /// The settings of the thread; `None` without a fleet. A reload that is rejected restores them.
    pub settings: watch::Sender<Option<Arc<FleetConfig>>>,
    /// The settings of the last configuration that was applied.
    pub in_force: watch::Sender<Option<Arc<FleetConfig>>>,
    /// The requested membership of this relay.
    pub target: watch::Sender<Membership>,
    /// The membership that etcd has confirmed.
    pub confirmed: watch::Sender<Membership>,
    /// Whether all entries in etcd have been read.
    pub synced: watch::Sender<bool>,
    /// The state of etcd.
    pub etcd: Mutex<EtcdStatus>,
    /// Wakes the task that applies changes of the fleet.
    pub changed: Notify,
    /// Number of changes of the roster, and the number of the last change that was applied.
    pub change_numbers: watch::Sender<(u64, u64)>,
    roster: Mutex<Option<MemberList>>,
    started_at: Instant,
    /// Entries that were rejected.
    pub rejections: Rejections,
    /// Time of the last measurements taken from each relay's entry, by the clock of the estimates.
    pub learned_at: Mutex<BTreeMap<PublicKey, Duration>>,
    /// The measurements of this relay and of others.
    pub estimates: Arc<EstimateStore>,
    /// Receives the events of the fleet.
    pub events: Arc<Events>,
}

/// The membership of this relay; a relay passes through the states in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// Not listed, and only reading: another process of this relay is still listed.
    Observe,
    /// Listed and accepting sessions.
    Serve,
    /// Listed, but accepting no new sessions.
    Drain,
    /// The relay is no longer listed.
    Leave,
    /// The etcd thread ends.
    Stop,
}

impl FleetDirectory {
    /// Returns a directory without members.
    #[must_use]
    pub fn new(events: Arc<Events>, estimates: Arc<EstimateStore>) -> Self {
        let inner = FleetShared {
            settings: watch::Sender::new(None),
            in_force: watch::Sender::new(None),
            target: watch::Sender::new(Membership::Serve),
            confirmed: watch::Sender::new(Membership::Serve),
            synced: watch::Sender::new(false),
            etcd: Mutex::default(),
            changed: Notify::new(),
            change_numbers: watch::Sender::new((0, 0)),
            roster: Mutex::default(),
            started_at: Instant::now(),
            rejections: Rejections::default(),
            learned_at: Mutex::default(),
            estimates,
            events,
        };
        Self { shared: Arc::new(inner), thread: Mutex::default() }
    }

    /// Applies the settings of `fleet`; `None` leaves the fleet. The thread removes the entry of a relay that leaves,
    /// after [`FleetDirectory::mark_applied`]. On return the members in the state file are known.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn apply_config(&self, fleet: Option<&Arc<FleetConfig>>) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fleet) = fleet else {
            self.shared.settings.send_replace(None);
            *self.shared.roster() = None;
            return Ok(());
        };
        self.shared.load_state(fleet);
        self.shared.settings.send_replace(Some(Arc::clone(fleet)));
        if thread.is_none() {
            *thread = Some(thread::start(Arc::clone(&self.shared))?);
        }
        Ok(())
    }

    /// Restricts the thread to reading until [`FleetDirectory::join`], because another process of this relay is still
    /// listed. Call this before [`FleetDirectory::apply_config`].
    pub fn observe(&self) {
        self.shared.target.send_replace(Membership::Observe);
    }

    /// Waits, with a timeout, until all entries in etcd are known. Returns at once without a fleet.
    pub async fn wait_synced(&self) {
        if self.shared.settings.borrow().is_some() {
            // Without etcd the members come from the file.
            let _ = timeout(APPLY_TIMEOUT, self.shared.synced.subscribe().wait_for(|read| *read)).await;
        }
    }

    /// Lists this relay from now on: the other process has stopped.
    pub fn join(&self) {
        self.shared.target.send_replace(Membership::Serve);
    }

    /// Waits until the members have changed since the last call.
    pub async fn wait_changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Returns all known members with their last entries, and the number of the last change that they include.
    #[must_use]
    pub fn members(&self) -> (Vec<FleetMember>, u64) {
        // Read the number first: a change from now on will be applied again.
        let (number, _) = *self.shared.change_numbers.borrow();
        let roster = self.shared.roster();
        (roster.iter().flat_map(|roster| roster.members().map(|(_, member)| member.clone())).collect(), number)
    }

    /// Records that the configuration in force has the settings of the last [`FleetDirectory::apply_config`], and
    /// contains the members of change `number`.
    pub fn mark_applied(&self, number: u64) {
        let settings = self.shared.settings.borrow().clone();
        self.shared.in_force.send_replace(settings);
        self.shared.change_numbers.send_modify(|(_, served)| *served = number.max(*served));
    }

    /// Marks this relay as draining, and waits until other relays have had time to learn of it.
    pub async fn drain(&self) {
        if self.request(Membership::Drain, DRAIN_TIMEOUT).await {
            sleep(DRAIN_PROPAGATION).await;
        }
    }

    /// Removes the entry of this relay and ends the thread, which saves the members.
    pub async fn leave(&self) {
        self.request(Membership::Leave, LEAVE_TIMEOUT).await;
        self.stop().await;
    }

    /// Ends the thread, which saves the members. The entry stays for another process of this relay.
    pub async fn stop(&self) {
        let is_running = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.shared.target.send_replace(Membership::Stop);
        let mut confirmed = self.shared.confirmed.subscribe();
        if is_running {
            // The timeout keeps a hanging disk from delaying other tasks.
            let _ = timeout(LEAVE_TIMEOUT, confirmed.wait_for(|confirmed| *confirmed == Membership::Stop)).await;
        }
    }

    /// Returns whether etcd has confirmed `request` within `time_limit`; false without an entry.
    async fn request(&self, request: Membership, time_limit: Duration) -> bool {
        // Also while etcd is down: after a reconnection, the entry must not say that this relay serves.
        self.shared.target.send_replace(request);
        if !self.shared.is_published() {
            return false;
        }
        let mut confirmed = self.shared.confirmed.subscribe();
        timeout(time_limit, confirmed.wait_for(|confirmed| *confirmed >= request)).await.is_ok()
    }

    /// Returns the view for `ekiden status` and `ekiden fleet list`; `None` without a fleet.
    #[must_use]
    pub fn view(&self) -> Option<FleetView> {
        let settings = self.shared.settings.borrow().clone()?;
        let roster = self.shared.roster();
        let now = self.shared.now();
        Some(fleet_view(&settings, roster.as_ref()?, &self.shared.etcd(), now))
    }
}

impl Drop for FleetDirectory {
    fn drop(&mut self) {
        self.shared.target.send_replace(Membership::Stop);
    }
}

impl FleetShared {
    /// Locks and returns the members; `None` without a fleet. Hold the lock only briefly.
    pub fn roster(&self) -> MutexGuard<'_, Option<MemberList>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks and returns the state of etcd.
    pub fn etcd(&self) -> MutexGuard<'_, EtcdStatus> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a change of the members.
    pub fn notify_changed(&self) {
        self.etcd().version += 1;
        self.change_numbers.send_modify(|(number, _)| *number += 1);
        self.changed.notify_one();
    }

    /// Waits, with a timeout, until the members are admitted as peers, so that this relay rejects no member that has
    /// read its entry.
    pub async fn wait_applied(&self) {
        let mut changes = self.change_numbers.subscribe();
        let (number, _) = *changes.borrow();
        // A change that cannot be applied is reported elsewhere.
        let _ = timeout(APPLY_TIMEOUT, changes.wait_for(|(_, served)| *served >= number)).await;
    }

    /// Returns the time on the roster's clock, which starts with this directory.
    pub fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Emits an event of the fleet.
    pub fn emit(&self, event: &Event) {
        self.events.emit(event);
    }

    /// Emits a warning for the operator.
    pub fn warn(&self, message: String) {
        self.emit(&Event::Warning { message });
    }

    /// Returns whether `value` is the newest known entry of `relay`.
    pub fn is_newest(&self, relay: &PublicKey, value: &[u8]) -> bool {
        let roster = self.roster();
        let member = roster.as_ref().and_then(|roster| roster.member(relay));
        member.is_some_and(|member| member.signed_text.as_bytes() == value)
    }

    /// Returns whether this relay has a certificate and etcd is reachable, so that other relays can read its entry.
    fn is_published(&self) -> bool {
        let certified = self.settings.borrow().as_ref().is_some_and(|fleet| fleet.certificate.is_some());
        certified && self.etcd().up
    }

    /// Loads the state file, unless the members of this fleet are already loaded.
    fn load_state(&self, fleet: &FleetConfig) {
        let mut roster = self.roster();
        let is_same_fleet = self.settings.borrow().as_ref().is_some_and(|previous| previous.key == fleet.key);
        if let Some(members) = roster.as_mut().filter(|_| is_same_fleet) {
            members.set_missing_timeout(fleet.member_timeout);
            return;
        }
        let mut members = MemberList::new(fleet.key, fleet.member_timeout);
        if let Some(path) = &fleet.state_file
            && let Err(error) = super::state::read(path, &mut members, self.now(), unix_seconds())
        {
            self.warn(format!("fleet: cannot read the last known state from {}: {error}", path.display()));
        }
        *roster = Some(members);
    }
}

/// Returns the Unix time by the system clock.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the Unix time in seconds.
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

impl fmt::Debug for FleetShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetShared").field("roster", &self.roster).finish_non_exhaustive()
    }
}
