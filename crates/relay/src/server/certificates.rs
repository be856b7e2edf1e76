//! Checks the certificates of TLS listeners: reads changed files also while no client connects, exports the expiry
//! dates as a metric, and warns two weeks before expiry.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use ekiden_proto::event::Event;
use tokio::time::{Instant, sleep_until};

use crate::config::Config;
use crate::ingress::preface::server_config;
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
            let Some(tls) = &listener.tls else { continue };
            server_config(&services.events, &listener.name, tls);
            let Some(expiry) = tls.expiry() else { continue };
            services.events.metrics.set_certificate_expiry(&listener.name, expiry.end);
            if expiry.is_soon(now) && checks.is_multiple_of(CHECKS_PER_WARNING) {
                let message = format!("listener {}: {}: renew it", listener.name, expiry.describe(now));
                services.events.emit(&Event::Warning { message });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::LogConfig;
    use crate::events::Events;
    use crate::events::log::Log;
    use crate::events::metrics::ScrapeData;
    use crate::testing::{config_listening_at, wait_until};

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIEXoarPxKPeOsz6Wa8zmwyNgFVuocUWCzWGm860u7YXr\n\
        -----END PRIVATE KEY-----\n";

    /// A certificate for [`KEY`] that ends at 2111301781.
    const FIRST: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBLDCB36ADAgECAhRFVA4uOsEiVwuzMbevaI9hNnLKojAFBgMrZXAwDDEKMAgG\n\
        A1UEAwwBYTAeFw0yNjExMjkwODQzMDFaFw0zNjExMjYwODQzMDFaMAwxCjAIBgNV\n\
        BAMMAWEwKjAFBgMrZXADIQC7g7GHBRHRh15nVUCkho9xBdzzEz3dHG9NxWjhjXyA\n\
        iqNTMFEwHQYDVR0OBBYEFKgDtlLpxiuoCchM2uHvk+aFSAIPMB8GA1UdIwQYMBaA\n\
        FKgDtlLpxiuoCchM2uHvk+aFSAIPMA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EA\n\
        t/+eHszLCPQXbUdBHrjgVMFfKI5uZCQdm0Bk9N30i6pEQ8zz+QOjI5TJvKJWT/3Q\n\
        judAUWR0CwMLtKc2a3YjCA==\n\
        -----END CERTIFICATE-----\n";

    /// A certificate for [`KEY`] that ends at 2426661781.
    const LATER: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBLDCB36ADAgECAhR8UpJTtsSxQNoWVk6KR0PfSNj3/jAFBgMrZXAwDDEKMAgG\n\
        A1UEAwwBYTAeFw0yNjExMjkwODQzMDFaFw00NjExMjQwODQzMDFaMAwxCjAIBgNV\n\
        BAMMAWEwKjAFBgMrZXADIQC7g7GHBRHRh15nVUCkho9xBdzzEz3dHG9NxWjhjXyA\n\
        iqNTMFEwHQYDVR0OBBYEFKgDtlLpxiuoCchM2uHvk+aFSAIPMB8GA1UdIwQYMBaA\n\
        FKgDtlLpxiuoCchM2uHvk+aFSAIPMA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EA\n\
        Hio4IRzdlsLtQbmLDb1+rpae3lRjSyKqbUl84JXDtv+N8zN+fOLC/glXdEKEaBtL\n\
        BQVdmEZoBoR0W3X0PXyPAg==\n\
        -----END CERTIFICATE-----\n";

    /// A certificate for another key that ends at 2426661781.
    const WRONG: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBLDCB36ADAgECAhRhyghU6Wjv/CmcgnuCYLMLoTryBzAFBgMrZXAwDDEKMAgG\n\
        A1UEAwwBYTAeFw0yNjExMjkwODQzMDFaFw00NjExMjQwODQzMDFaMAwxCjAIBgNV\n\
        BAMMAWEwKjAFBgMrZXADIQCpmAwqdRpu1XPhIKwZS/IpBSF1fjGz90RJC/zVxkSm\n\
        naNTMFEwHQYDVR0OBBYEFERZAH3cCjn9Gvyv2DvPEOnOkU49MB8GA1UdIwQYMBaA\n\
        FERZAH3cCjn9Gvyv2DvPEOnOkU49MA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EA\n\
        r/VKVJiqiI/AcSv0hy5lWevR3XjUVidhsXyq+vjRPf6z35raSRWcC/LZgsbCHNJ6\n\
        bsHwlAScFRVFcULZ50QWBQ==\n\
        -----END CERTIFICATE-----\n";

    /// Regression: after a certificate for another key, the metric had the end of that certificate, although the first
    /// certificate remained in use.
    #[tokio::test]
    async fn expiry_is_that_of_the_certificate_in_use() {
        let folder = std::env::temp_dir().join(format!("ekiden-certificates-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [file, new, key] = ["certificate.pem", "new.pem", "key.pem"].map(|name| folder.join(name));
        // A new file, because changes of a file within milliseconds may have equal timestamps.
        let replace = |text: &str| fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).unwrap();
        replace(FIRST);
        fs::write(&key, KEY).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let (file_name, key_name) = (file.display(), key.display());
        let url = format!("http://127.0.0.1:0?tls_certificate={file_name}&tls_key={key_name}");
        let (config, watch) = (config_listening_at(&url), CertificateWatch::new());
        let (log, _writer) = Log::start(LogConfig::default()).unwrap();
        let services = Services::new(Events::new(log));
        let shows = |series: &str| {
            watch.check(&config, &services);
            services.events.metrics.encode(ScrapeData::default()).lines().any(|line| line == series)
        };
        let expiry = |end: u64| format!("ekiden_tls_certificate_expiry_timestamp_seconds{{listener=\"http-0\"}} {end}");
        assert!(shows(&expiry(2_111_301_781)));
        // Changes are noticed at most once a second.
        replace(WRONG);
        wait_until("a rejected certificate", || {
            shows("ekiden_tls_certificate_reloads_total{listener=\"http-0\",result=\"rejected\"} 1")
        });
        assert!(shows(&expiry(2_111_301_781)));
        replace(LATER);
        wait_until("the new certificate", || shows(&expiry(2_426_661_781)));
        fs::remove_dir_all(folder).unwrap();
    }
}
