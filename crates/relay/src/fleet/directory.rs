//! What all threads know of the fleet, and what the thread that talks to etcd is asked to do.

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

use super::doubts::Rejections;
use super::thread;
use super::view::{EtcdStatus, fleet_view};
use crate::config::FleetConfig;
use crate::events::Events;
use crate::path::estimates::EstimateStore;
use crate::status::fleet::FleetView;

/// How long etcd has for taking the word that we drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the others have for hearing it, before we accept nothing more.
const DRAIN_PROPAGATION: Duration = Duration::from_millis(500);

/// How long it may take until those who are known may come in.
const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long etcd has for taking our entry away.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// What is known of the fleet.
#[derive(Debug)]
pub struct FleetDirectory {
    pub(super) shared: Arc<FleetShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread shares with the others.
pub struct FleetShared {
    /// The settings in force; none where there is no fleet.
    pub settings: watch::Sender<Option<Arc<FleetConfig>>>,
    /// What we are to be there.
    pub target: watch::Sender<Membership>,
    /// What we are there, as far as etcd has said.
    pub confirmed: watch::Sender<Membership>,
    /// Whether everything that stands there has been read.
    pub synced: watch::Sender<bool>,
    /// How etcd does.
    pub etcd: Mutex<EtcdStatus>,
    /// Wakes whoever serves the members.
    pub changed: Notify,
    /// How often who is there has changed, and up to which change that is served.
    pub change_numbers: watch::Sender<(u64, u64)>,
    roster: Mutex<Option<MemberList>>,
    started_at: Instant,
    /// Who is not believed.
    pub rejections: Rejections,
    /// When we have last learnt from an entry what its relay has measured, by the clock of the book.
    pub learned_at: Mutex<BTreeMap<PublicKey, Duration>>,
    /// The measurements of this relay and of others.
    pub estimates: Arc<EstimateStore>,
    /// The readers of events.
    pub events: Arc<Events>,
}

/// What we are to be in the fleet, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// Nobody yet, who hears of the others: another process of this relay is still one of them.
    Observe,
    /// One of those that take sessions.
    Serve,
    /// One that takes no more.
    Drain,
    /// None of them.
    Leave,
    /// Nothing more is wanted of the thread.
    Stop,
}

impl FleetDirectory {
    /// Nobody is known.
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

    /// Belongs to this fleet from now on, or to none. What was kept in its file is known when this returns.
    ///
    /// # Errors
    /// The kernel's, when no thread can be started.
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

    /// Only hears of the others until [`FleetDirectory::join`]: another process of this relay is still one of them. To be said
    /// before [`FleetDirectory::apply_config`].
    pub fn observe(&self) {
        self.shared.target.send_replace(Membership::Observe);
    }

    /// Waits until everything that stands in etcd is known, within reason; not where there is no fleet.
    pub async fn wait_synced(&self) {
        if self.shared.settings.borrow().is_some() {
            // Without etcd it is what the file knows.
            let _ = timeout(APPLY_TIMEOUT, self.shared.synced.subscribe().wait_for(|read| *read)).await;
        }
    }

    /// Says who we are, from now on: the other process has stopped.
    pub fn join(&self) {
        self.shared.target.send_replace(Membership::Serve);
    }

    /// Completes when relays have come or gone since the last time.
    pub async fn wait_changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Everybody who is known, with the last word of theirs; and the number of the change that this is by.
    #[must_use]
    pub fn members(&self) -> (Vec<FleetMember>, u64) {
        // The number first: what changes now comes again.
        let (number, _) = *self.shared.change_numbers.borrow();
        let roster = self.shared.roster();
        (roster.iter().flat_map(|roster| roster.members().map(|(_, member)| member.clone())).collect(), number)
    }

    /// Notes that the members of this change are hops and peers now.
    pub fn mark_applied(&self, number: u64) {
        self.shared.change_numbers.send_modify(|(_, served)| *served = number.max(*served));
    }

    /// Tells the fleet that this relay takes no more sessions, and waits until the others have had time to hear it.
    pub async fn drain(&self) {
        if self.request(Membership::Drain, DRAIN_TIMEOUT).await {
            sleep(DRAIN_PROPAGATION).await;
        }
    }

    /// Takes our entry away, and ends the thread, which keeps what is known in the file.
    pub async fn leave(&self) {
        self.request(Membership::Leave, LEAVE_TIMEOUT).await;
        self.stop().await;
    }

    /// Ends the thread, which keeps what is known in the file. Our entry stays, for another process of this relay.
    pub async fn stop(&self) {
        let runs = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.shared.target.send_replace(Membership::Stop);
        let mut done = self.shared.confirmed.subscribe();
        if runs {
            // A disk that hangs holds up nobody either.
            let _ = timeout(LEAVE_TIMEOUT, done.wait_for(|done| *done == Membership::Stop)).await;
        }
    }

    /// Whether etcd has taken it within `patience`; not when we are nobody there.
    async fn request(&self, request: Membership, patience: Duration) -> bool {
        if !self.shared.is_published() {
            return false;
        }
        self.shared.target.send_replace(request);
        let mut done = self.shared.confirmed.subscribe();
        timeout(patience, done.wait_for(|done| *done >= request)).await.is_ok()
    }

    /// What `ekiden status` and `ekiden fleet list` show; none where there is no fleet.
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
    /// What is known; none where there is no fleet. Held for no longer than a look.
    pub fn roster(&self) -> MutexGuard<'_, Option<MemberList>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How etcd does.
    pub fn etcd(&self) -> MutexGuard<'_, EtcdStatus> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that who is there has changed.
    pub fn notify_changed(&self) {
        self.etcd().version += 1;
        self.change_numbers.send_modify(|(number, _)| *number += 1);
        self.changed.notify_one();
    }

    /// Waits until who is known may come in, within reason. Whoever hears of us after that is not turned away.
    pub async fn wait_applied(&self) {
        let mut changes = self.change_numbers.subscribe();
        let (wanted, _) = *changes.borrow();
        // One that cannot be served is told elsewhere.
        let _ = timeout(APPLY_TIMEOUT, changes.wait_for(|(_, served)| *served >= wanted)).await;
    }

    /// The time, as the roster counts it.
    pub fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Tells the operator.
    pub fn emit(&self, event: &Event) {
        self.events.emit(event);
    }

    /// Tells the operator, in words.
    pub fn warn(&self, message: String) {
        self.emit(&Event::Warning { message });
    }

    /// Whether what stands at the place of `relay` is the newest that is known of it.
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

    /// Begins with what the file knows, unless this fleet is known already.
    fn load_state(&self, fleet: &FleetConfig) {
        let mut roster = self.roster();
        let same = self.settings.borrow().as_ref().is_some_and(|before| before.key == fleet.key);
        if same && roster.is_some() {
            return;
        }
        let mut read = MemberList::new(fleet.key, fleet.member_timeout);
        if let Some(path) = &fleet.state_file
            && let Err(why) = super::state::read(path, &mut read, self.now(), unix_seconds())
        {
            self.warn(format!("fleet: the last known state is not in {}: {why}", path.display()));
        }
        *roster = Some(read);
    }
}

/// The time by the clock on the wall.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

impl fmt::Debug for FleetShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("roster", &self.roster).finish_non_exhaustive()
    }
}
