//! Limits and usage of users and listeners: concurrent sessions, rates, and quotas that are kept across restarts.
//!
//! An [`Account`] is shared by all threads. A session is charged to the account of its listener and to the account of
//! its user ([`SessionAccounts`]). [`usage`] keeps the bytes of quotas in a database.

mod account;
mod period;
mod rate;
mod session;
mod usage;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::config::{AccountLimits, Config, UserSettings};
use crate::events::Events;
use crate::status::AccountView;

pub use account::{Account, AccountRefusal, AccountScope};
pub use session::SessionAccounts;
use usage::{UsageDatabase, UsageFile, UsageTotals};

/// Largest number of users that metrics and `ekiden status` show by name; all other users are shown as one.
const MAX_NAMED_USERS: usize = 1000;

/// The name under which all other users are shown.
const OTHER_USERS: &str = "other";

/// The accounts of all listeners, and of all users that have authenticated since the start or have limits.
#[derive(Debug, Default)]
pub struct Accounts {
    registry: Arc<Mutex<Registry>>,
    usage_file: Mutex<Option<UsageFile>>,
}

/// The accounts, in the order of their creation.
#[derive(Debug, Default)]
struct Registry {
    accounts: Vec<Arc<Account>>,
    places: HashMap<(AccountScope, Box<str>), usize>,
    users: UserSettings,
    /// The content of the usage file at the last read.
    totals: UsageTotals,
}

impl Accounts {
    /// Checks that [`Self::open_usage_file`] can open `file`, and creates `file` if it is missing. The current file
    /// stays in use.
    ///
    /// # Errors
    /// As [`Self::open_usage_file`].
    pub fn check_usage_file(&self, file: Option<&Path>) -> io::Result<()> {
        let usage_file = self.usage_file.lock().unwrap_or_else(PoisonError::into_inner);
        let new_file = file.filter(|file| usage_file.as_ref().map(UsageFile::path) != Some(*file));
        new_file.map_or(Ok(()), |file| UsageDatabase::open(file).map(drop))
    }

    /// Reads the usage of quotas from `file`, and stores it there from now on. `None` closes the current file.
    ///
    /// # Errors
    /// The file cannot be read or written, or is no database; the message states the remedy.
    pub fn open_usage_file(&self, file: Option<&Path>, events: &Arc<Events>) -> io::Result<()> {
        let mut usage_file = self.usage_file.lock().unwrap_or_else(PoisonError::into_inner);
        if usage_file.as_ref().map(UsageFile::path) == file {
            return Ok(());
        }
        let database = file.map(UsageDatabase::open).transpose()?;
        // Two concurrent writers would both add the same bytes.
        usage_file.take().into_iter().for_each(UsageFile::close);
        *usage_file = database.map(|database| database.start(&self.registry, events)).transpose()?;
        Ok(())
    }

    /// Applies the limits of `config`, also to running sessions.
    pub fn apply_config(&self, config: &Config) {
        let mut registry = lock(&self.registry);
        registry.users = config.users.clone();
        let listeners: HashMap<_, _> =
            config.listeners.iter().map(|listener| (&*listener.name, listener.limits)).collect();
        for name in listeners.keys() {
            registry.account(AccountScope::Listener, name);
        }
        for name in config.users.limited_names() {
            registry.account(AccountScope::User, name);
        }
        for account in registry.accounts.clone() {
            let limits = match account.scope {
                AccountScope::User => registry.users.limits_of(&account.name),
                // A listener that was removed has no limits.
                AccountScope::Listener => listeners.get(&*account.name).copied().unwrap_or_default(),
            };
            registry.set_limits(&account, limits);
        }
    }

    /// Returns the account of a listener.
    #[must_use]
    pub fn listener(&self, name: &str) -> Arc<Account> {
        lock(&self.registry).account(AccountScope::Listener, name)
    }

    /// Returns the account of an authenticated user.
    #[must_use]
    pub fn user(&self, name: &str) -> Arc<Account> {
        lock(&self.registry).account(AccountScope::User, name)
    }

    /// Returns the views of the listeners with limits, of the first `MAX_NAMED_USERS` users, and of all other users
    /// together.
    #[must_use]
    pub fn views(&self) -> Vec<AccountView> {
        let accounts = lock(&self.registry).accounts.clone();
        let now = SystemTime::now();
        let mut views = Vec::new();
        let mut named_users = 0;
        let mut other_users: Option<AccountView> = None;
        for account in accounts {
            match account.scope {
                AccountScope::Listener if account.limits() == AccountLimits::default() => {}
                AccountScope::Listener => views.push(account.view(now)),
                AccountScope::User if named_users < MAX_NAMED_USERS => {
                    named_users += 1;
                    views.push(account.view(now));
                }
                AccountScope::User => {
                    let view = account.view(now);
                    other_users
                        .get_or_insert_with(|| AccountView::empty(AccountScope::User.as_str(), OTHER_USERS))
                        .add(&view);
                }
            }
        }
        views.extend(other_users);
        views
    }

    /// Writes the last bytes to the usage file, and closes the file.
    pub fn close(&self) {
        let usage_file = self.usage_file.lock().unwrap_or_else(PoisonError::into_inner).take();
        usage_file.into_iter().for_each(UsageFile::close);
    }
}

impl Registry {
    fn account(&mut self, scope: AccountScope, name: &str) -> Arc<Account> {
        let key = (scope, name.into());
        if let Some(place) = self.places.get(&key) {
            return Arc::clone(&self.accounts[*place]);
        }
        let account = Arc::new(Account::new(scope, name));
        if scope == AccountScope::User {
            self.set_limits(&account, self.users.limits_of(name));
        }
        self.places.insert(key, self.accounts.len());
        self.accounts.push(Arc::clone(&account));
        account
    }

    fn set_limits(&self, account: &Account, limits: AccountLimits) {
        account.set_limits(limits, self.totals.of(account.scope, &account.name, limits.quota, SystemTime::now()));
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_user_accounts_are_bounded() {
        let accounts = Accounts::default();
        for number in 0..MAX_NAMED_USERS + 3 {
            let account = accounts.user(&format!("user{number}"));
            account.record(ekiden_proto::direction::Direction::Up, 10);
        }
        let _listener = accounts.listener("without limits");
        let views = accounts.views();
        assert_eq!(views.len(), MAX_NAMED_USERS + 1);
        let last = &views[MAX_NAMED_USERS];
        assert_eq!((last.name.as_str(), last.bytes_up, last.bytes_down), (OTHER_USERS, 30, 0));
    }
}
