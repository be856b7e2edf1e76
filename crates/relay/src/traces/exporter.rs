//! Tells a collector of sessions, many at a time. What it does not take is dropped: it would be wanted by nobody when it
//! came at last, and what waits must have a bound.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ekiden_proto::event::Event;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{Connection, Trouble};
use super::otlp::{Span, request};
use super::{Counts, Ended, Settings, spans};
use crate::shared::Shared;

/// Most sessions that are told at once.
const MOST: usize = 256;

/// How long they are gathered.
const GATHER: Duration = Duration::from_secs(1);

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Who tells.
pub struct Exporter {
    settings: Arc<Settings>,
    counts: Counts,
    shared: Weak<Shared>,
}

impl Exporter {
    /// Nothing was told yet.
    pub fn new(settings: Arc<Settings>, counts: Counts, shared: Weak<Shared>) -> Self {
        Self { settings, counts, shared }
    }

    /// Tells of all that have ended, until there will be no more.
    pub async fn run(&self, mut ended: mpsc::Receiver<Ended>, mut closing: watch::Receiver<()>) {
        let mut connection = Connection::new(Arc::clone(&self.settings));
        let (mut batch, mut failures) = (Vec::with_capacity(MOST), 0);
        while gather(&mut ended, &mut batch).await {
            let told = self.tell(&mut connection, &batch).await;
            batch.clear();
            let Err(trouble) = told else {
                failures = 0;
                continue;
            };
            if failures == 0 {
                self.warn(&trouble);
            }
            failures += 1;
            tokio::select! {
                () = sleep(pause(failures)) => {}
                _ = closing.changed() => {}
            }
        }
    }

    async fn tell(&self, connection: &mut Connection, batch: &[Ended]) -> Result<(), Trouble> {
        let sessions = batch.len() as u64;
        let spans: Vec<Span> = batch.iter().flat_map(|ended| spans::of(ended, &self.settings.traces)).collect();
        let body = request(&self.settings.traces.name, &spans).expect("invariant: spans can be written as JSON");
        let answer = connection.post(body).await;
        match &answer {
            Ok(rejected) => {
                // It counts spans; a session with one that was not taken is not whole.
                let refused = (*rejected).min(sessions);
                self.counts.sent(sessions - refused);
                self.counts.refused(refused);
            }
            Err(Trouble::Refuses(_)) => self.counts.refused(sessions),
            Err(Trouble::Unreachable(_)) => self.counts.unreachable(sessions),
        }
        answer.map(drop)
    }

    /// Once for each time that it is away.
    fn warn(&self, trouble: &Trouble) {
        let Some(shared) = self.shared.upgrade() else { return };
        let address = &self.settings.traces.collector.address;
        let message = format!(
            "traces: the collector at {address} {trouble}: sessions go on, and those it is not told of are counted in \
             ekiden_traced_sessions_total; start it, or take [traces] out and reload"
        );
        shared.emit(&Event::Warning { message });
    }
}

/// Waits for some, and then a while for more; false when there will be none.
async fn gather(ended: &mut mpsc::Receiver<Ended>, batch: &mut Vec<Ended>) -> bool {
    if ended.recv_many(batch, MOST).await == 0 {
        return false;
    }
    let until = Instant::now() + GATHER;
    while batch.len() < MOST {
        match timeout_at(until, ended.recv_many(batch, MOST - batch.len())).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    true
}

/// The pause after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let (first, longest) = PAUSES;
    first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}
