//! What the dashboard shows of a second: sums of everything, and whole accounts of the sessions that move most. The counters
//! of all sessions are cheap to read; what the kernel knows of their sections is not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::event::Congestion;
use hyper::body::Bytes;
use serde::Serialize;

use super::workers::Workers;
use crate::choose::ChoiceView;
use crate::config::Config;
use crate::fleet::FleetSummary;
use crate::measure::BetweenView;
use crate::recent::{Granted, Happened};
use crate::shared::Shared;
use crate::status::{InterfaceView, LaneView, PoolView, SessionView};
use crate::worker::{Description, Tally, Wish};

/// Most sessions that are shown whole.
const MOST_SESSIONS: usize = 100;

/// Most of everything else there may be many of.
const MOST: usize = 50;

/// How often what seldom changes is looked up.
const SELDOM: Duration = Duration::from_secs(5);

/// Finds what is to be shown; remembers the last time, because rates are differences.
pub(super) struct Source {
    shared: Arc<Shared>,
    workers: Workers,
    count: u64,
    before: Option<Before>,
    standing: Option<(Instant, Standing)>,
}

/// What was there the last time.
struct Before {
    at: Instant,
    /// Of the whole relay.
    moved: Flow,
    /// By session.
    tallies: HashMap<u64, Flow>,
}

/// Bytes, or bytes per second, in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Flow {
    down: u64,
    up: u64,
}

/// A snapshot.
#[derive(Serialize)]
struct Snapshot<'a> {
    /// How many there have been.
    number: u64,
    /// Seconds since 1970.
    time: f64,
    version: &'static str,
    uptime_seconds: f64,
    /// Sessions that are open.
    open: usize,
    /// Bytes since the start.
    moved: Flow,
    /// Bytes per second.
    rate: Flow,
    pipes_open: usize,
    pipes_idle: usize,
    pipe_fallbacks: u64,
    /// The paths that open sessions take.
    paths: Vec<PathSum>,
    /// The sessions that move most.
    sessions: Vec<Moving>,
    pools: Vec<PoolView>,
    interfaces: Vec<InterfaceView>,
    lanes: Vec<LaneView>,
    events: Vec<Happened>,
    congestion: Vec<Congestion>,
    #[serde(flatten)]
    standing: &'a Standing,
}

/// What the sessions of one path do together.
#[derive(Debug, Default, Clone, Serialize)]
struct PathSum {
    path: Box<str>,
    sessions: usize,
    rate: Flow,
}

/// A session, and what it moves.
#[derive(Serialize)]
struct Moving {
    #[serde(flatten)]
    view: SessionView,
    /// Bytes per second.
    rate: Flow,
}

/// What seldom changes.
#[derive(Serialize)]
struct Standing {
    /// The relays of paths that have names, in order.
    hops: BTreeMap<Box<str>, Vec<Box<str>>>,
    sections: Vec<BetweenView>,
    choices: Vec<ChoiceView>,
    profiles: Vec<Granted>,
    fleet: Option<FleetSummary>,
}

impl Source {
    /// Nothing is known yet.
    pub fn new(shared: Arc<Shared>, workers: Workers) -> Self {
        Self { shared, workers, count: 0, before: None, standing: None }
    }

    /// Nobody looks for a while.
    pub fn rest(&mut self) {
        (self.before, self.standing) = (None, None);
    }

    /// What there is now, as a server-sent event.
    pub async fn snapshot(&mut self) -> Bytes {
        let Description { tallies, pipes, congestion, .. } = self.workers.describe(Wish::Tallies).await;
        let now = Before::of(&self.shared, &tallies);
        let (rate, rates) = now.since(self.before.as_ref(), &tallies);
        let sessions = self.shown(&tallies, &rates).await;
        let standing = match self.standing.take() {
            Some((at, standing)) if at.elapsed() < SELDOM => (at, standing),
            _ => (Instant::now(), Standing::of(&self.shared)),
        };
        self.count += 1;
        let snapshot = Snapshot {
            number: self.count,
            time: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64(),
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.shared.began.elapsed().as_secs_f64(),
            open: tallies.len(),
            moved: now.moved,
            rate,
            pipes_open: pipes.open,
            pipes_idle: pipes.idle,
            pipe_fallbacks: pipes.fallbacks,
            paths: paths(&tallies, &rates),
            sessions,
            pools: first(self.shared.pools.views()),
            interfaces: first(self.shared.shares.views()),
            lanes: first(self.shared.lanes.views()),
            events: self.shared.recent.events(MOST),
            congestion,
            standing: &standing.1,
        };
        let event = event(&snapshot);
        (self.before, self.standing) = (Some(now), Some(standing));
        event
    }

    /// The sessions that move most, and of those that move nothing the newest.
    async fn shown(&self, tallies: &[Tally], rates: &[Flow]) -> Vec<Moving> {
        let mut order: Vec<_> = tallies.iter().zip(rates).map(|(tally, rate)| (tally.session, *rate)).collect();
        order.sort_unstable_by_key(|(session, rate)| Reverse((rate.down + rate.up, *session)));
        order.truncate(MOST_SESSIONS);
        let rates: HashMap<u64, Flow> = order.into_iter().collect();
        let wish = Wish::These(rates.keys().copied().collect::<HashSet<_>>());
        let sessions = self.workers.describe(wish).await.sessions.into_iter();
        let moving = |view: SessionView| Moving { rate: rates.get(&view.session).copied().unwrap_or_default(), view };
        let mut moving: Vec<_> = sessions.map(moving).collect();
        moving.sort_unstable_by_key(|one| Reverse((one.rate.down + one.rate.up, one.view.session)));
        moving
    }
}

impl Before {
    fn of(shared: &Shared, tallies: &[Tally]) -> Self {
        let (down, up) = shared.metrics.moved();
        let flow = |tally: &Tally| (tally.session, Flow { down: tally.down, up: tally.up });
        Self { at: Instant::now(), moved: Flow { down, up }, tallies: tallies.iter().map(flow).collect() }
    }

    /// Bytes per second since then, of the whole relay and of each session; none are known the first time.
    fn since(&self, before: Option<&Self>, tallies: &[Tally]) -> (Flow, Vec<Flow>) {
        let Some(before) = before else { return (Flow::default(), vec![Flow::default(); tallies.len()]) };
        let span = self.at.saturating_duration_since(before.at);
        let of_each = tallies.iter().map(|tally| {
            // One that is new has moved all it has moved since then.
            let then = before.tallies.get(&tally.session).copied().unwrap_or_default();
            Flow { down: tally.down, up: tally.up }.per_second(then, span)
        });
        (self.moved.per_second(before.moved, span), of_each.collect())
    }
}

impl Flow {
    fn per_second(self, before: Self, span: Duration) -> Self {
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / span.as_secs_f64().max(0.001)) as u64;
        Self { down: rate(self.down, before.down), up: rate(self.up, before.up) }
    }
}

impl Standing {
    fn of(shared: &Shared) -> Self {
        let config = shared.pools.config();
        Self {
            hops: config.as_ref().map(|config| hops(config)).unwrap_or_default(),
            sections: config.as_ref().map(|config| shared.book.between(config)).unwrap_or_default(),
            choices: first(shared.choosing.views()),
            profiles: first(shared.recent.profiles()),
            fleet: shared.fleet.view().map(|view| view.summary()),
        }
    }
}

fn hops(config: &Config) -> BTreeMap<Box<str>, Vec<Box<str>>> {
    let names = |path: &crate::config::Path| path.hops.iter().map(|hop| hop.name.clone()).collect();
    config.paths().into_iter().take(MOST).map(|path| (path.name.clone(), names(path))).collect()
}

/// The paths, those first that move most.
fn paths(tallies: &[Tally], rates: &[Flow]) -> Vec<PathSum> {
    let mut sums: HashMap<&str, PathSum> = HashMap::new();
    for (tally, rate) in tallies.iter().zip(rates) {
        let Some(path) = &tally.path else { continue };
        let sum = sums.entry(path).or_insert_with(|| PathSum { path: path.clone(), ..PathSum::default() });
        sum.sessions += 1;
        sum.rate.down += rate.down;
        sum.rate.up += rate.up;
    }
    let mut sums: Vec<PathSum> = sums.into_values().collect();
    sums.sort_unstable_by(|one, other| {
        let moves = |sum: &PathSum| (sum.rate.down + sum.rate.up, sum.sessions);
        moves(other).cmp(&moves(one)).then_with(|| one.path.cmp(&other.path))
    });
    first(sums)
}

fn first<T>(mut all: Vec<T>) -> Vec<T> {
    all.truncate(MOST);
    all
}

/// In JSON there is no end of line, which would end the data.
fn event(snapshot: &Snapshot<'_>) -> Bytes {
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

    fn tally(session: u64, path: &str, down: u64) -> Tally {
        Tally { session, path: (!path.is_empty()).then(|| path.into()), down, up: down / 10 }
    }

    fn before(at: Instant, tallies: &[Tally]) -> Before {
        let flow = |tally: &Tally| (tally.session, Flow { down: tally.down, up: tally.up });
        Before { at, moved: Flow::default(), tallies: tallies.iter().map(flow).collect() }
    }

    #[test]
    fn rates_are_what_has_moved_since() {
        let began = Instant::now();
        let (old, new) = ([tally(1, "a", 1000)], [tally(1, "a", 5000), tally(2, "a", 200)]);
        let (then, now) = (before(began, &old), before(began + Duration::from_secs(2), &new));
        let (_, rates) = now.since(Some(&then), &new);
        assert_eq!(rates, [Flow { down: 2000, up: 200 }, Flow { down: 100, up: 10 }]);
        assert_eq!(now.since(None, &new).1, [Flow::default(); 2]);
    }

    #[test]
    fn paths_are_summed_and_the_busiest_comes_first() {
        let tallies = [tally(1, "direct", 0), tally(2, "osaka", 0), tally(3, "direct", 0), tally(4, "", 0)];
        let rates = [10, 500, 20, 9000].map(|down| Flow { down, up: 1 });
        let sums = paths(&tallies, &rates);
        let shown: Vec<_> = sums.iter().map(|sum| (&*sum.path, sum.sessions, sum.rate.down, sum.rate.up)).collect();
        assert_eq!(shown, [("osaka", 1, 500, 1), ("direct", 2, 30, 2)]);
    }
}
