//! The chooser of this relay: which ways a session tries where a route says `path = "auto"`, and what came of it.
//!
//! `proto::path::select` decides, from the map of what `measure` knows; here it is asked by sessions and told by them.
//! All threads share it behind one short lock; what takes long is the business of a thread of its own, the `clerk`.

mod clerk;
mod names;
mod plan;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::path::choice::Outcome;
use tokio::sync::Notify;

use crate::config::{Config, Route};
use crate::measure::Book;

pub use plan::{Carried, Expected, Plan};
pub use state::Answer;
#[cfg(test)]
pub use view::CandidateView;
pub use view::ChoiceView;

use state::State;

/// The chooser.
#[derive(Debug)]
pub struct Choosing {
    inner: Arc<Inner>,
    clerk: Mutex<Option<JoinHandle<()>>>,
}

/// What its thread shares with the others.
#[derive(Debug)]
struct Inner {
    book: Arc<Book>,
    /// None before some route leaves it to us.
    state: Mutex<Option<State>>,
    wake: Notify,
    ended: AtomicBool,
}

impl Choosing {
    /// One that knows what is in `book`.
    #[must_use]
    pub fn new(book: Arc<Book>) -> Self {
        let inner = Inner { book, state: Mutex::default(), wake: Notify::new(), ended: AtomicBool::new(false) };
        Self { inner: Arc::new(inner), clerk: Mutex::default() }
    }

    /// Chooses among the relays of `config` from now on.
    ///
    /// # Errors
    /// The kernel's, when the clerk cannot be started.
    pub fn serve(&self, config: &Arc<Config>) -> io::Result<()> {
        let mut state = self.inner.lock();
        match &mut *state {
            Some(state) => state.serve(config),
            None if config.chooses() => {
                let map = self.inner.book.map(config, None);
                *state = map.map(|map| State::new(Arc::clone(config), Arc::new(map)));
            }
            None => {}
        }
        let begins = state.is_some();
        drop(state);
        let mut clerk = self.clerk.lock().unwrap_or_else(PoisonError::into_inner);
        if begins && clerk.is_none() {
            *clerk = Some(clerk::start(Arc::clone(&self.inner))?);
        }
        self.inner.wake.notify_one();
        Ok(())
    }

    /// The ways to `target` by a route that leaves it to us; none while no relay is known.
    pub fn ways(&self, route: &Route, target: &Target) -> Option<Answer> {
        let now = self.inner.book.now();
        let (answer, waits) = self.inner.with(|state| {
            let answer = state.ways(route, target, now);
            Some((answer, state.names.has_waiting()))
        })?;
        if waits {
            self.inner.wake.notify_one();
        }
        Some(answer)
    }

    /// Notes that a way stands.
    pub fn stood(&self, expected: &Expected) {
        if expected.plan.racers > 0 {
            self.tell(|state, _| state.stood(expected));
        }
    }

    /// Notes that a way does not stand, and that this is not the target's fault.
    pub fn failed(&self, expected: &Expected) {
        self.tell(|state, now| state.failed(expected, now));
    }

    /// Notes how a session came out, or a part of it.
    pub fn came(&self, expected: &Expected, outcome: &Outcome) {
        self.tell(|state, now| state.came(expected, outcome, now));
    }

    /// What would be predicted for a session that carries as much as this one did; nothing where nothing was.
    pub fn predicted(&self, expected: &Expected, outcome: &Outcome) -> Option<Duration> {
        expected.predicted?;
        self.tell(|state, now| state.predicted(expected, outcome, now)).flatten()
    }

    /// Notes what a session has carried in all.
    pub fn carried(&self, plan: &Plan, carried: &Carried) {
        self.tell(|state, now| state.carried(plan, carried, now));
    }

    /// Notes where a name lies.
    pub fn learn(&self, name: &str, address: IpAddr) {
        self.inner.learn(name, address);
    }

    /// Ends its thread.
    pub fn close(&self) {
        self.inner.end();
        if let Some(clerk) = self.clerk.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // One that panicked has ended as well.
            let _ = clerk.join();
        }
    }

    fn tell<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> Option<T> {
        let now = self.inner.book.now();
        self.inner.with(|state| Some(act(state, now)))
    }
}

impl Drop for Choosing {
    fn drop(&mut self) {
        self.inner.end();
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        self.lock().as_mut().and_then(act)
    }

    fn learn(&self, name: &str, address: IpAddr) {
        let now = self.book.now();
        self.with(|state| {
            state.names.learn(name, address, now);
            Some(())
        });
    }

    async fn woken(&self) {
        self.wake.notified().await;
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
