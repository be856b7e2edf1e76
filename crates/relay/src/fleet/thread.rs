//! The thread that talks to etcd: it connects, follows, and when that ends tries again in growing pauses.

use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ekiden_proto::event::Event;
use ekiden_proto::fleet::{Certificate, Refused};
use tokio::time::sleep;

use super::author::Author;
use super::directory::{Inner, Wish, unix};
use super::session::Session;
use super::state;
use crate::config::Fleet;

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// How often it is looked who has been away for too long, and whether there is something to keep.
const LOOK: Duration = Duration::from_secs(1);

/// Starts it.
///
/// # Errors
/// The kernel's.
pub fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("fleet".to_owned()).spawn(move || runtime.block_on(run(&inner)))
}

async fn run(inner: &Inner) {
    let mut settings = inner.settings.subscribe();
    let mut wish = inner.wish.subscribe();
    loop {
        let fleet = settings.borrow_and_update().clone();
        tokio::select! {
            () = belong(inner, fleet) => {}
            changed = settings.changed() => if changed.is_err() { return },
            _ = wish.wait_for(|wish| *wish == Wish::End) => break,
        }
    }
    let fleet = settings.borrow().clone();
    if let Some((fleet, path)) = fleet.as_ref().and_then(|fleet| Some((fleet, fleet.state.as_ref()?))) {
        // Whoever could be told has gone already.
        let _ = save(inner, fleet, path);
    }
    inner.done.send_replace(Wish::End);
}

async fn belong(inner: &Inner, fleet: Option<Arc<Fleet>>) {
    let Some(fleet) = fleet else { return std::future::pending().await };
    tokio::select! {
        () = follow(inner, &fleet) => {}
        () = keep(inner, &fleet) => {}
    }
}

/// Follows etcd for as long as it is there, again and again.
async fn follow(inner: &Inner, fleet: &Fleet) {
    let mut author = Author::new(fleet);
    let mut failures = 0;
    for url in fleet.etcd.iter().cycle() {
        let mut stood = None;
        let trouble = match Session::open(inner, fleet, url).await {
            Ok(session) => {
                inner.is_up(url);
                stood = Some(Instant::now());
                session.run(&mut author).await
            }
            Err(trouble) => trouble,
        };
        // One that stood for some time was no failure to connect.
        failures = if stood.is_some_and(|since| since.elapsed() > LOOK) { 0 } else { failures + 1 };
        inner.is_down(url, trouble.0);
        sleep(pause(failures, fleet.etcd.len())).await;
    }
}

/// The pause after so many failures: every server is asked once before they grow. No two relays come back at once.
fn pause(failures: u32, servers: usize) -> Duration {
    let rounds = failures / u32::try_from(servers).unwrap_or(u32::MAX);
    let (first, longest) = PAUSES;
    let span = first.saturating_mul(1 << rounds.min(10)).min(longest);
    let dice = std::collections::hash_map::RandomState::new().hash_one(failures) % 256;
    span - span / 4 * u32::try_from(dice).unwrap_or(0) / 256
}

/// Forgets who has been away for too long, and keeps in the file what is known.
async fn keep(inner: &Inner, fleet: &Fleet) {
    let (mut kept, mut trouble, mut ended) = (None, None, false);
    loop {
        forget(inner);
        ended = warn_of_own_end(inner, fleet, ended);
        let version = inner.etcd().version;
        if let Some(path) = fleet.state.as_ref().filter(|_| kept != Some(version)) {
            let failed = save(inner, fleet, path).err().map(|error| error.to_string());
            kept = if failed.is_none() { Some(version) } else { kept };
            if let Some(why) = failed.as_ref().filter(|_| failed != trouble) {
                let path = path.display();
                inner.warn(format!("fleet: cannot keep the last known state in {path}: {why}; it goes on without"));
            }
            trouble = failed;
        }
        sleep(LOOK).await;
    }
}

fn save(inner: &Inner, fleet: &Fleet, path: &Path) -> io::Result<()> {
    let text = inner.roster().as_ref().map(|roster| state::text(&fleet.key, roster, inner.now(), unix()));
    text.map_or(Ok(()), |text| state::write(path, &text))
}

fn forget(inner: &Inner) {
    let gone = inner.roster().as_mut().map(|roster| roster.forget(inner.now(), unix())).unwrap_or_default();
    for (member, why) in &gone {
        let Certificate { name, key, .. } = &member.entry.issued.certificate;
        if why.is_some() {
            inner.look_again_at(*key);
        }
        let why = why.map_or_else(|| "it has not been listed for too long".to_owned(), |why| why.to_string());
        inner.warn(format!("fleet: {name} is no longer known: {why}"));
    }
    if !gone.is_empty() {
        inner.has_changed();
    }
}

/// Says once that our own certificate has ended, or is not valid yet: nobody believes us then.
fn warn_of_own_end(inner: &Inner, fleet: &Fleet, told: bool) -> bool {
    let valid = fleet.certificate.as_ref().map(|issued| issued.certificate.is_valid(unix()));
    let Some(Err(why)) = valid else { return false };
    if !told {
        let hint = match why {
            Refused::Early(_) => "set the clock",
            _ => "have it signed again and reload (SIGHUP)",
        };
        inner.warn(format!("fleet: nobody believes this relay: {why}: {hint}"));
    }
    true
}

impl Inner {
    fn is_up(&self, url: &str) {
        let down = self.etcd().is_up(url);
        if let Some(duration) = down {
            self.tell(&Event::EtcdUp { server: url.to_owned(), duration });
        }
    }

    fn is_down(&self, url: &str, detail: String) {
        if self.etcd().is_down(&detail) {
            let known = self.roster().as_ref().map_or(0, |roster| roster.members().count());
            self.tell(&Event::EtcdDown { server: url.to_owned(), detail, known });
        }
    }
}
