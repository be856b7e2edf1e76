//! One connection to etcd: what stands there is read, then what changes; our own entry is written under a lease, and
//! written again when it is gone or has become old.
//!
//! Reading goes on where writing does not: a full etcd, or one that lets us only read, still tells who is there.

use std::time::{Duration, Instant};

use etcd_client::{EventType, LeaseKeepAliveStream, LeaseKeeper, PutOptions, WatchOptions, WatchResponse, WatchStream};
use tokio::time::sleep_until;

use super::Trouble;
use super::author::Author;
use super::directory::{Inner, Wish};
use super::etcd::{Connection, Failure, answered};
use super::listing::{key_of, read_all, relay_at};
use crate::config::Fleet;

/// How often it is looked whether measurements are worth telling.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after etcd has refused to be written to, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A connection that stands, and has told everything.
pub struct Session<'a> {
    inner: &'a Inner,
    fleet: &'a Fleet,
    connection: Connection,
    watch: WatchStream,
    /// The newest revision that an answer was of; what the watch says may be older.
    revision: i64,
    lease: Option<Lease>,
    /// When our entry is to be written; none when it stands.
    due: Option<Instant>,
    /// When something has to be heard from etcd again.
    beat: Instant,
    /// When those are looked at again who are not believed because of a clock.
    again: Instant,
    /// What we are there.
    told: Wish,
    pause: Duration,
    refusal: Option<Trouble>,
}

/// What our entry lives by.
struct Lease {
    id: i64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl<'a> Session<'a> {
    /// Connects, reads everything, and watches from there.
    pub async fn open(inner: &'a Inner, fleet: &'a Fleet, url: &str) -> Result<Self, Trouble> {
        let mut connection = Connection::open(fleet, url).await?;
        let revision = read_all(&mut connection, inner, fleet).await?;
        inner.read.send_replace(true);
        inner.is_served().await;
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1).with_fragment();
        let watch = answered(connection.watch.watch(fleet.prefix.as_str(), Some(options))).await?;
        let (now, wish) = (Instant::now(), *inner.wish.borrow());
        Ok(Self {
            inner,
            fleet,
            connection,
            watch,
            revision,
            lease: None,
            due: (fleet.certificate.is_some() && wish > Wish::Hear).then_some(now),
            beat: now + fleet.lease / 3,
            again: now + fleet.every,
            told: wish.min(Wish::Serve),
            pause: RETRY.0,
            refusal: None,
        })
    }

    /// Goes on until etcd does not; returns why.
    pub async fn run(mut self, author: &mut Author) -> Trouble {
        loop {
            if let Err(failure) = self.step(author).await {
                return failure.trouble();
            }
        }
    }

    async fn step(&mut self, author: &mut Author) -> Result<(), Failure> {
        let mut wishes = self.inner.wish.subscribe();
        let wish = *wishes.borrow_and_update();
        if wish == Wish::End {
            // Whoever has left has said so before. Else another process of this relay may have our entry by now.
            return std::future::pending().await;
        }
        if wish > self.told && self.due.is_none() && self.fleet.certificate.is_some() {
            self.due = Some(Instant::now());
        }
        let now = Instant::now();
        if self.due.is_some_and(|due| due <= now) {
            return self.write(author, wish).await;
        }
        if self.beat <= now {
            return self.keep_alive().await;
        }
        if self.again <= now {
            return self.look_again().await;
        }
        if self.due.is_none() && self.lease.is_some() && author.has_news(self.inner, self.fleet.every) {
            return self.write(author, wish).await;
        }
        let next = self.due.map_or(self.beat, |due| due.min(self.beat)).min(now + LOOK);
        tokio::select! {
            message = self.watch.message() => self.hear(message)?,
            _ = wishes.changed() => {}
            () = sleep_until(next.into()) => {}
        }
        Ok(())
    }

    /// Takes what has changed.
    fn hear(&mut self, message: Result<Option<WatchResponse>, etcd_client::Error>) -> Result<(), Failure> {
        let away = |why: &str| Err(Failure::Away(Trouble(why.to_owned())));
        let Some(message) = message.map_err(super::etcd::failure)? else { return away("etcd has closed the watch") };
        if message.compact_revision() > 0 {
            return away("etcd has forgotten what changed meanwhile (compaction): everything is read again");
        }
        if message.canceled() {
            return away(&format!("etcd has ended the watch: {}", message.cancel_reason()));
        }
        let mut changed = false;
        for event in message.events() {
            let Some(kv) = event.kv() else { continue };
            let Some(relay) = relay_at(&self.fleet.prefix, kv.key()) else { continue };
            let known = match event.event_type() {
                EventType::Put => {
                    let (heard, known) = self.inner.hear(&relay, kv.value());
                    changed |= heard;
                    known && self.inner.is_newest(&relay, kv.value())
                }
                EventType::Delete => {
                    changed |= self.inner.hear_nothing(&relay);
                    false
                }
            };
            if !known && self.is_us(&relay) && (Wish::Serve..Wish::Leave).contains(&self.told) {
                // Somebody has taken our entry away, or put another in its place.
                self.due.get_or_insert(Instant::now() + self.fleet.every.min(RETRY.1));
            }
        }
        if changed {
            self.inner.has_changed();
        }
        Ok(())
    }

    /// Reads again what was not believed because of a clock: nobody writes only because time goes on.
    async fn look_again(&mut self) -> Result<(), Failure> {
        self.again = Instant::now() + self.fleet.every.max(LOOK);
        let mut changed = false;
        for relay in self.inner.take_waiting() {
            let answer = answered(self.connection.kv.get(key_of(&self.fleet.prefix, &relay), None)).await?;
            changed |= answer.kvs().iter().any(|kv| self.inner.hear(&relay, kv.value()).0);
        }
        if changed {
            self.inner.has_changed();
        }
        Ok(())
    }

    /// Writes our entry, or takes it away.
    async fn write(&mut self, author: &mut Author, wish: Wish) -> Result<(), Failure> {
        let written = if wish >= Wish::Leave { self.revoke().await } else { self.put(author, wish).await };
        match written {
            Ok(()) => {
                (self.due, self.pause, self.refusal, self.told) = (None, RETRY.0, None, wish);
                self.inner.done.send_replace(wish);
                Ok(())
            }
            Err(Failure::Refuses(trouble)) => {
                self.due = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(RETRY.1);
                if self.refusal.as_ref() != Some(&trouble) {
                    self.inner.warn(format!("fleet: etcd does not take our entry: {trouble}"));
                }
                self.refusal = Some(trouble);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn put(&mut self, author: &mut Author, wish: Wish) -> Result<(), Failure> {
        let lease = match &self.lease {
            Some(lease) => lease.id,
            None => self.grant().await?,
        };
        let Some(entry) = author.write(self.fleet, self.inner, wish) else { return Ok(()) };
        let key = key_of(&self.fleet.prefix, &self.fleet.own.public());
        let options = PutOptions::new().with_lease(lease);
        let answer = answered(self.connection.kv.put(key, entry, Some(options))).await?;
        self.inner.etcd().written += 1;
        self.is_at(answer.header().map(etcd_client::ResponseHeader::revision))
    }

    async fn grant(&mut self) -> Result<i64, Failure> {
        let span = i64::try_from(self.fleet.lease.as_secs()).unwrap_or(i64::MAX);
        let id = answered(self.connection.client.lease_grant(span, None)).await?.id();
        let (keeper, answers) = answered(self.connection.client.lease_keep_alive(id)).await?;
        self.lease = Some(Lease { id, keeper, answers });
        Ok(id)
    }

    async fn revoke(&mut self) -> Result<(), Failure> {
        let Some(Lease { id, .. }) = self.lease.take() else { return Ok(()) };
        answered(self.connection.client.lease_revoke(id)).await.map(|_| ())
    }

    /// Keeps our entry where it is, and shows that etcd still answers.
    async fn keep_alive(&mut self) -> Result<(), Failure> {
        self.beat = Instant::now() + self.fleet.lease / 3;
        let revision = match &mut self.lease {
            Some(Lease { keeper, answers, .. }) => {
                answered(keeper.keep_alive()).await?;
                let answer = answered(answers.message()).await?;
                let Some(answer) = answer.filter(|answer| answer.ttl() > 0) else {
                    // It has run out while etcd, or we, slept.
                    self.lease = None;
                    self.due = Some(Instant::now());
                    return Ok(());
                };
                answer.header().map(etcd_client::ResponseHeader::revision)
            }
            None => {
                let options = etcd_client::GetOptions::new().with_count_only();
                let answer = answered(self.connection.kv.get(self.fleet.prefix.as_str(), Some(options))).await?;
                answer.header().map(etcd_client::ResponseHeader::revision)
            }
        };
        self.is_at(revision)
    }

    /// Notes how far etcd is; it never goes back, unless it was restored from an old copy.
    fn is_at(&mut self, revision: Option<i64>) -> Result<(), Failure> {
        let Some(revision) = revision else { return Ok(()) };
        if revision < self.revision {
            let why = format!("it went back from revision {} to {revision}: everything is read again", self.revision);
            return Err(Failure::Away(Trouble(why)));
        }
        self.revision = revision;
        Ok(())
    }

    fn is_us(&self, relay: &ekiden_proto::key::PublicKey) -> bool {
        self.fleet.certificate.as_ref().is_some_and(|issued| issued.certificate.key == *relay)
    }
}
