//! The queue of password checks.
//!
//! A check occupies a processor for 50 to 100 ms, so the number of concurrent checks is limited, and wrong passwords
//! can arrive faster than they are checked. Waiting checks run in this order:
//!
//! 1. A password that was correct before, however long ago: only a client that knows the password benefits.
//! 2. The client address with the fewest attempts without success. From its second attempt on, an address that guesses
//!    passwords waits behind every new address.
//! 3. User names in turn (start-time fair queueing): many attempts for one name delay those for another name by one
//!    check.
//! 4. Arrival.
//!
//! No rule depends on whether a user exists. Each address has at most one running check, and clients with the same user
//! and password share one check.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::path::bounded::BoundedMap;
use tokio::sync::oneshot;

/// Maximum number of waiting checks. Beyond that, the last one in the order is dropped.
const MAX_WAITING: usize = 1024;

/// Maximum number of addresses whose attempts are remembered.
const MAX_SOURCES: usize = 1 << 16;

/// Time after the last attempt from which an address counts as new.
const ATTEMPTS_TTL: Duration = Duration::from_secs(10 * 60);

/// A digest of user and password that reveals neither.
pub(super) type CredentialDigest = [u8; 32];

/// A request to check the password of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct PasswordCheck {
    /// The prefix of the client address, see [`ekiden_proto::addr::source_prefix`].
    pub source: IpAddr,
    /// The digest of user and password.
    pub digest: CredentialDigest,
    /// The digest of the user name.
    pub name: CredentialDigest,
    /// Whether this password was correct before.
    pub was_verified: bool,
}

/// The password checks of all listeners.
pub(super) struct CheckQueue {
    max_running: usize,
    state: Mutex<CheckQueueState>,
}

struct CheckQueueState {
    waiting: Vec<QueuedCheck>,
    running: Vec<PasswordCheck>,
    attempts: BoundedMap<IpAddr, SourceAttempts>,
    /// Number of the next request.
    next: u64,
    /// The tag of the check that was started last.
    virtual_time: u64,
}

struct QueuedCheck {
    number: u64,
    /// Start tag of the fair queueing among user names.
    tag: u64,
    request: PasswordCheck,
    notice: oneshot::Sender<CheckNotice>,
}

/// Message to a waiting request.
#[derive(Debug)]
enum CheckNotice {
    Begin,
    /// The result of another check of the same user and password.
    Result(bool),
}

#[derive(Clone, Copy)]
struct SourceAttempts {
    count: u32,
    last: Instant,
}

/// A waiting request. Dropping it removes the request from the queue.
pub(super) struct CheckWaiter {
    checks: Arc<CheckQueue>,
    number: u64,
    request: PasswordCheck,
    notice: oneshot::Receiver<CheckNotice>,
}

/// The result of waiting.
pub(super) enum CheckTurn {
    /// The check has to be run now.
    Run(RunningCheck),
    /// The result of another check of the same user and password.
    Result(bool),
}

/// The permission to run one check; returned on drop.
pub(super) struct RunningCheck {
    checks: Arc<CheckQueue>,
    request: PasswordCheck,
    result: Option<bool>,
}

impl CheckQueue {
    /// Creates a queue that runs at most `max_running` checks at once.
    pub fn new(max_running: usize) -> Self {
        let state = CheckQueueState {
            waiting: Vec::new(),
            running: Vec::new(),
            attempts: BoundedMap::new(MAX_SOURCES),
            next: 0,
            virtual_time: 0,
        };
        Self { max_running, state: Mutex::new(state) }
    }

    /// Adds a request to the queue.
    pub fn enqueue(self: &Arc<Self>, request: PasswordCheck) -> CheckWaiter {
        let (sender, notice) = oneshot::channel();
        let mut state = self.lock();
        let number = state.push(request, sender);
        state.begin_checks(self.max_running);
        state.drop_excess();
        drop(state);
        CheckWaiter { checks: Arc::clone(self), number, request, notice }
    }

    fn finish(&self, request: &PasswordCheck, result: Option<bool>) {
        let mut state = self.lock();
        state.running.retain(|running| running.digest != request.digest);
        if let Some(is_correct) = result {
            state.notify_result(request, is_correct);
        }
        state.begin_checks(self.max_running);
    }

    fn lock(&self) -> MutexGuard<'_, CheckQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckQueueState {
    fn push(&mut self, request: PasswordCheck, notice: oneshot::Sender<CheckNotice>) -> u64 {
        let is_same_attempt = |other: &PasswordCheck| other.source == request.source && other.digest == request.digest;
        // All connections for one web page send the same password, and count as one attempt.
        if !self.waiting.iter().map(|waiting| &waiting.request).chain(&self.running).any(is_same_attempt) {
            self.count_attempt(request.source);
        }
        let same_name = self.waiting.iter().filter(|waiting| waiting.request.name == request.name);
        let tag = same_name.map(|waiting| waiting.tag + 1).max().unwrap_or(0).max(self.virtual_time);
        let number = self.next;
        self.next += 1;
        self.waiting.push(QueuedCheck { number, tag, request, notice });
        number
    }

    fn count_attempt(&mut self, source: IpAddr) {
        let now = Instant::now();
        let attempts = self.attempts.get_or_insert_with(source, || SourceAttempts { count: 0, last: now });
        let earlier_count = if now.duration_since(attempts.last) < ATTEMPTS_TTL { attempts.count } else { 0 };
        *attempts = SourceAttempts { count: earlier_count.saturating_add(1), last: now };
    }

    /// Position of a request in the order; the smallest is first.
    fn rank(&self, waiting: &QueuedCheck) -> (bool, u32, u64, u64) {
        let QueuedCheck { number, tag, request, .. } = waiting;
        (!request.was_verified, self.attempts.peek(&request.source).map_or(0, |seen| seen.count), *tag, *number)
    }

    fn begin_checks(&mut self, max_running: usize) {
        while self.running.len() < max_running {
            let may_begin = |waiting: &&QueuedCheck| {
                let conflicts = |other: &PasswordCheck| {
                    other.source == waiting.request.source || other.digest == waiting.request.digest
                };
                !self.running.iter().any(conflicts)
            };
            let first = self.waiting.iter().filter(may_begin).min_by_key(|waiting| self.rank(waiting));
            let Some(number) = first.map(|first| first.number) else { return };
            let Some(first) = self.remove(number) else { return };
            // Sending fails if the request is being dropped, so its check is not started.
            if first.notice.send(CheckNotice::Begin).is_ok() {
                self.virtual_time = first.tag;
                self.running.push(first.request);
            }
        }
    }

    /// Removes a request from the queue.
    fn remove(&mut self, number: u64) -> Option<QueuedCheck> {
        let at = self.waiting.iter().position(|waiting| waiting.number == number)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Drops the last request in the order if there are too many.
    fn drop_excess(&mut self) {
        if self.waiting.len() > MAX_WAITING {
            let last = self.waiting.iter().max_by_key(|waiting| self.rank(waiting));
            let number = last.map(|last| last.number);
            drop(number.and_then(|number| self.remove(number)));
        }
    }

    /// Sends the result to all waiting requests with the same user and password.
    fn notify_result(&mut self, checked: &PasswordCheck, is_correct: bool) {
        if is_correct {
            self.attempts.remove(&checked.source);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (matching, others) = waiting.into_iter().partition(|waiting| waiting.request.digest == checked.digest);
        self.waiting = others;
        for QueuedCheck { request, notice, .. } in matching {
            if is_correct {
                self.attempts.remove(&request.source);
            }
            // Sending fails if the client has disconnected.
            let _ = notice.send(CheckNotice::Result(is_correct));
        }
    }
}

impl CheckWaiter {
    /// Waits for the turn of the request, or for a result. `None` if the request was dropped because too many others
    /// wait.
    pub async fn wait_turn(mut self) -> Option<CheckTurn> {
        match (&mut self.notice).await.ok()? {
            CheckNotice::Result(is_correct) => Some(CheckTurn::Result(is_correct)),
            CheckNotice::Begin => Some(CheckTurn::Run(RunningCheck {
                checks: Arc::clone(&self.checks),
                request: self.request,
                result: None,
            })),
        }
    }
}

impl Drop for CheckWaiter {
    fn drop(&mut self) {
        self.notice.close();
        let began = matches!(self.notice.try_recv(), Ok(CheckNotice::Begin));
        if began {
            // The request got its turn and did not use it.
            self.checks.finish(&self.request, None);
        } else {
            self.checks.lock().remove(self.number);
        }
    }
}

impl RunningCheck {
    /// Returns the permission, and sends the result to all requests with the same user and password.
    pub fn finish(mut self, is_correct: bool) {
        self.result = Some(is_correct);
    }
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.checks.finish(&self.request, self.result);
    }
}

#[cfg(test)]
mod tests {
    //! The order of checks: the tests finish each check themselves, without bcrypt.

    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type PendingCheck = Pin<Box<dyn Future<Output = Option<CheckTurn>>>>;

    /// A check of `password` for user `name` by client number `client`.
    fn request(client: u8, name: u8, password: u8) -> PasswordCheck {
        let mut digest = [password; 32];
        digest[0] = name;
        PasswordCheck { source: [192, 0, 2, client].into(), digest, name: [name; 32], was_verified: false }
    }

    fn enter(checks: &Arc<CheckQueue>, request: PasswordCheck) -> PendingCheck {
        Box::pin(checks.enqueue(request).wait_turn())
    }

    fn poll_turn(pending: &mut PendingCheck) -> Option<CheckTurn> {
        match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.expect("the request is still queued")),
            Poll::Pending => None,
        }
    }

    fn poll_running(pending: &mut PendingCheck) -> Option<RunningCheck> {
        poll_turn(pending).map(|turn| match turn {
            CheckTurn::Run(running) => running,
            CheckTurn::Result(right) => panic!("the check has ended with {right}"),
        })
    }

    /// Ends `running` and each further check with a wrong password. Returns the order of the checks.
    fn order(mut running: RunningCheck, mut waiting: Vec<(u8, PendingCheck)>) -> Vec<u8> {
        let mut order = Vec::new();
        while !waiting.is_empty() {
            running.finish(false);
            let mut next =
                waiting.iter_mut().enumerate().filter_map(|(at, (_, pending))| Some((at, poll_running(pending)?)));
            let (at, started) = next.next().expect("a check starts");
            assert!(next.next().is_none(), "two checks started");
            running = started;
            order.push(waiting.remove(at).0);
        }
        order
    }

    #[test]
    fn concurrent_checks_are_limited_in_total_and_per_address() {
        let checks = Arc::new(CheckQueue::new(2));
        let mut first = enter(&checks, request(1, 1, 1));
        let mut again = enter(&checks, request(1, 1, 2));
        let mut second = enter(&checks, request(2, 1, 3));
        let mut third = enter(&checks, request(3, 1, 4));
        let (first, second) = (poll_running(&mut first).unwrap(), poll_running(&mut second).unwrap());
        assert!(poll_running(&mut again).is_none() && poll_running(&mut third).is_none());
        second.finish(false);
        let third = poll_running(&mut third).unwrap();
        third.finish(false);
        assert!(poll_running(&mut again).is_none(), "a check of the same address is running");
        first.finish(false);
        assert!(poll_running(&mut again).is_some());
    }

    #[test]
    fn addresses_with_wrong_passwords_wait_behind_new_addresses() {
        let checks = Arc::new(CheckQueue::new(1));
        let first = poll_running(&mut enter(&checks, request(1, 1, 1))).unwrap();
        let guesses = [(2, 21), (3, 31), (2, 22), (3, 32), (1, 12)];
        let mut waiting: Vec<_> =
            guesses.iter().map(|(at, word)| (*word, enter(&checks, request(*at, 1, *word)))).collect();
        waiting.push((40, enter(&checks, request(4, 1, 40))));
        assert_eq!(order(first, waiting), [40, 21, 31, 22, 32, 12]);
        // Addresses with wrong passwords are remembered until a check of the address succeeds.
        let first = poll_running(&mut enter(&checks, request(5, 1, 50))).unwrap();
        let waiting = [(2, 23), (4, 41), (6, 60)].map(|(at, word)| (word, enter(&checks, request(at, 1, word))));
        assert_eq!(order(first, waiting.into()), [60, 41, 23]);
        poll_running(&mut enter(&checks, request(2, 1, 99))).unwrap().finish(true);
        let first = poll_running(&mut enter(&checks, request(7, 1, 70))).unwrap();
        let waiting = [(4, 42), (2, 24)].map(|(at, word)| (word, enter(&checks, request(at, 1, word))));
        assert_eq!(order(first, waiting.into()), [24, 42]);
    }

    /// Many attempts for one name, even from new addresses, must not delay the check of another name.
    #[test]
    fn checks_alternate_between_user_names() {
        let checks = Arc::new(CheckQueue::new(1));
        let first = poll_running(&mut enter(&checks, request(1, 1, 1))).unwrap();
        let mut waiting: Vec<_> = (2..7).map(|at| (at, enter(&checks, request(at, 1, at)))).collect();
        waiting.extend([(10, 2), (11, 2), (12, 3)].map(|(at, name)| (at, enter(&checks, request(at, name, at)))));
        assert_eq!(order(first, waiting), [2, 10, 12, 3, 11, 4, 5, 6]);
    }

    #[test]
    fn previously_verified_password_is_checked_first() {
        let checks = Arc::new(CheckQueue::new(1));
        let first = poll_running(&mut enter(&checks, request(1, 1, 1))).unwrap();
        let waiting = [
            (2, enter(&checks, request(2, 1, 2))),
            (3, enter(&checks, PasswordCheck { was_verified: true, ..request(1, 1, 3) })),
        ];
        assert_eq!(order(first, waiting.into()), [3, 2]);
    }

    #[test]
    fn identical_credentials_are_checked_once() {
        let checks = Arc::new(CheckQueue::new(2));
        for right in [true, false] {
            let running = poll_running(&mut enter(&checks, request(1, 1, 1))).unwrap();
            let mut same: Vec<_> = [1, 1, 2].map(|at| enter(&checks, request(at, 1, 1))).into();
            assert!(
                same.iter_mut().all(|pending| poll_turn(pending).is_none()),
                "a slot is free, but not for identical credentials"
            );
            running.finish(right);
            assert!(
                same.iter_mut()
                    .all(|pending| matches!(poll_turn(pending), Some(CheckTurn::Result(known)) if known == right))
            );
        }
    }

    #[test]
    fn dropped_requests_are_removed_from_the_queue() {
        let checks = Arc::new(CheckQueue::new(1));
        let mut first = enter(&checks, request(1, 1, 1));
        let mut second = enter(&checks, request(2, 1, 2));
        let third = enter(&checks, request(3, 1, 3));
        let mut fourth = enter(&checks, request(4, 1, 4));
        drop(third);
        assert!(poll_running(&mut second).is_none());
        // The request got its turn, and was dropped before the next poll.
        drop(first);
        let running = poll_running(&mut second).unwrap();
        // A check that panics has no result.
        drop(running);
        poll_running(&mut fourth).unwrap().finish(false);
        first = enter(&checks, request(1, 1, 5));
        assert!(poll_running(&mut first).is_some());
        assert!(checks.lock().waiting.is_empty());
    }

    #[test]
    fn full_queue_drops_the_last_request() {
        let checks = Arc::new(CheckQueue::new(1));
        let _running = poll_running(&mut enter(&checks, request(1, 1, 1))).unwrap();
        let numbered = |number: usize| {
            let mut request = request(2, 1, 2);
            request.digest[8..16].copy_from_slice(&number.to_le_bytes());
            request
        };
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|number| enter(&checks, numbered(number))).collect();
        let mut new = enter(&checks, request(3, 1, 3));
        assert!(poll_turn(&mut new).is_none(), "the new request waits");
        let mut last = waiting.pop().unwrap();
        assert!(matches!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)));
        assert!(waiting.iter_mut().all(|pending| poll_turn(pending).is_none()));
    }
}
