//! Watches when the certificates of TLS listeners end: in a metric, and in a warning two weeks before.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use ekiden_proto::event::Event;
use tokio::time::{Instant, sleep_until};

use crate::config::Config;
use crate::ingress::services::Services;

/// Interval of looks at the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Looks between two warnings about a certificate: one warning in a day.
const CHECKS_PER_WARNING: u32 = 24;

/// Looks at the certificates of the configuration in force.
#[derive(Debug)]
pub(super) struct CertificateWatch {
    next: Cell<Instant>,
    /// Looks since the start or the last reload.
    checks: Cell<u32>,
}

impl CertificateWatch {
    pub fn new() -> Self {
        Self { next: Cell::new(Instant::now()), checks: Cell::new(0) }
    }

    /// Completes when it is time for the next look.
    pub async fn wait_due(&self) {
        sleep_until(self.next.get()).await;
    }

    /// Begins anew with another configuration, and thus with a warning.
    pub fn restart(&self, config: &Config, services: &Services) {
        self.checks.set(0);
        services.events.metrics.clear_certificate_expiry();
        self.check(config, services);
    }

    /// Looks at all certificates.
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
