//! One connection to etcd: reads all entries, then follows changes; writes the entry of this relay under a lease, and
//! again when it disappears or becomes old.
//!
//! Reading continues where writing fails: a full etcd, or read-only access, still yields the members.

use std::time::{Duration, Instant};

use etcd_client::{EventType, LeaseKeepAliveStream, LeaseKeeper, PutOptions, WatchOptions, WatchResponse, WatchStream};
use tokio::time::sleep_until;

use super::EtcdErrorMessage;
use super::author::EntryWriter;
use super::directory::{FleetShared, Membership};
use super::etcd::{EtcdConnection, EtcdError, with_timeout};
use super::listing::{entry_key, parse_entry_key, read_all};
use crate::config::FleetConfig;

/// Interval of checks for measurements worth publishing.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The pause after etcd has refused to be written to, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A connection that stands, and has told everything.
pub struct EtcdSession<'a> {
    shared: &'a FleetShared,
    fleet: &'a FleetConfig,
    connection: EtcdConnection,
    watch: WatchStream,
    /// The newest revision of any response; watch messages may be older.
    revision: i64,
    lease: Option<EtcdLease>,
    /// When to write the entry; `None` while it is current.
    write_at: Option<Instant>,
    /// When something has to be heard from etcd again.
    keep_alive_at: Instant,
    /// When to recheck entries that were rejected because of a clock.
    recheck_at: Instant,
    published: Membership,
    write_retry_delay: Duration,
    last_rejection: Option<EtcdErrorMessage>,
}

/// The lease of the entry.
struct EtcdLease {
    id: i64,
    keeper: LeaseKeeper,
    responses: LeaseKeepAliveStream,
}

impl<'a> EtcdSession<'a> {
    /// Connects, reads everything, and watches from there.
    pub async fn open(inner: &'a FleetShared, fleet: &'a FleetConfig, url: &str) -> Result<Self, EtcdErrorMessage> {
        let mut connection = EtcdConnection::open(fleet, url).await?;
        let revision = read_all(&mut connection, inner, fleet).await?;
        inner.synced.send_replace(true);
        inner.wait_applied().await;
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1).with_fragment();
        let watch = with_timeout(connection.watch.watch(fleet.prefix.as_str(), Some(options))).await?;
        let (now, request) = (Instant::now(), *inner.target.borrow());
        Ok(Self {
            shared: inner,
            fleet,
            connection,
            watch,
            revision,
            lease: None,
            write_at: (fleet.certificate.is_some() && request > Membership::Observe).then_some(now),
            keep_alive_at: now + fleet.lease / 3,
            recheck_at: now + fleet.publish_interval,
            published: request.min(Membership::Serve),
            write_retry_delay: RETRY_DELAYS.0,
            last_rejection: None,
        })
    }

    /// Goes on until etcd does not; returns why.
    pub async fn run(mut self, author: &mut EntryWriter) -> EtcdErrorMessage {
        loop {
            if let Err(failure) = self.step(author).await {
                return failure.into_message();
            }
        }
    }

    async fn step(&mut self, author: &mut EntryWriter) -> Result<(), EtcdError> {
        let mut wishes = self.shared.target.subscribe();
        let request = *wishes.borrow_and_update();
        if request == Membership::Stop {
            // A relay that has left announced it before. Otherwise another process of this relay may own the entry by
            // now.
            return std::future::pending().await;
        }
        if request > self.published && self.write_at.is_none() && self.fleet.certificate.is_some() {
            self.write_at = Some(Instant::now());
        }
        let now = Instant::now();
        if self.write_at.is_some_and(|due| due <= now) {
            return self.write(author, request).await;
        }
        if self.keep_alive_at <= now {
            return self.keep_alive().await;
        }
        if self.recheck_at <= now {
            return self.recheck().await;
        }
        if self.write_at.is_none()
            && self.lease.is_some()
            && author.has_changes(self.shared, self.fleet.publish_interval)
        {
            return self.write(author, request).await;
        }
        let next =
            self.write_at.map_or(self.keep_alive_at, |due| due.min(self.keep_alive_at)).min(now + CHECK_INTERVAL);
        tokio::select! {
            message = self.watch.message() => self.on_watch(message)?,
            _ = wishes.changed() => {}
            () = sleep_until(next.into()) => {}
        }
        Ok(())
    }

    /// Processes a watch message.
    fn on_watch(&mut self, message: Result<Option<WatchResponse>, etcd_client::Error>) -> Result<(), EtcdError> {
        let away = |why: &str| Err(EtcdError::Unavailable(EtcdErrorMessage(why.to_owned())));
        let Some(message) = message.map_err(super::etcd::classify_error)? else {
            return away("etcd has closed the watch");
        };
        if message.compact_revision() > 0 {
            return away("etcd has compacted the changes since the last read: all entries are read again");
        }
        if message.canceled() {
            return away(&format!("etcd has ended the watch: {}", message.cancel_reason()));
        }
        let mut changed = false;
        for event in message.events() {
            let Some(kv) = event.kv() else { continue };
            let Some(relay) = parse_entry_key(&self.fleet.prefix, kv.key()) else { continue };
            let known = match event.event_type() {
                EventType::Put => {
                    let (heard, known) = self.shared.on_entry(&relay, kv.value());
                    changed |= heard;
                    known && self.shared.is_newest(&relay, kv.value())
                }
                EventType::Delete => {
                    changed |= self.shared.on_entry_removed(&relay);
                    false
                }
            };
            if !known && self.is_own_key(&relay) && (Membership::Serve..Membership::Leave).contains(&self.published) {
                // The entry was removed or replaced by another writer.
                self.write_at.get_or_insert(Instant::now() + self.fleet.publish_interval.min(RETRY_DELAYS.1));
            }
        }
        if changed {
            self.shared.notify_changed();
        }
        Ok(())
    }

    /// Reads entries again that were rejected because of a clock: no writer updates them merely because time passes.
    async fn recheck(&mut self) -> Result<(), EtcdError> {
        self.recheck_at = Instant::now() + self.fleet.publish_interval.max(CHECK_INTERVAL);
        let mut changed = false;
        for relay in self.shared.take_rechecks() {
            let answer = with_timeout(self.connection.kv.get(entry_key(&self.fleet.prefix, &relay), None)).await?;
            changed |= answer.kvs().iter().any(|kv| self.shared.on_entry(&relay, kv.value()).0);
        }
        if changed {
            self.shared.notify_changed();
        }
        Ok(())
    }

    /// Writes or removes the entry.
    async fn write(&mut self, author: &mut EntryWriter, request: Membership) -> Result<(), EtcdError> {
        let written = if request >= Membership::Leave { self.revoke().await } else { self.put(author, request).await };
        match written {
            Ok(()) => {
                (self.write_at, self.write_retry_delay, self.last_rejection, self.published) =
                    (None, RETRY_DELAYS.0, None, request);
                self.shared.confirmed.send_replace(request);
                Ok(())
            }
            Err(EtcdError::Rejected(trouble)) => {
                self.write_at = Some(Instant::now() + self.write_retry_delay);
                self.write_retry_delay = (self.write_retry_delay * 2).min(RETRY_DELAYS.1);
                if self.last_rejection.as_ref() != Some(&trouble) {
                    self.shared.warn(format!("fleet: etcd does not take our entry: {trouble}"));
                }
                self.last_rejection = Some(trouble);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn put(&mut self, author: &mut EntryWriter, request: Membership) -> Result<(), EtcdError> {
        let lease = match &self.lease {
            Some(lease) => lease.id,
            None => self.grant().await?,
        };
        let Some(entry) = author.next_entry(self.fleet, self.shared, request) else { return Ok(()) };
        let key = entry_key(&self.fleet.prefix, &self.fleet.own_key.public_key());
        let options = PutOptions::new().with_lease(lease);
        let answer = with_timeout(self.connection.kv.put(key, entry, Some(options))).await?;
        self.shared.etcd().written += 1;
        self.check_revision(answer.header().map(etcd_client::ResponseHeader::revision))
    }

    async fn grant(&mut self) -> Result<i64, EtcdError> {
        let span = i64::try_from(self.fleet.lease.as_secs()).unwrap_or(i64::MAX);
        let id = with_timeout(self.connection.client.lease_grant(span, None)).await?.id();
        let (keeper, answers) = with_timeout(self.connection.client.lease_keep_alive(id)).await?;
        self.lease = Some(EtcdLease { id, keeper, responses: answers });
        Ok(id)
    }

    async fn revoke(&mut self) -> Result<(), EtcdError> {
        let Some(EtcdLease { id, .. }) = self.lease.take() else { return Ok(()) };
        with_timeout(self.connection.client.lease_revoke(id)).await.map(|_| ())
    }

    /// Keeps the lease alive, and checks that etcd answers.
    async fn keep_alive(&mut self) -> Result<(), EtcdError> {
        self.keep_alive_at = Instant::now() + self.fleet.lease / 3;
        let revision = match &mut self.lease {
            Some(EtcdLease { keeper, responses: answers, .. }) => {
                with_timeout(keeper.keep_alive()).await?;
                let answer = with_timeout(answers.message()).await?;
                let Some(answer) = answer.filter(|answer| answer.ttl() > 0) else {
                    // The lease expired while etcd or this process was suspended.
                    self.lease = None;
                    self.write_at = Some(Instant::now());
                    return Ok(());
                };
                answer.header().map(etcd_client::ResponseHeader::revision)
            }
            None => {
                let options = etcd_client::GetOptions::new().with_count_only();
                let answer = with_timeout(self.connection.kv.get(self.fleet.prefix.as_str(), Some(options))).await?;
                answer.header().map(etcd_client::ResponseHeader::revision)
            }
        };
        self.check_revision(revision)
    }

    /// Checks the revision of etcd; it only decreases after a restore from an old copy.
    fn check_revision(&mut self, revision: Option<i64>) -> Result<(), EtcdError> {
        let Some(revision) = revision else { return Ok(()) };
        if revision < self.revision {
            let why = format!("it went back from revision {} to {revision}: everything is read again", self.revision);
            return Err(EtcdError::Unavailable(EtcdErrorMessage(why)));
        }
        self.revision = revision;
        Ok(())
    }

    fn is_own_key(&self, relay: &ekiden_proto::key::PublicKey) -> bool {
        self.fleet.certificate.as_ref().is_some_and(|issued| issued.certificate.key == *relay)
    }
}
