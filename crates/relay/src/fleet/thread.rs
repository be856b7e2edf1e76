//! The etcd thread: connects, follows changes, and reconnects with growing delays.

use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ekiden_proto::event::Event;
use ekiden_proto::fleet::{Certificate, EntryError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::author::EntryWriter;
use super::directory::{APPLY_TIMEOUT, FleetShared, LEAVE_TIMEOUT, Membership, unix_seconds};
use super::session::EtcdSession;
use super::state;
use crate::config::FleetConfig;

/// The first delay before a reconnection, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Interval of checks for missing members and for changes to save.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread of the fleet.
///
/// # Errors
/// The thread or its runtime cannot be created.
pub fn start(inner: Arc<FleetShared>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("fleet".to_owned()).spawn(move || runtime.block_on(run(&inner)))
}

async fn run(inner: &FleetShared) {
    let mut settings = inner.settings.subscribe();
    let mut request = inner.target.subscribe();
    loop {
        let fleet = settings.borrow_and_update().clone();
        let mut follower = fleet.as_deref().map(|fleet| EtcdFollower::new(inner, fleet));
        tokio::select! {
            () = run_fleet(follower.as_mut()) => {}
            changed = settings.changed() => if changed.is_err() { return },
            _ = request.wait_for(|request| *request == Membership::Stop) => break,
        }
        if let Some(follower) = follower {
            follower.on_new_settings(&mut settings).await;
        }
    }
    let fleet = settings.borrow().clone();
    if let Some((fleet, path)) = fleet.as_ref().and_then(|fleet| Some((fleet, fleet.state_file.as_ref()?))) {
        // The error is ignored: the process is ending.
        let _ = save(inner, fleet, path);
    }
    inner.confirmed.send_replace(Membership::Stop);
}

async fn run_fleet(follower: Option<&mut EtcdFollower<'_>>) {
    let Some(follower) = follower else { return std::future::pending().await };
    let (inner, fleet) = (follower.shared, follower.fleet);
    tokio::select! {
        () = follower.run() => {}
        () = maintain(inner, fleet) => {}
    }
}

/// Follows the etcd of one fleet.
struct EtcdFollower<'a> {
    shared: &'a FleetShared,
    fleet: &'a FleetConfig,
    writer: EntryWriter,
    /// The session with etcd, while there is one.
    session: Option<EtcdSession<'a>>,
}

impl<'a> EtcdFollower<'a> {
    fn new(shared: &'a FleetShared, fleet: &'a FleetConfig) -> Self {
        Self { shared, fleet, writer: EntryWriter::new(fleet), session: None }
    }

    /// Follows etcd and reconnects after each failure.
    async fn run(&mut self) {
        let mut failures = 0;
        for url in self.fleet.etcd.iter().cycle() {
            let mut connected_at = None;
            let message = match EtcdSession::open(self.shared, self.fleet, url).await {
                Ok(session) => {
                    self.shared.on_etcd_reachable(url);
                    connected_at = Some(Instant::now());
                    self.session.insert(session).run(&mut self.writer).await
                }
                Err(message) => message,
            };
            self.session = None;
            // A connection that lasted for some time does not count as a failure.
            failures =
                if connected_at.is_some_and(|since| since.elapsed() > CHECK_INTERVAL) { 0 } else { failures + 1 };
            self.shared.on_etcd_unreachable(url, message.0);
            sleep(retry_delay(failures, self.fleet.etcd.len())).await;
        }
    }

    /// Removes the entry of this relay if the new settings do not keep it.
    async fn on_new_settings(mut self, settings: &mut watch::Receiver<Option<Arc<FleetConfig>>>) {
        let fleet = self.fleet;
        let Some(session) = &mut self.session else { return };
        let keeps_entry = |new: &Option<Arc<FleetConfig>>| new.as_ref().is_some_and(|new| fleet.has_same_entry(new));
        let mut in_force = self.shared.in_force.subscribe();
        // The entry must stay if the reload is rejected, which restores the settings.
        let is_leaving = tokio::select! {
            _ = settings.wait_for(keeps_entry) => false,
            _ = in_force.wait_for(|new| !keeps_entry(new)) => true,
            () = sleep(APPLY_TIMEOUT) => true,
        };
        if is_leaving {
            let _ = timeout(LEAVE_TIMEOUT, session.leave(&mut self.writer)).await;
        }
    }
}

/// Returns the delay after `failures` failures. The delay grows after each round of all servers, and is random, so that
/// relays do not reconnect at the same time.
fn retry_delay(failures: u32, servers: usize) -> Duration {
    let rounds = failures / u32::try_from(servers).unwrap_or(u32::MAX);
    let (first, longest) = RETRY_DELAYS;
    let span = first.saturating_mul(1 << rounds.min(10)).min(longest);
    let random = std::collections::hash_map::RandomState::new().hash_one(failures) % 256;
    span - span / 4 * u32::try_from(random).unwrap_or(0) / 256
}

/// Removes members that were missing for too long, and saves the others.
async fn maintain(inner: &FleetShared, fleet: &FleetConfig) {
    let (mut saved_version, mut last_failure, mut has_warned) = (None, None, false);
    loop {
        forget_missing(inner);
        has_warned = warn_of_invalid_certificate(inner, fleet, has_warned);
        let version = inner.etcd().version;
        if let Some(path) = fleet.state_file.as_ref().filter(|_| saved_version != Some(version)) {
            let failure = save(inner, fleet, path).err().map(|error| error.to_string());
            saved_version = if failure.is_none() { Some(version) } else { saved_version };
            if let Some(error) = failure.as_ref().filter(|_| failure != last_failure) {
                let path = path.display();
                inner.warn(format!(
                    "fleet: cannot write the last known state to {path}: {error}; the relay continues without the file"
                ));
            }
            last_failure = failure;
        }
        sleep(CHECK_INTERVAL).await;
    }
}

fn save(inner: &FleetShared, fleet: &FleetConfig, path: &Path) -> io::Result<()> {
    let text = inner.roster().as_ref().map(|roster| state::serialize(&fleet.key, roster, inner.now(), unix_seconds()));
    text.map_or(Ok(()), |text| state::write(path, &text))
}

fn forget_missing(inner: &FleetShared) {
    let removed =
        inner.roster().as_mut().map(|roster| roster.remove_expired(inner.now(), unix_seconds())).unwrap_or_default();
    for (member, reason) in &removed {
        let Certificate { name, key, .. } = &member.entry.signed_certificate.certificate;
        if reason.is_some() {
            inner.schedule_recheck(*key);
        }
        let reason = reason
            .map_or_else(|| "missing in etcd for longer than keep in [fleet]".to_owned(), |reason| reason.to_string());
        inner.warn(format!("fleet: {name} is no longer known: {reason}"));
    }
    if !removed.is_empty() {
        inner.notify_changed();
    }
}

/// Warns once if this relay's own certificate is not valid at this time: its peers will reject it.
fn warn_of_invalid_certificate(inner: &FleetShared, fleet: &FleetConfig, has_warned: bool) -> bool {
    let valid = fleet.certificate.as_ref().map(|issued| issued.certificate.check_validity(unix_seconds()));
    let Some(Err(error)) = valid else { return false };
    if !has_warned {
        let hint = match error {
            EntryError::NotYetValid(_) => "set the clock",
            _ => "sign the certificate again and reload (SIGHUP)",
        };
        inner.warn(format!("fleet: certificate rejected by peers: {error}: {hint}"));
    }
    true
}

impl FleetShared {
    fn on_etcd_reachable(&self, url: &str) {
        let down = self.etcd().mark_up(url);
        if let Some(duration) = down {
            self.emit(&Event::EtcdReachable { server: url.to_owned(), duration });
        }
    }

    fn on_etcd_unreachable(&self, url: &str, detail: String) {
        if self.etcd().mark_down(&detail) {
            let known = self.roster().as_ref().map_or(0, |roster| roster.members().count());
            self.emit(&Event::EtcdUnreachable { server: url.to_owned(), detail, known });
        }
    }
}
