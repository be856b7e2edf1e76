//! What all threads know of the fleet, and what the thread that talks to etcd is asked to do.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::event::Event;
use ekiden_proto::fleet::{Member, Roster};
use ekiden_proto::key::PublicKey;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::doubts::Doubts;
use super::thread;
use super::view::{Etcd, FleetView};
use crate::config::Fleet;
use crate::shared::Shared;

/// How long etcd has for taking the word that we drain.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the others have for hearing it, before we accept nothing more.
const HEARD: Duration = Duration::from_millis(500);

/// How long it may take until those who are known may come in.
const SERVED: Duration = Duration::from_secs(2);

/// How long etcd has for taking our entry away.
const GONE: Duration = Duration::from_secs(1);

/// What is known of the fleet.
#[derive(Debug)]
pub struct Directory {
    pub(super) inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread shares with the others.
pub struct Inner {
    /// The settings in force; none where there is no fleet.
    pub settings: watch::Sender<Option<Arc<Fleet>>>,
    /// What we are to be there.
    pub wish: watch::Sender<Wish>,
    /// What we are there, as far as etcd has said.
    pub done: watch::Sender<Wish>,
    /// Whether everything that stands there has been read.
    pub read: watch::Sender<bool>,
    /// How etcd does.
    pub etcd: Mutex<Etcd>,
    /// Wakes whoever serves the members.
    pub changed: Notify,
    /// How often who is there has changed, and up to which change that is served.
    pub changes: watch::Sender<(u64, u64)>,
    roster: Mutex<Option<Roster>>,
    began: Instant,
    /// Who is not believed.
    pub doubts: Doubts,
    /// When we have last learnt from an entry what its relay has measured, by the clock of the book.
    pub learnt: Mutex<BTreeMap<PublicKey, Duration>>,
    /// Where measurements are, and events go.
    pub shared: Weak<Shared>,
}

/// What we are to be in the fleet, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// Nobody yet, who hears of the others: another process of this relay is still one of them.
    Hear,
    /// One of those that take sessions.
    Serve,
    /// One that takes no more.
    Drain,
    /// None of them.
    Leave,
    /// Nothing more is wanted of the thread.
    End,
}

impl Directory {
    /// Nobody is known.
    #[must_use]
    pub fn new(shared: Weak<Shared>) -> Self {
        let inner = Inner {
            settings: watch::Sender::new(None),
            wish: watch::Sender::new(Wish::Serve),
            done: watch::Sender::new(Wish::Serve),
            read: watch::Sender::new(false),
            etcd: Mutex::default(),
            changed: Notify::new(),
            changes: watch::Sender::new((0, 0)),
            roster: Mutex::default(),
            began: Instant::now(),
            doubts: Doubts::default(),
            learnt: Mutex::default(),
            shared,
        };
        Self { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// Belongs to this fleet from now on, or to none. What was kept in its file is known when this returns.
    ///
    /// # Errors
    /// The kernel's, when no thread can be started.
    pub fn serve(&self, fleet: Option<&Arc<Fleet>>) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fleet) = fleet else {
            self.inner.settings.send_replace(None);
            *self.inner.roster() = None;
            return Ok(());
        };
        self.inner.begin(fleet);
        self.inner.settings.send_replace(Some(Arc::clone(fleet)));
        if thread.is_none() {
            *thread = Some(thread::start(Arc::clone(&self.inner))?);
        }
        Ok(())
    }

    /// Only hears of the others until [`Directory::join`]: another process of this relay is still one of them. To be said
    /// before [`Directory::serve`].
    pub fn wait(&self) {
        self.inner.wish.send_replace(Wish::Hear);
    }

    /// Waits until everything that stands in etcd is known, within reason; not where there is no fleet.
    pub async fn is_read(&self) {
        if self.inner.settings.borrow().is_some() {
            // Without etcd it is what the file knows.
            let _ = timeout(SERVED, self.inner.read.subscribe().wait_for(|read| *read)).await;
        }
    }

    /// Says who we are, from now on: the other process has stopped.
    pub fn join(&self) {
        self.inner.wish.send_replace(Wish::Serve);
    }

    /// Completes when relays have come or gone since the last time.
    pub async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    /// Everybody who is known, with the last word of theirs; and the number of the change that this is by.
    #[must_use]
    pub fn members(&self) -> (Vec<Member>, u64) {
        // The number first: what changes now comes again.
        let (number, _) = *self.inner.changes.borrow();
        let roster = self.inner.roster();
        (roster.iter().flat_map(|roster| roster.members().map(|(_, member)| member.clone())).collect(), number)
    }

    /// Notes that the members of this change are hops and peers now.
    pub fn served(&self, number: u64) {
        self.inner.changes.send_modify(|(_, served)| *served = number.max(*served));
    }

    /// Tells the fleet that this relay takes no more sessions, and waits until the others have had time to hear it.
    pub async fn drain(&self) {
        if self.asks(Wish::Drain, FAREWELL).await {
            sleep(HEARD).await;
        }
    }

    /// Takes our entry away, and ends the thread, which keeps what is known in the file.
    pub async fn leave(&self) {
        self.asks(Wish::Leave, GONE).await;
        self.end().await;
    }

    /// Ends the thread, which keeps what is known in the file. Our entry stays, for another process of this relay.
    pub async fn end(&self) {
        let runs = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.inner.wish.send_replace(Wish::End);
        let mut done = self.inner.done.subscribe();
        if runs {
            // A disk that hangs holds up nobody either.
            let _ = timeout(GONE, done.wait_for(|done| *done == Wish::End)).await;
        }
    }

    /// Whether etcd has taken it within `patience`; not when we are nobody there.
    async fn asks(&self, wish: Wish, patience: Duration) -> bool {
        if !self.inner.is_published() {
            return false;
        }
        self.inner.wish.send_replace(wish);
        let mut done = self.inner.done.subscribe();
        timeout(patience, done.wait_for(|done| *done >= wish)).await.is_ok()
    }

    /// What `ekiden status` and `ekiden fleet list` show; none where there is no fleet.
    #[must_use]
    pub fn view(&self) -> Option<FleetView> {
        let settings = self.inner.settings.borrow().clone()?;
        let roster = self.inner.roster();
        let now = self.inner.now();
        Some(FleetView::of(&settings, roster.as_ref()?, &self.inner.etcd(), now))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.inner.wish.send_replace(Wish::End);
    }
}

impl Inner {
    /// What is known; none where there is no fleet. Held for no longer than a look.
    pub fn roster(&self) -> MutexGuard<'_, Option<Roster>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How etcd does.
    pub fn etcd(&self) -> MutexGuard<'_, Etcd> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that who is there has changed.
    pub fn has_changed(&self) {
        self.etcd().version += 1;
        self.changes.send_modify(|(number, _)| *number += 1);
        self.changed.notify_one();
    }

    /// Waits until who is known may come in, within reason. Whoever hears of us after that is not turned away.
    pub async fn is_served(&self) {
        let mut changes = self.changes.subscribe();
        let (wanted, _) = *changes.borrow();
        // One that cannot be served is told elsewhere.
        let _ = timeout(SERVED, changes.wait_for(|(_, served)| *served >= wanted)).await;
    }

    /// The time, as the roster counts it.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Tells the operator.
    pub fn tell(&self, event: &Event) {
        if let Some(shared) = self.shared.upgrade() {
            shared.emit(event);
        }
    }

    /// Tells the operator, in words.
    pub fn warn(&self, message: String) {
        self.tell(&Event::Warning { message });
    }

    /// Whether what stands at the place of `relay` is the newest that is known of it.
    pub fn is_newest(&self, relay: &PublicKey, value: &[u8]) -> bool {
        let roster = self.roster();
        let member = roster.as_ref().and_then(|roster| roster.member(relay));
        member.is_some_and(|member| member.text.as_bytes() == value)
    }

    /// Whether others know of us.
    fn is_published(&self) -> bool {
        let certified = self.settings.borrow().as_ref().is_some_and(|fleet| fleet.certificate.is_some());
        certified && self.etcd().up
    }

    /// Begins with what the file knows, unless this fleet is known already.
    fn begin(&self, fleet: &Fleet) {
        let mut roster = self.roster();
        let same = self.settings.borrow().as_ref().is_some_and(|before| before.key == fleet.key);
        if same && roster.is_some() {
            return;
        }
        let mut read = Roster::new(fleet.key, fleet.keep);
        if let Some(path) = &fleet.state
            && let Err(why) = super::state::read(path, &mut read, self.now(), unix())
        {
            self.warn(format!("fleet: the last known state is not in {}: {why}", path.display()));
        }
        *roster = Some(read);
    }
}

/// The time by the clock on the wall.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970.
pub fn unix() -> u64 {
    since_1970().as_secs()
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("roster", &self.roster).finish_non_exhaustive()
    }
}
