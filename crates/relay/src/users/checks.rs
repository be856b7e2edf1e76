//! The queue of password checks.
//!
//! A check takes a processor for 50 to 100 ms, so few run at once, and wrong passwords can arrive faster than they are
//! checked. The order of the checks is then:
//!
//! 1. A password that was right before, however long ago: only a client that knows the password gets here.
//! 2. The client address with the fewest attempts that have not turned out right. From its second attempt on, an address
//!    that guesses waits behind every address that comes for the first time.
//! 3. User names in turn (start-time fair queueing): many attempts for one name delay those for another one by one check.
//! 4. Arrival.
//!
//! No rule depends on whether a user exists. Each address has at most one check under way, and clients with the same user
//! and password share one check.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::path::bounded::Bounded;
use tokio::sync::oneshot;

/// Most checks that wait. Beyond that, the last one in the order is given up.
const MOST_WAITING: usize = 1024;

/// Most addresses whose attempts are remembered.
const MOST_SOURCES: usize = 1 << 16;

/// An address without an attempt for this long counts as new.
const FORGOTTEN: Duration = Duration::from_secs(10 * 60);

/// A digest that stands for user and password, and reveals neither.
pub(super) type Digest = [u8; 32];

/// A password to be checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Where it comes from, see [`ekiden_proto::addr::source`].
    pub source: IpAddr,
    /// User and password.
    pub digest: Digest,
    /// The user's name, as a digest.
    pub name: Digest,
    /// Whether this password was right before.
    pub was_right: bool,
}

/// The checks of all listeners.
pub(super) struct Checks {
    most_running: usize,
    state: Mutex<State>,
}

struct State {
    waiting: Vec<Waiting>,
    running: Vec<Request>,
    attempts: Bounded<IpAddr, Attempts>,
    /// Number of the next request.
    next: u64,
    /// The tag of the check that began last.
    virtual_time: u64,
}

struct Waiting {
    number: u64,
    /// Its turn among the names.
    tag: u64,
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// The message to a waiting request.
#[derive(Debug)]
enum Answer {
    Begin,
    /// The same user and password were checked meanwhile.
    Known(bool),
}

#[derive(Clone, Copy)]
struct Attempts {
    count: u32,
    last: Instant,
}

/// A request that waits. Dropping it takes it out of the queue.
pub(super) struct Waiter {
    checks: Arc<Checks>,
    number: u64,
    request: Request,
    answer: oneshot::Receiver<Answer>,
}

/// The end of a wait.
pub(super) enum Turn {
    /// The check may run now.
    Check(Running),
    /// The result is known.
    Known(bool),
}

/// The right to run one check; given back when it is dropped.
pub(super) struct Running {
    checks: Arc<Checks>,
    request: Request,
    result: Option<bool>,
}

impl Checks {
    /// At most `most_running` checks at once.
    pub fn new(most_running: usize) -> Self {
        let state = State {
            waiting: Vec::new(),
            running: Vec::new(),
            attempts: Bounded::new(MOST_SOURCES),
            next: 0,
            virtual_time: 0,
        };
        Self { most_running, state: Mutex::new(state) }
    }

    /// Puts a request into the queue.
    pub fn enter(self: &Arc<Self>, request: Request) -> Waiter {
        let (sender, answer) = oneshot::channel();
        let mut state = self.lock();
        let number = state.push(request, sender);
        state.begin_checks(self.most_running);
        state.bound();
        drop(state);
        Waiter { checks: Arc::clone(self), number, request, answer }
    }

    fn end(&self, request: &Request, result: Option<bool>) {
        let mut state = self.lock();
        state.running.retain(|running| running.digest != request.digest);
        if let Some(right) = result {
            state.answer(request, right);
        }
        state.begin_checks(self.most_running);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, request: Request, answer: oneshot::Sender<Answer>) -> u64 {
        let same = |other: &Request| other.source == request.source && other.digest == request.digest;
        // The connections of one page show the same password, and are one attempt.
        if !self.waiting.iter().map(|waiting| &waiting.request).chain(&self.running).any(same) {
            self.count(request.source);
        }
        let of_name = self.waiting.iter().filter(|waiting| waiting.request.name == request.name);
        let tag = of_name.map(|waiting| waiting.tag + 1).max().unwrap_or(0).max(self.virtual_time);
        let number = self.next;
        self.next += 1;
        self.waiting.push(Waiting { number, tag, request, answer });
        number
    }

    fn count(&mut self, source: IpAddr) {
        let now = Instant::now();
        let attempts = self.attempts.entry(source, || Attempts { count: 0, last: now });
        let before = if now.duration_since(attempts.last) < FORGOTTEN { attempts.count } else { 0 };
        *attempts = Attempts { count: before.saturating_add(1), last: now };
    }

    /// Its place in the order; the least comes first.
    fn rank(&self, waiting: &Waiting) -> (bool, u32, u64, u64) {
        let Waiting { number, tag, request, .. } = waiting;
        (!request.was_right, self.attempts.peek(&request.source).map_or(0, |seen| seen.count), *tag, *number)
    }

    fn begin_checks(&mut self, most_running: usize) {
        while self.running.len() < most_running {
            let may_begin = |waiting: &&Waiting| {
                let clashes =
                    |other: &Request| other.source == waiting.request.source || other.digest == waiting.request.digest;
                !self.running.iter().any(clashes)
            };
            let first = self.waiting.iter().filter(may_begin).min_by_key(|waiting| self.rank(waiting));
            let Some(number) = first.map(|first| first.number) else { return };
            let Some(first) = self.take(number) else { return };
            // A request that is being dropped does not begin any more.
            if first.answer.send(Answer::Begin).is_ok() {
                self.virtual_time = first.tag;
                self.running.push(first.request);
            }
        }
    }

    /// Takes a request out.
    fn take(&mut self, number: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.number == number)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Gives up the last one in the order when there are too many.
    fn bound(&mut self) {
        if self.waiting.len() > MOST_WAITING {
            let last = self.waiting.iter().max_by_key(|waiting| self.rank(waiting));
            let number = last.map(|last| last.number);
            drop(number.and_then(|number| self.take(number)));
        }
    }

    /// Tells all requests with the same user and password the result.
    fn answer(&mut self, checked: &Request, right: bool) {
        if right {
            self.attempts.remove(&checked.source);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (same, others) = waiting.into_iter().partition(|waiting| waiting.request.digest == checked.digest);
        self.waiting = others;
        for Waiting { request, answer, .. } in same {
            if right {
                self.attempts.remove(&request.source);
            }
            // A client that is gone need not know.
            let _ = answer.send(Answer::Known(right));
        }
    }
}

impl Waiter {
    /// Waits. `None` when too many others wait.
    pub async fn turn(mut self) -> Option<Turn> {
        match (&mut self.answer).await.ok()? {
            Answer::Known(right) => Some(Turn::Known(right)),
            Answer::Begin => {
                Some(Turn::Check(Running { checks: Arc::clone(&self.checks), request: self.request, result: None }))
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.answer.close();
        let began = matches!(self.answer.try_recv(), Ok(Answer::Begin));
        if began {
            // The request got the right to begin and did not use it.
            self.checks.end(&self.request, None);
        } else {
            self.checks.lock().take(self.number);
        }
    }
}

impl Running {
    /// Returns the right, and gives the result to all requests with the same user and password.
    pub fn finish(mut self, right: bool) {
        self.result = Some(right);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.checks.end(&self.request, self.result);
    }
}

#[cfg(test)]
mod tests;
