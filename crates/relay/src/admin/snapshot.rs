//! Snapshots for the dashboard: totals, and details of the busiest sessions. Reading the counters of all sessions is
//! cheap; reading the kernel data of their sections is not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::event::CongestionStatus;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::events::metrics::WorkerCounts;
use crate::events::recent::{EventView, ProfileView};
use crate::ingress::services::Services;
use crate::path::estimates::RelaySectionView;
use crate::path::selector::ChoiceView;
use crate::status::fleet::FleetSummary;
use crate::status::{InterfaceView, LaneView, PoolView, SessionView};
use crate::worker::{Command, SessionProgress, StatusQuery, WorkerStatus};

/// Maximum number of sessions with details.
const MAX_SESSIONS: usize = 100;

/// Maximum length of most other lists in a snapshot.
const MAX_ITEMS: usize = 50;

/// Interval of updates of [`SlowSnapshot`].
const SLOW_INTERVAL: Duration = Duration::from_secs(5);

/// Takes snapshots. Keeps the previous counters to compute rates.
pub(super) struct SnapshotSource {
    services: Arc<Services>,
    workers: WorkerHandles,
    snapshot_count: u64,
    previous: Option<CounterSample>,
    slow: Option<(Instant, SlowSnapshot)>,
}

/// Byte counters at the time of a snapshot.
struct CounterSample {
    sampled_at: Instant,
    /// Bytes transferred by the whole relay.
    bytes_moved: DuplexBytes,
    tallies: HashMap<u64, DuplexBytes>,
}

/// Bytes, or bytes per second, in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct DuplexBytes {
    down: u64,
    up: u64,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    /// Number of snapshots so far, this one included.
    number: u64,
    /// Unix time in seconds.
    time: f64,
    version: &'static str,
    uptime_seconds: f64,
    /// Number of open sessions.
    open: usize,
    /// Bytes transferred since the start of the process.
    moved: DuplexBytes,
    /// Rates in bytes per second.
    rate: DuplexBytes,
    pipes_open: usize,
    pipes_idle: usize,
    pipe_fallbacks: u64,
    /// The paths of open sessions.
    paths: Vec<PathTotals>,
    /// The sessions with the highest rates.
    sessions: Vec<SessionRateView>,
    pools: Vec<PoolView>,
    interfaces: Vec<InterfaceView>,
    lanes: Vec<LaneView>,
    events: Vec<EventView>,
    congestion: Vec<CongestionStatus>,
    #[serde(flatten)]
    slow: &'a SlowSnapshot,
}

/// Totals of the sessions on one path.
#[derive(Debug, Default, Clone, Serialize)]
struct PathTotals {
    path: Box<str>,
    sessions: usize,
    rate: DuplexBytes,
}

/// A session with its transfer rates.
#[derive(Serialize)]
struct SessionRateView {
    #[serde(flatten)]
    view: SessionView,
    /// Rates in bytes per second.
    rate: DuplexBytes,
}

/// Data that rarely changes.
#[derive(Serialize)]
struct SlowSnapshot {
    /// The hops of each named path, in order.
    hops: BTreeMap<Box<str>, Vec<Box<str>>>,
    sections: Vec<RelaySectionView>,
    choices: Vec<ChoiceView>,
    profiles: Vec<ProfileView>,
    fleet: Option<FleetSummary>,
}

impl SnapshotSource {
    /// Creates a source without previous counters.
    pub fn new(services: Arc<Services>, workers: WorkerHandles) -> Self {
        Self { services, workers, snapshot_count: 0, previous: None, slow: None }
    }

    /// Discards the previous counters and data, when no reader is left.
    pub fn reset(&mut self) {
        (self.previous, self.slow) = (None, None);
    }

    /// Takes a snapshot and formats it as a server-sent event.
    pub async fn next_event(&mut self) -> Bytes {
        let WorkerStatus { tallies, pipes, congestion, .. } = self.workers.describe(StatusQuery::Tallies).await;
        let sample = CounterSample::take(&self.services, &tallies);
        let (rate, rates) = sample.rates_since(self.previous.as_ref(), &tallies);
        let sessions = self.busiest_sessions(&tallies, &rates).await;
        let slow_snapshot = match self.slow.take() {
            Some((at, slow_snapshot)) if at.elapsed() < SLOW_INTERVAL => (at, slow_snapshot),
            _ => (Instant::now(), SlowSnapshot::take(&self.services)),
        };
        self.snapshot_count += 1;
        let snapshot = Snapshot {
            number: self.snapshot_count,
            time: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64(),
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.services.started_at.elapsed().as_secs_f64(),
            open: tallies.len(),
            moved: sample.bytes_moved,
            rate,
            pipes_open: pipes.open,
            pipes_idle: pipes.idle,
            pipe_fallbacks: pipes.fallbacks,
            paths: path_totals(&tallies, &rates),
            sessions,
            pools: truncated(self.services.pools.views()),
            interfaces: truncated(self.services.shared_interfaces.views()),
            lanes: truncated(self.services.lanes.views()),
            events: self.services.events.recent.events(MAX_ITEMS),
            congestion,
            slow: &slow_snapshot.1,
        };
        let event = sse_event(&snapshot);
        (self.previous, self.slow) = (Some(sample), Some(slow_snapshot));
        event
    }

    /// Returns details of the sessions with the highest rates; sessions with equal rates are in order from the newest.
    async fn busiest_sessions(&self, tallies: &[SessionProgress], rates: &[DuplexBytes]) -> Vec<SessionRateView> {
        let mut order: Vec<_> = tallies.iter().zip(rates).map(|(tally, rate)| (tally.session, *rate)).collect();
        order.sort_unstable_by_key(|(session, rate)| Reverse((rate.down + rate.up, *session)));
        order.truncate(MAX_SESSIONS);
        let rates: HashMap<u64, DuplexBytes> = order.into_iter().collect();
        let request = StatusQuery::These(rates.keys().copied().collect::<HashSet<_>>());
        let sessions = self.workers.describe(request).await.sessions.into_iter();
        let moving =
            |view: SessionView| SessionRateView { rate: rates.get(&view.session).copied().unwrap_or_default(), view };
        let mut moving: Vec<_> = sessions.map(moving).collect();
        moving.sort_unstable_by_key(|one| Reverse((one.rate.down + one.rate.up, one.view.session)));
        moving
    }
}

impl CounterSample {
    fn take(services: &Services, tallies: &[SessionProgress]) -> Self {
        let (down, up) = services.events.metrics.bytes_moved();
        let flow = |tally: &SessionProgress| (tally.session, DuplexBytes { down: tally.down, up: tally.up });
        Self {
            sampled_at: Instant::now(),
            bytes_moved: DuplexBytes { down, up },
            tallies: tallies.iter().map(flow).collect(),
        }
    }

    /// Rates since `previous`, of the whole relay and of each session; all are zero without `previous`.
    fn rates_since(&self, previous: Option<&Self>, tallies: &[SessionProgress]) -> (DuplexBytes, Vec<DuplexBytes>) {
        let Some(previous) = previous else {
            return (DuplexBytes::default(), vec![DuplexBytes::default(); tallies.len()]);
        };
        let span = self.sampled_at.saturating_duration_since(previous.sampled_at);
        let session_rates = tallies.iter().map(|tally| {
            // For a new session, all bytes so far count for this interval.
            let earlier = previous.tallies.get(&tally.session).copied().unwrap_or_default();
            DuplexBytes { down: tally.down, up: tally.up }.per_second(earlier, span)
        });
        (self.bytes_moved.per_second(previous.bytes_moved, span), session_rates.collect())
    }
}

impl DuplexBytes {
    fn per_second(self, earlier: Self, span: Duration) -> Self {
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / span.as_secs_f64().max(0.001)) as u64;
        Self { down: rate(self.down, earlier.down), up: rate(self.up, earlier.up) }
    }
}

impl SlowSnapshot {
    fn take(services: &Services) -> Self {
        let config = services.pools.config();
        Self {
            hops: config.as_ref().map(|config| path_hops(config)).unwrap_or_default(),
            sections: config.as_ref().map(|config| services.estimates.relay_sections(config)).unwrap_or_default(),
            choices: truncated(services.path_selector.views()),
            profiles: truncated(services.events.recent.profiles()),
            fleet: services.fleet.view().map(|view| view.summary()),
        }
    }
}

fn path_hops(config: &Config) -> BTreeMap<Box<str>, Vec<Box<str>>> {
    let names = |path: &crate::config::Path| path.hops.iter().map(|hop| hop.name.clone()).collect();
    config.paths().into_iter().take(MAX_ITEMS).map(|path| (path.name.clone(), names(path))).collect()
}

/// Returns the totals of each path, the highest rate first.
fn path_totals(tallies: &[SessionProgress], rates: &[DuplexBytes]) -> Vec<PathTotals> {
    let mut sums: HashMap<&str, PathTotals> = HashMap::new();
    for (tally, rate) in tallies.iter().zip(rates) {
        let Some(path) = &tally.path else { continue };
        let sum = sums.entry(path).or_insert_with(|| PathTotals { path: path.clone(), ..PathTotals::default() });
        sum.sessions += 1;
        sum.rate.down += rate.down;
        sum.rate.up += rate.up;
    }
    let mut sums: Vec<PathTotals> = sums.into_values().collect();
    sums.sort_unstable_by(|one, other| {
        let moves = |sum: &PathTotals| (sum.rate.down + sum.rate.up, sum.sessions);
        moves(other).cmp(&moves(one)).then_with(|| one.path.cmp(&other.path))
    });
    truncated(sums)
}

fn truncated<T>(mut items: Vec<T>) -> Vec<T> {
    items.truncate(MAX_ITEMS);
    items
}

/// Formats a snapshot as a server-sent event. The JSON has no line breaks, which would end the data field.
fn sse_event(snapshot: &Snapshot<'_>) -> Bytes {
    let mut event = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut event, snapshot) {
        return format!("event: broken\ndata: {error}\n\n").into();
    }
    event.extend(b"\n\n");
    event.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(session: u64, path: &str, down: u64) -> SessionProgress {
        SessionProgress { session, path: (!path.is_empty()).then(|| path.into()), down, up: down / 10 }
    }

    fn counter_sample(at: Instant, tallies: &[SessionProgress]) -> CounterSample {
        let flow = |tally: &SessionProgress| (tally.session, DuplexBytes { down: tally.down, up: tally.up });
        CounterSample {
            sampled_at: at,
            bytes_moved: DuplexBytes::default(),
            tallies: tallies.iter().map(flow).collect(),
        }
    }

    #[test]
    fn rates_are_bytes_moved_since_the_last_sample() {
        let began = Instant::now();
        let (old, new) = ([tally(1, "a", 1000)], [tally(1, "a", 5000), tally(2, "a", 200)]);
        let (then, now) = (counter_sample(began, &old), counter_sample(began + Duration::from_secs(2), &new));
        let (_, rates) = now.rates_since(Some(&then), &new);
        assert_eq!(rates, [DuplexBytes { down: 2000, up: 200 }, DuplexBytes { down: 100, up: 10 }]);
        assert_eq!(now.rates_since(None, &new).1, [DuplexBytes::default(); 2]);
    }

    #[test]
    fn path_totals_are_summed_and_sorted_by_rate() {
        let tallies = [tally(1, "direct", 0), tally(2, "osaka", 0), tally(3, "direct", 0), tally(4, "", 0)];
        let rates = [10, 500, 20, 9000].map(|down| DuplexBytes { down, up: 1 });
        let sums = path_totals(&tallies, &rates);
        let shown: Vec<_> = sums.iter().map(|sum| (&*sum.path, sum.sessions, sum.rate.down, sum.rate.up)).collect();
        assert_eq!(shown, [("osaka", 1, 500, 1), ("direct", 2, 30, 2)]);
    }
}

/// The command channels of all worker threads.
#[derive(Clone)]
pub(super) struct WorkerHandles(pub Vec<mpsc::Sender<Command>>);

impl WorkerHandles {
    /// Returns the counters of all workers that run.
    pub async fn counts(&self) -> Vec<WorkerCounts> {
        self.query_all(Command::Count).await
    }

    /// Returns the merged status of all workers that run.
    pub async fn describe(&self, request: StatusQuery) -> WorkerStatus {
        let mut all = WorkerStatus::default();
        for description in self.query_all(|answer| Command::Describe(request.clone(), answer)).await {
            all.add(description);
        }
        all
    }

    /// Sends a query to all workers before it waits for the answers, so that the total time is that of the slowest
    /// worker. Workers that have ended are left out.
    async fn query_all<T>(&self, command: impl Fn(oneshot::Sender<T>) -> Command) -> Vec<T> {
        let mut answers = Vec::with_capacity(self.0.len());
        for worker in &self.0 {
            let (answer, answered) = oneshot::channel();
            if worker.send(command(answer)).await.is_ok() {
                answers.push(answered);
            }
        }
        let mut all = Vec::with_capacity(answers.len());
        for answered in answers {
            all.extend(answered.await);
        }
        all
    }
}
