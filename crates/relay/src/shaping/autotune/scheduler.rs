//! The scheduler of one thread's tuned sections.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::profile::Profile;
use ekiden_sys::route::Routes;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::Tuner;

/// How often sections are looked at.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// Most sections that are looked at in a round; more than these have their turns in later ones. A look costs some 2 us.
const MAX_TUNED_PER_ROUND: usize = 1000;

/// The tuned sections with recent traffic.
#[derive(Debug)]
pub struct TuneScheduler {
    /// The next section to tune comes first.
    queue: RefCell<VecDeque<Rc<Tuner>>>,
    routes: OnceCell<Option<Routes>>,
    started_at: Instant,
    wake: Notify,
}

impl TuneScheduler {
    /// A scheduler without sections.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            queue: RefCell::default(),
            routes: OnceCell::new(),
            started_at: Instant::now(),
            wake: Notify::new(),
        })
    }

    /// A tuner for a section, if its profile asks for one. The session ends after `idle` without a byte.
    pub fn tuner(self: &Rc<Self>, stream: &Rc<TcpStream>, profile: &Profile, idle: Duration) -> Option<Rc<Tuner>> {
        profile.is_tuned().then(|| Tuner::new(stream, self, profile, idle))
    }

    /// Looks at a section in the next round.
    pub fn enqueue(&self, tuner: Rc<Tuner>) {
        let mut moving = self.queue.borrow_mut();
        if moving.is_empty() {
            self.wake.notify_one();
        }
        moving.push_back(tuner);
    }

    /// Makes rounds for as long as bytes move.
    pub async fn run(self: Rc<Self>) {
        let mut rounds = interval(ROUND_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.wake.notified().await;
            while !self.queue.borrow().is_empty() {
                rounds.tick().await;
                self.run_round(self.started_at.elapsed());
            }
        }
    }

    /// Tunes the sections that are due. Each is scheduled again when it moves bytes.
    pub fn run_round(&self, now: Duration) {
        let turns = self.queue.borrow().len().min(MAX_TUNED_PER_ROUND);
        for _ in 0..turns {
            let Some(tuner) = self.queue.borrow_mut().pop_front() else { break };
            tuner.tune(now);
        }
    }

    /// A way to ask for routes.
    pub fn routes(&self) -> Option<&Routes> {
        self.routes.get_or_init(|| Routes::open().ok()).as_ref()
    }
}
