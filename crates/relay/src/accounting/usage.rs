//! The usage file: a database with the usage of each quota by day or month, in bytes.
//!
//! A separate thread adds the new bytes every few seconds, at the end of each day and at the end of the process. A
//! killed process loses the bytes since the last write. Each write adds to the numbers in the file, and reads the
//! additions of other processes, because during an upgrade two processes use the same file.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ekiden_proto::event::Event;
use rusqlite::{Connection, TransactionBehavior, params};

use super::account::{Account, AccountScope};
use super::period::{PeriodName, format_midnight};
use super::{Registry, lock};
use crate::config::{Quota, QuotaPeriod};
use crate::database::{self, WriterThread};
use crate::events::Events;

/// Interval of writes. Including the duration of a write, a killed process loses less than 10 s of usage.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Largest size of the file in pages of 4 KiB: 64 MiB, enough for all days of a month of thirty thousand users.
const MAX_PAGES: u32 = 16 * 1024;

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS usage (
    scope TEXT NOT NULL, name TEXT NOT NULL, period TEXT NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (scope, name, period)) WITHOUT ROWID";

const ADD_BYTES: &str = "INSERT INTO usage VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (scope, name, period) DO UPDATE SET bytes = bytes + excluded.bytes";

/// Deletes only earlier months. The days of the current month remain, so that a temporarily wrong clock deletes none of
/// them.
const DELETE_OLD: &str = "DELETE FROM usage WHERE period < ?1";

const SELECT_ALL: &str = "SELECT scope, name, period, bytes FROM usage WHERE period IN (?1, ?2)";

/// The bytes of the current day and of the current month, by account.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UsageTotals(HashMap<(Box<str>, Box<str>, PeriodName), u64>);

impl UsageTotals {
    /// Returns the bytes of an account that count for `quota` at `now`.
    pub fn of(&self, scope: AccountScope, name: &str, quota: Option<Quota>, now: SystemTime) -> u64 {
        let Some(quota) = quota else { return 0 };
        let key = (scope.as_str().into(), name.into(), quota.period.name_at(now));
        self.0.get(&key).copied().unwrap_or(0)
    }
}

/// An open usage file and its content.
pub(super) struct UsageDatabase {
    path: PathBuf,
    database: Connection,
    totals: UsageTotals,
}

impl UsageDatabase {
    /// Opens or creates the file, and reads it.
    ///
    /// # Errors
    /// The message names the file, the error and the remedy.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = database::open(path, CREATE_TABLE, MAX_PAGES).and_then(|mut database| {
            let totals = exchange(&mut database, &[], SystemTime::now())?;
            Ok(Self { path: path.into(), database, totals })
        });
        opened.map_err(|error| {
            let path = path.display();
            io::Error::other(format!(
                "cannot store the usage of quotas in {path}: {error}: repair the file, or move it away to restart at \
                 zero"
            ))
        })
    }

    /// Stores the content in `registry`, and starts the thread that writes.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(self, registry: &Arc<Mutex<Registry>>, events: &Arc<Events>) -> io::Result<UsageFile> {
        let Self { path, database, totals } = self;
        lock(registry).totals = totals;
        let mut writer = UsageWriter {
            path: path.clone(),
            database,
            registry: Arc::clone(registry),
            events: Arc::clone(events),
            written_at: SystemTime::now(),
            has_failed: false,
        };
        let writer = WriterThread::start("usage", move || writer.write())?;
        Ok(UsageFile { path, writer })
    }
}

/// A usage file with the thread that writes to it.
#[derive(Debug)]
pub(super) struct UsageFile {
    path: PathBuf,
    writer: WriterThread,
}

impl UsageFile {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes new bytes, and closes the file.
    pub fn close(self) {
        self.writer.stop();
    }
}

struct UsageWriter {
    path: PathBuf,
    database: Connection,
    registry: Arc<Mutex<Registry>>,
    events: Arc<Events>,
    /// Time of the last attempt to write. New bytes belong to its day and month, because a write is attempted at the
    /// end of each period.
    written_at: SystemTime,
    has_failed: bool,
}

impl UsageWriter {
    /// Writes new bytes, and returns the time until the next write.
    fn write(&mut self) -> Duration {
        let now = SystemTime::now();
        let accounts = lock(&self.registry).accounts.clone();
        let accounts: Vec<_> =
            accounts.into_iter().filter_map(|account| account.limits().quota.map(|quota| (account, quota))).collect();
        let additions: Vec<_> = accounts
            .iter()
            .map(|(account, quota)| (&**account, quota.period.name_at(self.written_at), account.quota.pending()))
            .collect();
        match exchange(&mut self.database, &additions, now) {
            Ok(totals) => {
                self.written_at = now;
                for (account, _, written) in &additions {
                    account
                        .quota
                        .on_written(*written, totals.of(account.scope, &account.name, account.limits().quota, now));
                }
                lock(&self.registry).totals = totals;
                self.report(None);
            }
            Err(error) => {
                self.begin_periods(&accounts, now);
                self.report(Some(error));
            }
        }
        for (account, quota) in &accounts {
            if account.quota.is_newly_used_up() {
                self.events.emit(&Event::QuotaUsed {
                    scope: account.scope.as_str(),
                    name: Some(account.name.to_string()),
                    quota: quota.to_string(),
                    until: format_midnight(quota.period.end_at(now)),
                });
            }
        }
        let midnight = QuotaPeriod::Day.end_at(now).duration_since(SystemTime::now()).unwrap_or_default();
        WRITE_INTERVAL.min(midnight)
    }

    /// Starts new days and months after a failed write. The unwritten bytes of the old periods are dropped, because a
    /// quota counts only the current day or month.
    fn begin_periods(&mut self, accounts: &[(Arc<Account>, Quota)], now: SystemTime) {
        let registry = lock(&self.registry);
        for (account, quota) in accounts {
            if quota.period.name_at(self.written_at) != quota.period.name_at(now) {
                let stored = registry.totals.of(account.scope, &account.name, Some(*quota), now);
                account.quota.on_written(account.quota.pending(), stored);
            }
        }
        self.written_at = now;
    }

    /// Reports the first of consecutive failures, and the first success after them.
    fn report(&mut self, error: Option<rusqlite::Error>) {
        let path = self.path.display();
        let message = match &error {
            Some(error) => format!(
                "cannot write the usage of quotas to {path}: {error}: the usage is kept in memory until a write \
                 succeeds"
            ),
            None => format!("the usage of quotas is written to {path} again"),
        };
        if std::mem::replace(&mut self.has_failed, error.is_some()) != error.is_some() {
            self.events.emit(&Event::Warning { message });
        }
    }
}

/// Deletes earlier months, adds `additions`, and reads the bytes of the day and the month at `now`.
fn exchange(
    database: &mut Connection,
    additions: &[(&Account, PeriodName, u64)],
    now: SystemTime,
) -> rusqlite::Result<UsageTotals> {
    let (day, month) = (QuotaPeriod::Day.name_at(now).0, QuotaPeriod::Month.name_at(now).0);
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Deletion comes first, because a full file has no room for new rows.
    transaction.execute(DELETE_OLD, params![month])?;
    for (account, period, bytes) in additions.iter().filter(|(_, _, bytes)| *bytes > 0) {
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        transaction.prepare_cached(ADD_BYTES)?.execute(params![
            account.scope.as_str(),
            account.name,
            period.0,
            bytes
        ])?;
    }
    let totals = {
        let mut query = transaction.prepare_cached(SELECT_ALL)?;
        let rows = query.query_map(params![day, month], |row| {
            let key = (row.get(0)?, row.get(1)?, PeriodName(row.get(2)?));
            Ok((key, u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0)))
        })?;
        UsageTotals(rows.collect::<rusqlite::Result<_>>()?)
    };
    transaction.commit()?;
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AccountLimits, LogConfig};
    use crate::events::log::Log;
    use ekiden_proto::direction::Direction;
    use ekiden_proto::units::Bytes;

    const DAY: Duration = Duration::from_secs(86_400);

    fn in_memory(max_pages: u32) -> Connection {
        database::open(Path::new(":memory:"), CREATE_TABLE, max_pages).unwrap()
    }

    #[test]
    fn full_database_accepts_new_usage_in_the_next_month() {
        let mut database = in_memory(4);
        let account = Account::new(AccountScope::User, "alice");
        let now = SystemTime::now();
        let month = QuotaPeriod::Month.name_at(now).0;
        // These names are as long as the name of a day, so a page that is full for them is full for a day, too.
        let mut add = |number: u32| {
            exchange(&mut database, &[(&account, PeriodName(format!("{month}{number:03}").into()), 7)], now)
        };
        assert!((0..1000).any(|number| add(number).is_err()), "the size of the database is unbounded");
        let later = now + 31 * DAY;
        let today = QuotaPeriod::Day.name_at(later);
        let totals = exchange(&mut database, &[(&account, today.clone(), 7)], later).unwrap();
        assert_eq!(totals, UsageTotals(HashMap::from([(("user".into(), "alice".into(), today), 7)])));
    }

    /// An account that has used its 100 bytes of the day, and a usage writer whose database fails.
    fn exhausted_account() -> (Arc<Account>, UsageWriter) {
        let registry = Arc::new(Mutex::new(Registry::default()));
        let account = lock(&registry).account(AccountScope::User, "alice");
        let quota = Some(Quota { bytes: Bytes(100), period: QuotaPeriod::Day });
        account.set_limits(AccountLimits { quota, ..AccountLimits::default() }, 60);
        account.record(Direction::Up, 40);
        let (log, _writer) = Log::start(LogConfig::default()).unwrap();
        let database = in_memory(8);
        database.execute_batch("DROP TABLE usage").unwrap();
        let (path, written_at, has_failed) = (PathBuf::new(), SystemTime::now(), false);
        (account, UsageWriter { path, database, registry, events: Events::new(log), written_at, has_failed })
    }

    /// Returns the remaining quota on the day of its use and on the next day, and the remaining and pending bytes after
    /// further use, with a database that fails until then.
    fn quota_over_two_days() -> (u64, u64, (u64, u64)) {
        let (account, mut writer) = exhausted_account();
        writer.write();
        let same_day = account.quota.remaining();
        writer.written_at = SystemTime::now() - DAY;
        writer.write();
        let next_day = account.quota.remaining();
        account.record(Direction::Up, 10);
        writer.database.execute_batch(CREATE_TABLE).unwrap();
        writer.write();
        (same_day, next_day, (account.quota.remaining(), account.quota.pending()))
    }

    #[test]
    fn quota_resets_although_the_database_cannot_be_written() {
        let today = || QuotaPeriod::Day.name_at(SystemTime::now());
        // A run in which a day begins (UTC) proves nothing.
        let (same_day, next_day, new_bytes) = loop {
            let day = today();
            let quota = quota_over_two_days();
            if today() == day {
                break quota;
            }
        };
        assert_eq!((same_day, next_day), (0, 100));
        assert_eq!(new_bytes, (90, 0), "the new bytes are those of the next day");
    }
}
