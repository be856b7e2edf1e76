//! The account of a user or a listener: its limits and its usage.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;

use super::period::{format_midnight, seconds_until};
use super::rate::RateLimiter;
use crate::config::AccountLimits;
use crate::status::AccountView;

/// The kind of the account's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountScope {
    /// A user, on all listeners.
    User,
    /// A listener, with all of its users.
    Listener,
}

impl AccountScope {
    /// Returns the name of the scope in the log, in metrics and in the usage file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Listener => "listener",
        }
    }
}

/// The account of a user or a listener, shared by all threads.
#[derive(Debug)]
pub struct Account {
    pub scope: AccountScope,
    pub name: Box<str>,
    limits: Mutex<AccountLimits>,
    sessions: AtomicUsize,
    rates: [RateLimiter; 2],
    pub(super) quota: QuotaCounter,
    /// Bytes since the start of the process, by direction; counted only for users, because the metrics have totals of
    /// listeners.
    moved: [AtomicU64; 2],
    refused_for_sessions: AtomicU64,
    refused_for_quota: AtomicU64,
}

/// The bytes of the current day or month.
#[derive(Debug)]
pub(super) struct QuotaCounter {
    /// Quota in bytes; `u64::MAX` without a quota.
    limit: AtomicU64,
    /// Bytes in the usage file, of this process and of others.
    stored: AtomicU64,
    /// Bytes that are not yet written to the usage file.
    pending: AtomicU64,
    /// Whether the log has reported that the quota is used up.
    was_reported: AtomicBool,
}

/// Why a session is refused, for the client and for the log.
#[derive(Debug)]
pub struct AccountRefusal {
    /// The cause: [`Cause::OverQuota`] or [`Cause::SessionLimit`].
    pub cause: Cause,
    /// The reason as a clause of a sentence.
    pub reason: String,
    /// Time until the quota is reset; `None` for a session limit.
    pub retry_after: Option<Duration>,
}

impl QuotaCounter {
    /// Returns the bytes of the current day or month.
    pub fn used(&self) -> u64 {
        self.stored.load(Ordering::Relaxed).saturating_add(self.pending.load(Ordering::Relaxed))
    }

    /// Returns the remaining bytes; `u64::MAX` without a quota.
    pub fn remaining(&self) -> u64 {
        match self.limit.load(Ordering::Relaxed) {
            u64::MAX => u64::MAX,
            limit => limit.saturating_sub(self.used()),
        }
    }

    fn record(&self, bytes: u64) {
        if self.limit.load(Ordering::Relaxed) != u64::MAX {
            self.pending.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the bytes that are not yet written to the usage file.
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Records that `written` of the pending bytes were added to the usage file, which now has `stored` bytes for the
    /// current day or month.
    pub fn on_written(&self, written: u64, stored: u64) {
        // A reload with another quota may have set the counter to zero.
        let subtract = |pending: u64| Some(pending.saturating_sub(written));
        // Always succeeds: the function has a value for each state.
        let _ = self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        self.stored.store(stored, Ordering::Relaxed);
    }

    /// Returns whether the quota is used up and was not at the last call.
    pub fn is_newly_used_up(&self) -> bool {
        let is_used_up = self.remaining() == 0;
        !self.was_reported.swap(is_used_up, Ordering::Relaxed) && is_used_up
    }
}

impl Account {
    /// Returns an account without limits and usage.
    pub fn new(scope: AccountScope, name: &str) -> Self {
        Self {
            scope,
            name: name.into(),
            limits: Mutex::default(),
            sessions: AtomicUsize::new(0),
            rates: [RateLimiter::new(), RateLimiter::new()],
            quota: QuotaCounter {
                limit: AtomicU64::new(u64::MAX),
                stored: AtomicU64::new(0),
                pending: AtomicU64::new(0),
                was_reported: AtomicBool::new(false),
            },
            moved: Default::default(),
            refused_for_sessions: AtomicU64::new(0),
            refused_for_quota: AtomicU64::new(0),
        }
    }

    /// Sets the limits. `stored` is the number of bytes in the usage file for the current day or month.
    pub fn set_limits(&self, limits: AccountLimits, stored: u64) {
        let mut current = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let period = |limits: &AccountLimits| limits.quota.map(|quota| quota.period);
        if period(&current) != period(&limits) {
            self.quota.stored.store(stored, Ordering::Relaxed);
            self.quota.pending.store(0, Ordering::Relaxed);
        }
        self.quota.limit.store(limits.quota.map_or(u64::MAX, |quota| quota.bytes.0), Ordering::Relaxed);
        self.rates.iter().for_each(|rate| rate.set_rate(limits.rate));
        *current = limits;
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> AccountLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rate limiter of a direction.
    pub fn rate(&self, direction: Direction) -> &RateLimiter {
        &self.rates[direction as usize]
    }

    /// Counts bytes transferred in `direction`.
    pub fn record(&self, direction: Direction, bytes: u64) {
        if self.scope == AccountScope::User {
            self.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        }
        self.quota.record(bytes);
    }

    /// Reserves a place for a session.
    ///
    /// # Errors
    /// All places are taken.
    pub fn enter(self: &Arc<Self>) -> Result<AccountPlace, AccountRefusal> {
        let limit = self.limits().sessions.unwrap_or(usize::MAX);
        let increment = |taken| (taken < limit).then_some(taken + 1);
        if self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).is_ok() {
            return Ok(AccountPlace(Arc::clone(self)));
        }
        self.refused_for_sessions.fetch_add(1, Ordering::Relaxed);
        let reason = format!("the session limit of this {} ({limit}) is reached", self.scope.as_str());
        Err(AccountRefusal { cause: Cause::SessionLimit, reason, retry_after: None })
    }

    /// Checks whether a session may begin.
    ///
    /// # Errors
    /// The quota is used up.
    pub fn check_quota(&self) -> Result<(), AccountRefusal> {
        let Some(reason) = self.used_up() else { return Ok(()) };
        self.refused_for_quota.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now();
        let quota = self.limits().quota;
        let retry_after = quota.map(|quota| seconds_until(quota.period.end_at(now), now));
        Err(AccountRefusal { cause: Cause::OverQuota, reason, retry_after })
    }

    /// Returns the message that the quota is used up; `None` if it is not.
    pub fn used_up(&self) -> Option<String> {
        if self.quota.remaining() > 0 {
            return None;
        }
        let quota = self.limits().quota?;
        let until = format_midnight(quota.period.end_at(SystemTime::now()));
        Some(format!("the quota of this {}, {quota}, is used up until {until}", self.scope.as_str()))
    }

    /// Returns the view of the account for `ekiden status` and the metrics.
    pub fn view(&self, now: SystemTime) -> AccountView {
        let AccountLimits { sessions, rate, quota } = self.limits();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AccountView {
            scope: self.scope.as_str(),
            name: self.name.to_string(),
            sessions: self.sessions.load(Ordering::Relaxed),
            max_sessions: sessions,
            rate_bits_per_second: rate.map(|rate| rate.bits_per_second()),
            quota_bytes: quota.map(|quota| quota.bytes.0),
            quota_period: quota.map(|quota| quota.period.as_str()),
            used_bytes: quota.map(|_| self.quota.used()),
            left_bytes: quota.map(|_| self.quota.remaining()),
            quota_ends: quota.map(|quota| format_midnight(quota.period.end_at(now))),
            bytes_up: count(&self.moved[Direction::Up as usize]),
            bytes_down: count(&self.moved[Direction::Down as usize]),
            refused_for_sessions: count(&self.refused_for_sessions),
            refused_for_quota: count(&self.refused_for_quota),
        }
    }
}

/// A place among the concurrent sessions of an account, released on drop.
#[derive(Debug)]
pub struct AccountPlace(Arc<Account>);

impl Drop for AccountPlace {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
