//! The path selector: chooses the paths of sessions on routes with `path = "auto"`, and records their outcomes.
//!
//! `proto::path::select` makes the decisions from the map of `estimates`; sessions query this module and report their
//! outcomes to it. All threads share the selector behind one short lock; the thread of `map_updater` does the slow
//! work.

mod map_updater;
mod prediction;
mod prefixes;
mod state;
mod view;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::path::choice::TransferOutcome;
use tokio::sync::Notify;

use super::estimates::EstimateStore;
use crate::config::{Config, Route};

pub use prediction::{Prediction, SelectionContext, TransferStats};
pub use state::PathSelection;
#[cfg(test)]
pub use view::CandidateView;
pub use view::ChoiceView;

use state::SelectorState;

/// Chooses a path for each session, and updates its state from the outcome.
#[derive(Debug)]
pub struct PathSelector {
    shared: Arc<SelectorShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the thread of the selector shares with other threads.
#[derive(Debug)]
struct SelectorShared {
    estimates: Arc<EstimateStore>,
    /// `None` until a route leaves the choice of the path to the selector.
    state: Mutex<Option<SelectorState>>,
    wake: Notify,
    stopped: AtomicBool,
}

impl PathSelector {
    /// Creates a selector that uses `estimates`.
    #[must_use]
    pub fn new(estimates: Arc<EstimateStore>) -> Self {
        let inner =
            SelectorShared { estimates, state: Mutex::default(), wake: Notify::new(), stopped: AtomicBool::new(false) };
        Self { shared: Arc::new(inner), thread: Mutex::default() }
    }

    /// Applies a configuration: from now on, the selector chooses among the relays of `config`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn apply_config(&self, config: &Arc<Config>) -> io::Result<()> {
        let mut state = self.shared.lock();
        match &mut *state {
            Some(state) => state.apply_config(config),
            None if config.has_auto_route() => {
                let map = self.shared.estimates.map(config, None);
                *state = map.map(|map| SelectorState::new(Arc::clone(config), Arc::new(map)));
            }
            None => {}
        }
        let is_active = state.is_some();
        drop(state);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if is_active && thread.is_none() {
            *thread = Some(map_updater::start(Arc::clone(&self.shared))?);
        }
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Returns the paths to `target` for a route that leaves the choice to the selector; `None` while no relay is
    /// configured.
    pub fn select(&self, route: &Route, target: &Target) -> Option<PathSelection> {
        let now = self.shared.estimates.now();
        let (answer, waits) = self.shared.with_state(|state| {
            let answer = state.select(route, target, now);
            Some((answer, state.names.has_pending()))
        })?;
        if waits {
            self.shared.wake.notify_one();
        }
        Some(answer)
    }

    /// Records an established path.
    pub fn on_connected(&self, prediction: &Prediction) {
        if prediction.context.racing_count > 0 {
            self.update(|state, _| state.on_connected(prediction));
        }
    }

    /// Records a path that has failed for a reason other than its target.
    pub fn on_failure(&self, prediction: &Prediction) {
        self.update(|state, now| state.on_failure(prediction, now));
    }

    /// Records the outcome of a session, or of a part of a session.
    pub fn record_outcome(&self, prediction: &Prediction, outcome: &TransferOutcome) {
        self.update(|state, now| state.record_outcome(prediction, outcome, now));
    }

    /// Returns the predicted duration of a session with the number of bytes of `outcome`; `None` without a prediction.
    pub fn predict(&self, prediction: &Prediction, outcome: &TransferOutcome) -> Option<Duration> {
        prediction.completion_time?;
        self.update(|state, now| state.predict(prediction, outcome, now)).flatten()
    }

    /// Records the bytes of a whole session.
    pub fn record_transfer(&self, plan: &SelectionContext, transfer: &TransferStats) {
        self.update(|state, now| state.record_transfer(plan, transfer, now));
    }

    /// Records the address of a name.
    pub fn record_address(&self, name: &str, address: IpAddr) {
        self.shared.record_address(name, address);
    }

    /// Ends the thread of the selector.
    pub fn close(&self) {
        self.shared.stop();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // An error means that the thread has panicked, so it has ended.
            let _ = thread.join();
        }
    }

    fn update<T>(&self, act: impl FnOnce(&mut SelectorState, Duration) -> T) -> Option<T> {
        let now = self.shared.estimates.now();
        self.shared.with_state(|state| Some(act(state, now)))
    }
}

impl Drop for PathSelector {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl SelectorShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SelectorState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut SelectorState) -> Option<T>) -> Option<T> {
        self.lock().as_mut().and_then(act)
    }

    fn record_address(&self, name: &str, address: IpAddr) {
        let now = self.estimates.now();
        self.with_state(|state| {
            state.names.insert(name, address, now);
            Some(())
        });
    }

    async fn wait_woken(&self) {
        self.wake.notified().await;
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
