//! The directory of the fleet, which all threads share, and the requests to the thread that talks to etcd.

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

/// How long etcd has for taking the word that we drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for other relays to learn of a drain before this relay stops accepting.
const DRAIN_PROPAGATION: Duration = Duration::from_millis(500);

/// Timeout for applying a change of the fleet.
const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long etcd has for taking our entry away.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The directory of the fleet.
#[derive(Debug)]
pub struct FleetDirectory {
    pub(super) shared: Arc<FleetShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State that the thread shares with the others.
pub struct FleetShared {
    /// The settings in force; none where there is no fleet.
    pub settings: watch::Sender<Option<Arc<FleetConfig>>>,
    /// The requested membership of this relay.
    pub target: watch::Sender<Membership>,
    /// The membership that etcd has confirmed.
    pub confirmed: watch::Sender<Membership>,
    /// Whether everything that stands there has been read.
    pub synced: watch::Sender<bool>,
    /// The state of etcd.
    pub etcd: Mutex<EtcdStatus>,
    /// Wakes the task that applies changes of the fleet.
    pub changed: Notify,
    /// Number of changes of the roster, and the last change that was applied.
    pub change_numbers: watch::Sender<(u64, u64)>,
    roster: Mutex<Option<MemberList>>,
    started_at: Instant,
    /// Entries that were rejected.
    pub rejections: Rejections,
    /// Time of the last measurements taken from each relay's entry, by the clock of the estimates.
    pub learned_at: Mutex<BTreeMap<PublicKey, Duration>>,
    /// The measurements of this relay and of others.
    pub estimates: Arc<EstimateStore>,
    /// The readers of events.
    pub events: Arc<Events>,
}

/// The membership of this relay, in order of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// Not listed, but reading: another process of this relay is still listed.
    Observe,
    /// Listed and accepting sessions.
    Serve,
    /// Listed, but accepting no new sessions.
    Drain,
    /// The relay is no longer listed.
    Leave,
    /// Nothing more is wanted of the thread.
    Stop,
}

impl FleetDirectory {
    /// A directory without members.
    #[must_use]
    pub fn new(events: Arc<Events>, estimates: Arc<EstimateStore>) -> Self {
        let inner = FleetShared {
            settings: watch::Sender::new(None),
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

    /// Joins this fleet, or none. The members in its file are known on return.
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

    /// Only reads until [`FleetDirectory::join`], because another process of this relay is still listed. Call before
    /// [`FleetDirectory::apply_config`].
    pub fn observe(&self) {
        self.shared.target.send_replace(Membership::Observe);
    }

    /// Waits until everything that stands in etcd is known, within reason; not where there is no fleet.
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

    /// Completes when relays have come or gone since the last time.
    pub async fn wait_changed(&self) {
        self.shared.changed.notified().await;
    }

    /// All known members with their last entries, and the number of the change that they belong to.
    #[must_use]
    pub fn members(&self) -> (Vec<FleetMember>, u64) {
        // Read the number first: a change from now on will be applied again.
        let (number, _) = *self.shared.change_numbers.borrow();
        let roster = self.shared.roster();
        (roster.iter().flat_map(|roster| roster.members().map(|(_, member)| member.clone())).collect(), number)
    }

    /// Notes that the members of this change are hops and peers now.
    pub fn mark_applied(&self, number: u64) {
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
            // A disk that hangs delays no other task either.
            let _ = timeout(LEAVE_TIMEOUT, confirmed.wait_for(|confirmed| *confirmed == Membership::Stop)).await;
        }
    }

    /// Whether etcd has confirmed `request` within `time_limit`; false without an entry.
    async fn request(&self, request: Membership, time_limit: Duration) -> bool {
        if !self.shared.is_published() {
            return false;
        }
        self.shared.target.send_replace(request);
        let mut confirmed = self.shared.confirmed.subscribe();
        timeout(time_limit, confirmed.wait_for(|confirmed| *confirmed >= request)).await.is_ok()
    }

    /// The view for `ekiden status` and `ekiden fleet list`; `None` without a fleet.
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
    /// The members; `None` without a fleet. Hold the lock only to read.
    pub fn roster(&self) -> MutexGuard<'_, Option<MemberList>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of etcd.
    pub fn etcd(&self) -> MutexGuard<'_, EtcdStatus> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a change of the members.
    pub fn notify_changed(&self) {
        self.etcd().version += 1;
        self.change_numbers.send_modify(|(number, _)| *number += 1);
        self.changed.notify_one();
    }

    /// Waits, with a timeout, until the members are admitted, so that none is rejected after it learns of this relay.
    pub async fn wait_applied(&self) {
        let mut changes = self.change_numbers.subscribe();
        let (number, _) = *changes.borrow();
        // A change that cannot be applied is reported elsewhere.
        let _ = timeout(APPLY_TIMEOUT, changes.wait_for(|(_, served)| *served >= number)).await;
    }

    /// The clock of the roster.
    pub fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Emits an event of the fleet.
    pub fn emit(&self, event: &Event) {
        self.events.emit(event);
    }

    /// Tells the operator, in words.
    pub fn warn(&self, message: String) {
        self.emit(&Event::Warning { message });
    }

    /// Whether `value` is the newest known entry of `relay`.
    pub fn is_newest(&self, relay: &PublicKey, value: &[u8]) -> bool {
        let roster = self.roster();
        let member = roster.as_ref().and_then(|roster| roster.member(relay));
        member.is_some_and(|member| member.signed_text.as_bytes() == value)
    }

    /// Whether others know of us.
    fn is_published(&self) -> bool {
        let certified = self.settings.borrow().as_ref().is_some_and(|fleet| fleet.certificate.is_some());
        certified && self.etcd().up
    }

    /// Loads the file, unless this fleet is already known.
    fn load_state(&self, fleet: &FleetConfig) {
        let mut roster = self.roster();
        let is_same_fleet = self.settings.borrow().as_ref().is_some_and(|previous| previous.key == fleet.key);
        if is_same_fleet && roster.is_some() {
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

/// The time by the clock on the wall.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Unix time in seconds.
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

impl fmt::Debug for FleetShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("roster", &self.roster).finish_non_exhaustive()
    }
}
