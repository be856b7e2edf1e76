//! The state of one worker thread, which its listeners and sessions share, and the load of the thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_sys::thread::{SchedStats, sched_stats};
use slab::Slab;

use super::handoff::OwnSlot;
use super::listener::ListenerContext;
use super::services::Services;
use super::shutdown::DrainState;
use crate::pump::PipePool;
use crate::session::Session;
use crate::shaping::autotune::TuneScheduler;
use crate::shaping::fair_share::ThreadShaper;

/// The state of one thread. Sessions never leave their thread, so nothing in here needs a lock.
pub struct ThreadContext {
    /// The services that all threads share.
    pub services: Arc<Services>,
    /// The pipes for splice(2).
    pub pipes: PipePool,
    /// Paces the sections that share an interface.
    pub shaper: Rc<ThreadShaper>,
    /// Tunes the sections whose profile asks for it.
    pub tuning: Rc<TuneScheduler>,
    /// The processor time of this thread: running, and waiting to run.
    pub load: Load,
    /// Hands connections to other workers; `None` for a thread without listening sockets.
    pub slot: Option<OwnSlot>,
    /// The drain state of the relay.
    pub drain_state: DrainState,
    /// The running sessions, for status and sampling.
    pub sessions: RefCell<Slab<Weak<Session>>>,
    /// The index in `sessions` at which the next round of sampling starts.
    pub next_sample: Cell<usize>,
    /// The listeners of the configuration in force.
    pub listeners: RefCell<Vec<Rc<ListenerContext>>>,
}

impl ThreadContext {
    /// Creates the state of a thread without listeners and sessions, with at most `max_pipes` pipes.
    #[must_use]
    pub fn new(services: Arc<Services>, max_pipes: usize, slot: Option<OwnSlot>) -> Self {
        Self {
            shaper: ThreadShaper::new(Arc::clone(&services.shared_interfaces)),
            tuning: TuneScheduler::new(),
            load: Load::default(),
            slot,
            services,
            pipes: PipePool::new(max_pipes),
            sessions: RefCell::default(),
            next_sample: Cell::new(0),
            listeners: RefCell::default(),
            drain_state: DrainState::new(),
        }
    }

    /// Registers a session for status and sampling. Returns its index in `sessions`.
    pub fn register(&self, session: &Rc<Session>) -> usize {
        self.sessions.borrow_mut().insert(Rc::downgrade(session))
    }

    /// Removes the session at `index`.
    pub fn unregister(&self, index: usize) {
        self.sessions.borrow_mut().remove(index);
    }

    /// Returns the listener of the configuration in force that has the same address and kind as `context`, if any.
    pub fn current_listener(&self, context: &ListenerContext) -> Option<Rc<ListenerContext>> {
        let listener = &context.listener;
        let listeners = self.listeners.borrow();
        listeners
            .iter()
            .find(|current| current.listener.has_same_address(listener) && current.listener.kind == listener.kind)
            .cloned()
    }
}

/// The load of one thread between the last two samples.
#[derive(Debug, Default)]
pub struct Load {
    previous: Cell<Option<(Instant, SchedStats)>>,
    /// Fractions of the time, 0 to 1: running, and waiting for a processor.
    ran: Cell<f64>,
    queued: Cell<f64>,
}

impl Load {
    /// Takes a sample of the calling thread. Without scheduler statistics of the kernel the load stays 0.
    pub fn sample(&self) {
        let Ok(time) = sched_stats() else { return };
        let now = Instant::now();
        let Some((at, previous)) = self.previous.replace(Some((now, time))) else { return };
        let span = now.saturating_duration_since(at).as_secs_f64().max(1e-9);
        let share = |now: Duration, previous: Duration| (now.saturating_sub(previous).as_secs_f64() / span).min(1.0);
        self.ran.set(share(time.run_time, previous.run_time));
        self.queued.set(share(time.runqueue_wait, previous.runqueue_wait));
    }

    /// Returns the processor time that the thread used or waited for, per second: the number of cores that it would
    /// have used without waiting.
    #[must_use]
    pub fn demand(&self) -> f64 {
        self.ran.get() + self.queued.get()
    }

    /// Returns the time in `span` during which the thread ran, at the rate between the last two samples.
    #[must_use]
    pub fn run_time(&self, span: Duration) -> Duration {
        span.mul_f64(self.ran.get())
    }

    /// Returns the time in `span` during which the thread waited for a processor, at the rate between the last two
    /// samples.
    #[must_use]
    pub fn wait_time(&self, span: Duration) -> Duration {
        span.mul_f64(self.queued.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_thread_reports_its_load() {
        let load = Load::default();
        load.sample();
        assert_eq!(load.run_time(Duration::from_secs(1)), Duration::ZERO, "nothing to compare with");
        let second = Duration::from_secs(1);
        let is_busy = || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            load.sample();
            load.run_time(second) + load.wait_time(second) > Duration::from_millis(800)
        };
        // Time during which the hypervisor runs another virtual machine is counted neither as run time nor as wait
        // time, so one busy sample of 100 is enough.
        assert!((0..100).any(|_| is_busy()), "{load:?}");
    }
}
