//! The state of one worker thread, which its listeners and sessions share.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use slab::Slab;

use super::http::UpstreamPool;
use super::listener::ListenerContext;
use super::load::Load;
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
    /// The processor time that this thread uses and waits for.
    pub load: Load,
    /// Whether the relay drains, and whether it is about to end.
    pub drain_state: DrainState,
    /// Idle connections to servers and `http` hops.
    pub upstream_pool: UpstreamPool,
    /// The running sessions, for status and sampling.
    pub sessions: RefCell<Slab<Weak<Session>>>,
    /// The index in `sessions` at which the next round of sampling starts.
    pub next_sample: Cell<usize>,
    /// The listeners of the configuration in force.
    pub listeners: RefCell<Vec<Rc<ListenerContext>>>,
}

impl ThreadContext {
    /// A thread without listeners and sessions, with at most `max_pipes` pipes.
    #[must_use]
    pub fn new(services: Arc<Services>, max_pipes: usize) -> Self {
        Self {
            upstream_pool: UpstreamPool::new(Arc::clone(&services)),
            shaper: ThreadShaper::new(Arc::clone(&services.shared_interfaces)),
            tuning: TuneScheduler::new(),
            load: Load::default(),
            services,
            pipes: PipePool::new(max_pipes),
            sessions: RefCell::default(),
            next_sample: Cell::new(0),
            listeners: RefCell::default(),
            drain_state: DrainState::new(),
        }
    }

    /// Lists a session for `ekiden status` and returns its index.
    pub fn register(&self, session: &Rc<Session>) -> usize {
        self.sessions.borrow_mut().insert(Rc::downgrade(session))
    }

    /// Removes the session at `index` from the list.
    pub fn unregister(&self, index: usize) {
        self.sessions.borrow_mut().remove(index);
    }

    /// The listener at the address and of the kind of `context` under the configuration in force, if there is one.
    pub fn current_listener(&self, context: &ListenerContext) -> Option<Rc<ListenerContext>> {
        let before = &context.listener;
        let listeners = self.listeners.borrow();
        listeners.iter().find(|now| now.listener.has_same_address(before) && now.listener.kind == before.kind).cloned()
    }
}
