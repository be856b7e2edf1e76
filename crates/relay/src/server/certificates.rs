//! Checks the expiry dates of the certificates of TLS listeners: exports them as a metric, and warns two weeks before
//! expiry.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use ekiden_proto::event::Event;
use tokio::time::{Instant, sleep_until};

use crate::config::Config;
use crate::ingress::services::Services;

/// Interval between two checks of the certificates.
const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Number of checks per warning about a certificate: with one check an hour, one warning a day.
const CHECKS_PER_WARNING: u32 = 24;

/// Schedule of the expiry checks of the certificates in the active configuration.
#[derive(Debug)]
pub(super) struct CertificateWatch {
    next: Cell<Instant>,
    /// Number of checks since the start or the last reload.
    checks: Cell<u32>,
}

impl CertificateWatch {
    pub fn new() -> Self {
        Self { next: Cell::new(Instant::now()), checks: Cell::new(0) }
    }

    /// Completes when the next check is due.
    pub async fn wait_due(&self) {
        sleep_until(self.next.get()).await;
    }

    /// Restarts the schedule with `config`: checks at once, and warns about each certificate that expires soon.
    pub fn restart(&self, config: &Config, services: &Services) {
        self.checks.set(0);
        services.events.metrics.clear_certificate_expiry();
        self.check(config, services);
    }

    /// Checks all certificates of `config` and sets the time of the next check.
    pub fn check(&self, config: &Config, services: &Services) {
        let (now, checks) = (SystemTime::now(), self.checks.get());
        self.checks.set(checks.wrapping_add(1));
        self.next.set(Instant::now() + CHECK_INTERVAL);
        for listener in &config.listeners {
            let Some(expiry) = listener.tls.as_ref().and_then(|tls| tls.expiry()) else { continue };
            services.events.metrics.set_certificate_expiry(&listener.name, expiry.end);
            if expiry.is_soon(now) && checks.is_multiple_of(CHECKS_PER_WARNING) {
                let message = format!("listener {}: {}: renew it", listener.name, expiry.describe(now));
                services.events.emit(&Event::Warning { message });
            }
        }
    }
}
