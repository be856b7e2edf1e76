//! Metrics of the usage by users, and of quotas. The accounts bound the number of users with their own label.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::declare::{Declare, set_count};
use crate::status::AccountView;

label_sets! {
    ByUser { user: String }
    ByDirection { user: String, direction: &'static str }
    ByReason { user: String, reason: &'static str }
    ByAccount { scope: &'static str, name: String }
}

/// The metrics of users and of quotas.
#[derive(Debug, Default)]
pub(super) struct AccountMetrics {
    bytes: Family<ByDirection, Counter>,
    sessions: Family<ByUser, Gauge>,
    refused: Family<ByReason, Counter>,
    quota: Family<ByAccount, Gauge>,
    used: Family<ByAccount, Gauge>,
}

impl AccountMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("user_bytes", "Bytes of a user by direction", self.bytes.clone());
        r.declare("user_sessions_open", "Sessions of a user open now", self.sessions.clone());
        r.declare("user_sessions_refused", "Refused sessions and requests of a user by reason", self.refused.clone());
        r.declare("quota_bytes", "Bytes of a user or a listener for each day or month", self.quota.clone());
        r.declare("quota_used_bytes", "Bytes of a user or a listener in the current day or month", self.used.clone());
    }

    /// Updates the metrics to the values of `accounts`.
    pub(super) fn update(&self, accounts: Vec<AccountView>) {
        // A reload may have removed a quota.
        self.quota.clear();
        self.used.clear();
        for account in accounts {
            if account.scope == "user" {
                self.update_user(&account);
            }
            let set = |gauges: &Family<ByAccount, Gauge>, bytes: Option<u64>| {
                let Some(bytes) = bytes else { return };
                let label = ByAccount { scope: account.scope, name: account.name.clone() };
                gauges.get_or_create(&label).set(i64::try_from(bytes).unwrap_or(i64::MAX));
            };
            set(&self.quota, account.quota_bytes);
            set(&self.used, account.used_bytes);
        }
    }

    fn update_user(&self, account: &AccountView) {
        let user = || account.name.clone();
        for (direction, bytes) in [("up", account.bytes_up), ("down", account.bytes_down)] {
            set_count(&self.bytes.get_or_create(&ByDirection { user: user(), direction }), bytes);
        }
        let sessions = i64::try_from(account.sessions).unwrap_or(i64::MAX);
        self.sessions.get_or_create(&ByUser { user: user() }).set(sessions);
        for (reason, refused) in
            [("session_limit", account.refused_for_sessions), ("over_quota", account.refused_for_quota)]
        {
            set_count(&self.refused.get_or_create(&ByReason { user: user(), reason }), refused);
        }
    }
}
