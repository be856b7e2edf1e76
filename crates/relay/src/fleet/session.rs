//! One connection to etcd: reads all entries, then follows changes. Writes the entry of this relay under a lease, and
//! writes the entry again when it disappears or becomes old.
//!
//! Reading continues when writing fails: the members are known even with a full etcd or read-only access.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::EtcdErrorMessage;
use super::author::EntryWriter;
use super::directory::{FleetShared, Membership};
use super::etcd::{EtcdClient, EtcdError, EventKind, REQUEST_TIMEOUT, WatchResponse, WatchStream};
use super::listing::{entry_key, parse_entry_key, range_end, read_all};
use crate::config::FleetConfig;

/// Interval of checks for measurements worth publishing.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The delay after the first rejected write, and the longest delay.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// An established connection over which all entries have been read.
pub struct EtcdSession<'a> {
    shared: &'a FleetShared,
    fleet: &'a FleetConfig,
    client: EtcdClient<'a>,
    watch: WatchStream,
    /// The newest revision of any response; watch messages may be older.
    revision: i64,
    /// The identifier of the lease of the entry.
    lease: Option<i64>,
    /// When to write the entry; `None` while it is current.
    write_at: Option<Instant>,
    /// When to renew the lease or, without a lease, to read the revision.
    keep_alive_at: Instant,
    /// When to check that etcd still answers.
    check_alive_at: Instant,
    /// When to recheck entries that were rejected for clock skew.
    recheck_at: Instant,
    published: Membership,
    write_retry_delay: Duration,
    last_rejection: Option<EtcdErrorMessage>,
}

impl<'a> EtcdSession<'a> {
    /// Connects, reads all entries, and starts a watch at the next revision.
    pub async fn open(inner: &'a FleetShared, fleet: &'a FleetConfig, url: &str) -> Result<Self, EtcdErrorMessage> {
        let mut client = EtcdClient::open(fleet, url).await?;
        let revision = read_all(&mut client, inner, fleet).await?;
        inner.synced.send_replace(true);
        inner.wait_applied().await;
        let watch = client.watch(&fleet.prefix, &range_end(&fleet.prefix), revision + 1).await?;
        let (now, request) = (Instant::now(), *inner.target.borrow());
        Ok(Self {
            shared: inner,
            fleet,
            client,
            watch,
            revision,
            lease: None,
            write_at: (fleet.certificate.is_some() && request > Membership::Observe).then_some(now),
            keep_alive_at: now + fleet.lease / 3,
            check_alive_at: now + REQUEST_TIMEOUT,
            recheck_at: now + fleet.publish_interval,
            published: request.min(Membership::Serve),
            write_retry_delay: RETRY_DELAYS.0,
            last_rejection: None,
        })
    }

    /// Runs until the first failure of etcd, and returns its message. After a cancellation, only `leave` may follow.
    pub async fn run(&mut self, writer: &mut EntryWriter) -> EtcdErrorMessage {
        loop {
            if let Err(failure) = self.step(writer).await {
                return failure.into_message();
            }
        }
    }

    /// Announces that this relay drains, and removes its entry: other relays keep a relay that disappears without the
    /// announcement. Failures are ignored; etcd removes the entry at the end of its lease.
    pub async fn leave(&mut self, writer: &mut EntryWriter) {
        if self.lease.is_some() {
            let _ = self.put(writer, Membership::Drain).await;
            let _ = self.revoke().await;
        }
    }

    async fn step(&mut self, writer: &mut EntryWriter) -> Result<(), EtcdError> {
        let mut target = self.shared.target.subscribe();
        let request = *target.borrow_and_update();
        if request == Membership::Stop {
            // On `Leave` the entry was already removed. Otherwise another process of this relay may own the entry now.
            return std::future::pending().await;
        }
        if request > self.published && self.write_at.is_none() && self.fleet.certificate.is_some() {
            self.write_at = Some(Instant::now());
        }
        let now = Instant::now();
        if self.write_at.is_some_and(|due| due <= now) {
            return self.write(writer, request).await;
        }
        if self.keep_alive_at <= now {
            return self.keep_alive().await;
        }
        if self.check_alive_at <= now {
            self.check_alive_at = now + REQUEST_TIMEOUT;
            return self.client.check_alive().await;
        }
        if self.recheck_at <= now {
            return self.recheck().await;
        }
        if self.write_at.is_none()
            && self.lease.is_some()
            && writer.has_changes(self.shared, self.fleet.publish_interval)
        {
            return self.write(writer, request).await;
        }
        let next = self.keep_alive_at.min(self.check_alive_at).min(now + CHECK_INTERVAL);
        let next = self.write_at.map_or(next, |due| due.min(next));
        tokio::select! {
            message = self.watch.message() => self.on_watch(&message?)?,
            _ = target.changed() => {}
            () = sleep_until(next.into()) => {}
        }
        Ok(())
    }

    /// Processes a watch message.
    fn on_watch(&mut self, message: &WatchResponse) -> Result<(), EtcdError> {
        message.check_open()?;
        let mut changed = false;
        for event in &message.events {
            let Some(kv) = &event.kv else { continue };
            let Some(relay) = parse_entry_key(&self.fleet.prefix, &kv.key) else { continue };
            let is_current = match event.kind {
                EventKind::Put => {
                    let (is_change, is_listed) = self.shared.on_entry(&relay, &kv.value);
                    changed |= is_change;
                    is_listed && self.shared.is_newest(&relay, &kv.value)
                }
                EventKind::Delete => {
                    changed |= self.shared.on_entry_removed(&relay);
                    false
                }
            };
            if !is_current
                && self.is_own_key(&relay)
                && (Membership::Serve..Membership::Leave).contains(&self.published)
            {
                // The entry was removed or replaced by another writer.
                self.write_at.get_or_insert(Instant::now() + self.fleet.publish_interval.min(RETRY_DELAYS.1));
            }
        }
        if changed {
            self.shared.notify_changed();
        }
        Ok(())
    }

    /// Reads the entries again that were rejected for clock skew, because a watch reports no change when they become
    /// valid.
    async fn recheck(&mut self) -> Result<(), EtcdError> {
        self.recheck_at = Instant::now() + self.fleet.publish_interval.max(CHECK_INTERVAL);
        let mut changed = false;
        for relay in self.shared.take_rechecks() {
            let entry = self.client.read_key(&entry_key(&self.fleet.prefix, &relay)).await?;
            changed |= entry.is_some_and(|entry| self.shared.on_entry(&relay, &entry).0);
        }
        if changed {
            self.shared.notify_changed();
        }
        Ok(())
    }

    /// Writes or removes the entry.
    async fn write(&mut self, writer: &mut EntryWriter, request: Membership) -> Result<(), EtcdError> {
        let written = if request >= Membership::Leave { self.revoke().await } else { self.put(writer, request).await };
        match written {
            Ok(()) => {
                (self.write_at, self.write_retry_delay, self.last_rejection, self.published) =
                    (None, RETRY_DELAYS.0, None, request);
                self.shared.confirmed.send_replace(request);
                Ok(())
            }
            Err(EtcdError::Rejected(message)) => {
                self.write_at = Some(Instant::now() + self.write_retry_delay);
                self.write_retry_delay = (self.write_retry_delay * 2).min(RETRY_DELAYS.1);
                if self.last_rejection.as_ref() != Some(&message) {
                    self.shared.warn(format!("fleet: etcd rejects the entry of this relay: {message}"));
                }
                self.last_rejection = Some(message);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn put(&mut self, writer: &mut EntryWriter, request: Membership) -> Result<(), EtcdError> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => self.grant().await?,
        };
        let Some(entry) = writer.next_entry(self.fleet, self.shared, request) else { return Ok(()) };
        let key = entry_key(&self.fleet.prefix, &self.fleet.own_key.public_key());
        let revision = self.client.put(&key, &entry, lease).await?;
        self.shared.etcd().written += 1;
        self.check_revision(revision)
    }

    async fn grant(&mut self) -> Result<i64, EtcdError> {
        let span = i64::try_from(self.fleet.lease.as_secs()).unwrap_or(i64::MAX);
        let id = self.client.grant_lease(span).await?;
        self.lease = Some(id);
        Ok(id)
    }

    async fn revoke(&mut self) -> Result<(), EtcdError> {
        let Some(id) = self.lease.take() else { return Ok(()) };
        self.client.revoke_lease(id).await
    }

    /// Keeps the lease alive, and checks that etcd answers.
    async fn keep_alive(&mut self) -> Result<(), EtcdError> {
        self.keep_alive_at = Instant::now() + self.fleet.lease / 3;
        let Some(id) = self.lease else {
            let revision = self.client.read_revision().await?;
            return self.check_revision(revision);
        };
        let renewed = self.client.keep_lease_alive(id).await?;
        if renewed.ttl <= 0 {
            // The lease expired while etcd or this process was suspended.
            self.lease = None;
            self.write_at = Some(Instant::now());
            return Ok(());
        }
        self.check_revision(renewed.header.revision)
    }

    /// Checks the revision of etcd, which decreases only after a restore from an old copy.
    fn check_revision(&mut self, revision: i64) -> Result<(), EtcdError> {
        if revision < self.revision {
            let why = format!(
                "the revision of etcd decreased from {} to {revision}: all entries are read again",
                self.revision
            );
            return Err(EtcdError::Unavailable(EtcdErrorMessage(why)));
        }
        self.revision = revision;
        Ok(())
    }

    fn is_own_key(&self, relay: &ekiden_proto::key::PublicKey) -> bool {
        self.fleet.certificate.as_ref().is_some_and(|issued| issued.certificate.key == *relay)
    }
}
