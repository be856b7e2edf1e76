//! The state of upgrades, for `/api/upgrade`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ekiden_sys::process;
use serde::{Deserialize, Serialize};

/// Upgrades of this process that came to nothing.
#[derive(Debug, Default)]
pub struct UpgradeAttempts(Mutex<LastFailure>);

#[derive(Debug, Default)]
struct LastFailure {
    count: u64,
    why: Option<String>,
    patience: Duration,
}

/// The identity of a relay, and the outcome of its upgrades.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpgradeView {
    /// The pid of the relay.
    pub pid: u32,
    /// Start time in clock ticks after boot: together with the pid it identifies one process.
    pub started: Option<u64>,
    /// The version of the program.
    pub version: String,
    /// How many upgrades have failed.
    pub failed: u64,
    /// Why, the last time.
    pub why: Option<String>,
    /// How long a new process may take.
    pub patience_seconds: f64,
}

impl UpgradeAttempts {
    /// Sets the timeout of the next upgrade.
    pub fn set_timeout(&self, patience: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).patience = patience;
    }

    /// Records a failed upgrade.
    pub fn record_failure(&self, why: String) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.count += 1;
        failed.why = Some(why);
    }

    /// The current view.
    #[must_use]
    pub fn view(&self) -> UpgradeView {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        UpgradeView {
            pid,
            started: process::start_time(pid),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            failed: failed.count,
            why: failed.why.clone(),
            patience_seconds: failed.patience.as_secs_f64(),
        }
    }
}
