//! The thread that keeps the pools filled: it dials and shakes hands, so that no session's thread has to, and closes what
//! has become too old or has died.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ekiden_proto::cause::Cause;
use tokio::task::LocalSet;
use tokio::time::sleep_until;

use super::queue::{Place, Queue};
use super::{Inner, Waiting};
use crate::config::Config;
use crate::dial::{DialError, Names, section};

/// How often it looks which connections have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Starts it; it ends when the pools are closed.
///
/// # Errors
/// The kernel's.
pub fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("keeper".to_owned());
    thread.spawn(move || LocalSet::new().block_on(&runtime, Keeper::new(inner).run()))
}

struct Keeper {
    inner: Arc<Inner>,
    /// The configuration in force, and its resolver.
    served: Option<(Arc<Config>, Rc<Names>)>,
    look: Instant,
}

impl Keeper {
    fn new(inner: Arc<Inner>) -> Self {
        Self { inner, served: None, look: Instant::now() }
    }

    async fn run(mut self) {
        while !self.inner.has_ended() {
            let next = self.round(Instant::now());
            tokio::select! {
                () = self.inner.woken() => {}
                () = sleep_until(next.into()) => {}
            }
        }
    }

    /// Does what is to be done, and says when there is more.
    fn round(&mut self, now: Instant) -> Instant {
        let served = self.inner.served();
        let looks = now >= self.look;
        if looks {
            self.look = now + LOOK;
        }
        let mut next = self.look;
        for queue in served.queues() {
            if looks {
                queue.weed(now);
            }
            for place in queue.places(now) {
                if let Some((config, names)) = self.follow(served.config.as_ref()) {
                    tokio::task::spawn_local(make(place, config, names, Arc::clone(&self.inner)));
                }
            }
            next = queue.retry().map_or(next, |retry| next.min(retry.max(now)));
        }
        next
    }

    /// The configuration in force, with a resolver that lasts as long.
    fn follow(&mut self, config: Option<&Arc<Config>>) -> Option<(Arc<Config>, Rc<Names>)> {
        let config = config?;
        if !self.served.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, config)) {
            self.served = Some((Arc::clone(config), Rc::new(Names::new(&config.dns_servers))));
        }
        self.served.clone()
    }
}

/// Makes one connection ready.
async fn make(place: Place, config: Arc<Config>, names: Rc<Names>, inner: Arc<Inner>) {
    let queue = Arc::clone(&place.queue);
    let begun = Instant::now();
    let made = prepare(&queue, &config, &names).await;
    let now = Instant::now();
    match made {
        Ok(waiting) => {
            place.fill(waiting, now.saturating_duration_since(begun), now);
            inner.succeeded(&queue, begun, now);
        }
        Err(error) => {
            place.give_up();
            inner.failed(&queue, &error, now);
        }
    }
    // There is a place again, and perhaps more to do.
    inner.wake();
}

async fn prepare(queue: &Queue, config: &Config, names: &Names) -> Result<Waiting, DialError> {
    let hop = &queue.hop;
    let peering = hop.peering().expect("invariant: only relays have places");
    let deadline = tokio::time::Instant::now() + config.timeouts.connect;
    let known = queue.known();
    let means = (names, &config.congestion, config.needed_marks());
    let mut ready = section::prepare(hop, peering, known.as_ref(), means, deadline).await?;
    if let Some(gift) = ready.transport.resumption.take() {
        queue.met(gift);
    }
    let stream = ready.stream.into_std().map_err(|_| DialError::of_hop(Cause::Exhausted, hop))?;
    Ok(Waiting { stream, server: ready.server, transport: ready.transport })
}
