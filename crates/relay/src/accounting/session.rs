//! The accounts of a session: those of its listener and of its user.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::direction::Direction;

use super::account::{Account, AccountPlace, AccountRefusal};
use crate::pump::Allowance;

/// The accounts of one session. A session never leaves its thread, so its state is in cells.
#[derive(Debug)]
pub struct SessionAccounts {
    listener: AccountEntry,
    user: RefCell<Option<AccountEntry>>,
    /// Bytes of the turns that were taken and not yet settled, by direction.
    turns: [Cell<u64>; 2],
    /// Whether bytes count for rates, in addition to quotas.
    has_rates: Cell<bool>,
}

/// An account, and the place of the session; `None` before the session has one.
#[derive(Debug)]
struct AccountEntry {
    account: Arc<Account>,
    place: RefCell<Option<AccountPlace>>,
}

impl AccountEntry {
    fn new(account: Arc<Account>) -> Self {
        Self { account, place: RefCell::new(None) }
    }

    fn enter(&self) -> Result<(), AccountRefusal> {
        self.account.check_quota()?;
        let mut place = self.place.borrow_mut();
        if place.is_none() {
            *place = Some(self.account.enter()?);
        }
        Ok(())
    }
}

impl SessionAccounts {
    /// Returns the accounts of a session without a user.
    #[must_use]
    pub fn new(listener: Arc<Account>) -> Self {
        let listener = AccountEntry::new(listener);
        Self { listener, user: RefCell::new(None), turns: Default::default(), has_rates: Cell::new(true) }
    }

    /// Sets the authenticated user. A client of the HTTP proxy may log in as another user with each request.
    pub fn set_user(&self, user: Arc<Account>) {
        if self.user.borrow().as_ref().is_some_and(|entry| Arc::ptr_eq(&entry.account, &user)) {
            return;
        }
        self.give_back_turns();
        self.user.replace(Some(AccountEntry::new(user)));
    }

    /// Reserves the places of the session, unless it has them, and checks the quotas.
    ///
    /// # Errors
    /// The session, or its next request, is refused.
    pub fn enter(&self) -> Result<(), AccountRefusal> {
        self.listener.enter()?;
        self.user.borrow().as_ref().map_or(Ok(()), AccountEntry::enter)
    }

    /// Releases the places of the session.
    pub fn leave(&self) {
        self.listener.place.take();
        self.user.borrow().iter().for_each(|entry| drop(entry.place.take()));
    }

    /// Returns the bytes that a flow may read next.
    #[must_use]
    pub fn reserve(&self, direction: Direction) -> Allowance {
        let (mut remaining, mut size) = (u64::MAX, None);
        self.for_each(|account| {
            remaining = remaining.min(account.quota.remaining());
            size = size.into_iter().chain(account.rate(direction).turn_size()).min();
        });
        let unused = &self.turns[direction as usize];
        if remaining == 0 {
            return Allowance::Exhausted;
        }
        let now = Instant::now;
        let (bytes, at) = match (unused.get(), size) {
            (0, None) if remaining == u64::MAX => return Allowance::Unlimited,
            (0, None) => (remaining, now()),
            (0, Some(size)) => (size.min(remaining), self.take_turn(direction, size.min(remaining))),
            (unused, _) => (unused.min(remaining), now()),
        };
        Allowance::Bytes { most: usize::try_from(bytes).unwrap_or(usize::MAX), at }
    }

    fn take_turn(&self, direction: Direction, bytes: u64) -> Instant {
        let now = Instant::now();
        let mut start = now;
        self.for_each(|account| start = start.max(account.rate(direction).take(bytes, now)));
        self.turns[direction as usize].set(bytes);
        start
    }

    /// Counts transferred bytes, and refunds the unused part of the turn.
    pub fn record(&self, direction: Direction, bytes: u64) {
        let turn = self.turns[direction as usize].take();
        self.for_each(|account| {
            account.record(direction, bytes);
            if self.has_rates.get() {
                account.rate(direction).settle(turn, bytes);
            }
        });
    }

    /// Excludes the bytes of this session from rates. For packets on lanes, which are neither delayed nor dropped for a
    /// rate: counting them would delay the turns of flows without bound.
    pub fn ignore_rates(&self) {
        self.has_rates.set(false);
    }

    /// Decides whether a datagram of `bytes` may pass now; datagrams do not wait. Returns false if the datagram is to
    /// be dropped.
    #[must_use]
    pub fn try_pass(&self, direction: Direction, bytes: usize) -> bool {
        let now = Instant::now();
        let mut may_pass = true;
        self.for_each(|account| may_pass &= account.rate(direction).may_pass(now) && account.quota.remaining() > 0);
        if may_pass {
            self.for_each(|account| account.rate(direction).take_datagram(bytes as u64, now));
        }
        may_pass
    }

    /// Returns the message about the quota that is used up; `None` if there is none.
    #[must_use]
    pub fn used_up(&self) -> Option<String> {
        let mut used_up = None;
        self.for_each(|account| used_up = used_up.take().or_else(|| account.used_up()));
        used_up
    }

    fn for_each(&self, mut each: impl FnMut(&Account)) {
        each(&self.listener.account);
        self.user.borrow().iter().for_each(|entry| each(&entry.account));
    }

    fn give_back_turns(&self) {
        for direction in [Direction::Down, Direction::Up] {
            let turn = self.turns[direction as usize].take();
            self.for_each(|account| account.rate(direction).settle(turn, 0));
        }
    }
}

impl Drop for SessionAccounts {
    fn drop(&mut self) {
        self.give_back_turns();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::account::AccountScope;
    use crate::config::{AccountLimits, Quota, QuotaPeriod};
    use ekiden_proto::cause::Cause;
    use ekiden_proto::units::Bytes;

    fn account(scope: AccountScope, limits: AccountLimits) -> Arc<Account> {
        let account = Account::new(scope, "one");
        account.set_limits(limits, 0);
        Arc::new(account)
    }

    fn quota(bytes: u64) -> AccountLimits {
        let quota = Some(Quota { bytes: Bytes(bytes), period: QuotaPeriod::Day });
        AccountLimits { quota, ..AccountLimits::default() }
    }

    fn bytes(allowance: Allowance) -> usize {
        match allowance {
            Allowance::Bytes { most, .. } => most,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn smaller_quota_applies_and_both_accounts_count_all_bytes() {
        let listener = account(AccountScope::Listener, quota(1000));
        let session = SessionAccounts::new(Arc::clone(&listener));
        assert_eq!(bytes(session.reserve(Direction::Up)), 1000);
        let user = account(AccountScope::User, quota(300));
        session.set_user(Arc::clone(&user));
        assert_eq!(bytes(session.reserve(Direction::Down)), 300);
        session.record(Direction::Down, 100);
        session.record(Direction::Up, 200);
        assert_eq!((listener.quota.remaining(), user.quota.remaining()), (700, 0));
        assert_eq!(session.reserve(Direction::Up), Allowance::Exhausted);
        assert!(!session.try_pass(Direction::Up, 1) && session.used_up().unwrap().contains("300B/day"));
        assert_eq!(session.enter().unwrap_err().cause, Cause::OverQuota);
    }

    #[test]
    fn without_limits_nothing_is_reserved() {
        let session = SessionAccounts::new(account(AccountScope::Listener, AccountLimits::default()));
        session.set_user(account(AccountScope::User, AccountLimits::default()));
        assert_eq!(session.reserve(Direction::Up), Allowance::Unlimited);
        assert!(session.try_pass(Direction::Up, 1) && session.used_up().is_none() && session.enter().is_ok());
    }

    #[test]
    fn session_takes_and_returns_one_slot_of_each_account() {
        let session_limit = |sessions| AccountLimits { sessions: Some(sessions), ..AccountLimits::default() };
        let (listener, user) =
            (account(AccountScope::Listener, session_limit(2)), account(AccountScope::User, session_limit(1)));
        let session = |user: &Arc<Account>| {
            let session = SessionAccounts::new(Arc::clone(&listener));
            session.set_user(Arc::clone(user));
            session
        };
        let first = session(&user);
        assert!(first.enter().is_ok() && first.enter().is_ok(), "the next request of the same session");
        let second = session(&user);
        assert_eq!(second.enter().unwrap_err().cause, Cause::SessionLimit);
        let other = account(AccountScope::User, session_limit(1));
        second.set_user(Arc::clone(&other));
        assert!(second.enter().is_ok());
        drop((first, second));
        assert!(session(&user).enter().is_ok() && session(&other).enter().is_ok());
    }

    #[test]
    fn packets_of_lanes_delay_no_flow() {
        let limits = AccountLimits { rate: Some("8kbit/s".parse().unwrap()), ..quota(1 << 40) };
        let listener = account(AccountScope::Listener, limits);
        let lane = SessionAccounts::new(Arc::clone(&listener));
        lane.ignore_rates();
        lane.record(Direction::Up, 1 << 30);
        let flow = SessionAccounts::new(Arc::clone(&listener)).reserve(Direction::Up);
        assert!(matches!(flow, Allowance::Bytes { at, .. } if at <= Instant::now()), "{flow:?}");
        assert_eq!(listener.quota.used(), 1 << 30);
    }

    #[test]
    fn unused_part_of_a_turn_is_refunded() {
        let rate = Some("8Mbit/s".parse().unwrap());
        let listener = account(AccountScope::Listener, AccountLimits { rate, ..AccountLimits::default() });
        let limiter = listener.rate(Direction::Down);
        let session = SessionAccounts::new(Arc::clone(&listener));
        // With a debt of ten seconds, the next turn does not depend on the run time of the test.
        limiter.take(10_000_000, Instant::now());
        let next_turn = || limiter.take(0, Instant::now());
        let before = next_turn();
        assert_eq!(bytes(session.reserve(Direction::Down)), 10_000);
        assert_eq!(bytes(session.reserve(Direction::Down)), 10_000, "the same turn");
        assert_eq!((next_turn() - before).as_micros(), 10_000);
        session.record(Direction::Down, 4_000);
        assert_eq!((next_turn() - before).as_micros(), 4_000);
        session.record(Direction::Down, 1_000);
        assert_eq!((next_turn() - before).as_micros(), 5_000, "bytes recorded without a turn");
        let _ = session.reserve(Direction::Down);
        drop(session);
        assert_eq!((next_turn() - before).as_micros(), 5_000);
    }
}
