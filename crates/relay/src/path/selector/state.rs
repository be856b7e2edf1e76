//! The state of the path selector, behind one short lock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::event::Event;
use ekiden_proto::path::bounded::BoundedMap;
use ekiden_proto::path::candidates::{Candidate, MAX_RELAYS};
use ekiden_proto::path::choice::{Choice, TransferOutcome};
use ekiden_proto::path::map::NetworkMap;
use ekiden_proto::path::model::RelayCosts;
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::path::select::PathChooser;
use ekiden_proto::path::transfer_size::TransferHistory;

use super::prefixes::PrefixCache;
use super::{Prediction, SelectionContext, TransferStats};
use crate::config::{Config, Path, Route};
use crate::path::PathChoice;

/// Maximum number of prefixes with a last connected candidate.
const MAX_LAST_CONNECTED: usize = 1 << 14;

/// Maximum number of relays that are tried without measurements when neither the direct nor the default path connects.
const MAX_FALLBACKS: usize = 4;

/// Maximum number of target networks that are recorded between two maps.
const MAX_REQUESTED: usize = 1024;

/// The paths for one session.
#[derive(Debug)]
pub struct PathSelection {
    /// The paths, best first.
    pub choices: Vec<PathChoice>,
    /// The event to emit; `None` if the choice has not changed.
    pub change_event: Option<Event>,
}

/// The state behind the selector's lock.
#[derive(Debug)]
pub(super) struct SelectorState {
    pub config: Arc<Config>,
    pub chooser: PathChooser,
    pub names: PrefixCache,
    /// Whether a session has requested a path or reported an outcome since the last map.
    pub is_dirty: bool,
    /// The target networks of sessions since the last map, each with one target.
    requested: HashMap<Prefix, SocketAddr>,
    sizes: TransferHistory,
    /// The paths of candidates under the current configuration.
    paths: HashMap<Candidate, Arc<Path>>,
    /// The candidate that has connected last, for prefixes with too few measurements.
    last_connected: BoundedMap<Prefix, Candidate>,
}

impl SelectorState {
    pub fn new(config: Arc<Config>, map: Arc<NetworkMap>) -> Self {
        Self {
            config,
            chooser: PathChooser::new(map, RelayCosts::default()),
            names: PrefixCache::new(),
            is_dirty: true,
            requested: HashMap::new(),
            sizes: TransferHistory::default(),
            paths: HashMap::new(),
            last_connected: BoundedMap::new(MAX_LAST_CONNECTED),
        }
    }

    /// Applies another configuration. The path history is kept, because relays keep their numbers.
    pub fn apply_config(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
        self.paths.clear();
        self.is_dirty = true;
    }

    /// Returns the target networks of sessions since the last call, for which other relays are queried.
    pub fn take_requested(&mut self) -> HashMap<Prefix, SocketAddr> {
        std::mem::take(&mut self.requested)
    }

    /// Returns the paths to `target` for a route that leaves the choice to the selector.
    pub fn select(&mut self, route: &Route, target: &Target, now: Duration) -> PathSelection {
        self.is_dirty = true;
        let prefix = self.names.prefix(&target.host, now);
        if let Some(address) = self.names.address(&target.host).filter(|_| self.requested.len() < MAX_REQUESTED) {
            self.requested.insert(prefix, SocketAddr::new(address, target.port));
        }
        let predicted_size = self.sizes.predict(&target.host, target.port, now);
        let choice = self.chooser.choose(prefix, predicted_size, now);
        let changed = self.change_event(prefix, &choice, predicted_size);
        let racing = if choice.race { self.racing_paths(route, prefix) } else { Vec::new() };
        let racers = if choice.race { racing.len() } else { 0 };
        let plan = Arc::new(SelectionContext {
            target: target.clone(),
            prefix,
            predicted_size,
            racing_count: racers,
            reason: choice.reason,
        });
        let mut path_choices: Vec<PathChoice> = Vec::new();
        for (path, candidate) in racing {
            path_choices.push(path_choice(
                route,
                path,
                Prediction { context: Arc::clone(&plan), candidate, completion_time: None },
            ));
        }
        for ranked in choice.ranking {
            let is_listed = |listed: &PathChoice| listed.candidate() == Some(&ranked.candidate);
            if let Some(path) = self.path(&ranked.candidate).filter(|_| !path_choices.iter().any(is_listed)) {
                let predicted = Some(ranked.predicted).filter(|predicted| !predicted.is_zero());
                let candidate = Some(ranked.candidate);
                path_choices.push(path_choice(
                    route,
                    path,
                    Prediction { context: Arc::clone(&plan), candidate, completion_time: predicted },
                ));
            }
        }
        if racers > 0 {
            self.add_fallbacks(route, &plan, &mut path_choices);
        }
        PathSelection { choices: path_choices, change_event: changed }
    }

    /// Returns the paths that are dialled in parallel while there are too few measurements: the paths of the route, and
    /// the candidate that has connected last.
    fn racing_paths(&mut self, route: &Route, prefix: Prefix) -> Vec<(Arc<Path>, Option<Candidate>)> {
        let mut racing: Vec<_> = route.paths.iter().map(|path| (Arc::clone(path), self.candidate(path))).collect();
        let last_connected = self.last_connected.get(&prefix).cloned();
        if let Some(last_connected) = last_connected
            .filter(|last_connected| !racing.iter().any(|(_, known)| known.as_ref() == Some(last_connected)))
            && let Some(path) = self.path(&last_connected)
        {
            racing.push((path, Some(last_connected)));
        }
        racing
    }

    /// Adds paths through other relays, in case none of the racing paths connects.
    fn add_fallbacks(&mut self, route: &Route, plan: &Arc<SelectionContext>, path_choices: &mut Vec<PathChoice>) {
        let config = Arc::clone(&self.config);
        for hop in config.relays.iter().filter(|hop| hop.is_section()).take(MAX_FALLBACKS) {
            let key = hop.peering().map(|peering| peering.key);
            let Some(node) = key.and_then(|key| self.chooser.map().find(&key)) else { continue };
            let candidate = Candidate { relays: vec![node] };
            let is_listed = |listed: &PathChoice| listed.candidate() == Some(&candidate);
            if let Some(path) = self.path(&candidate).filter(|_| !path_choices.iter().any(is_listed)) {
                let prediction =
                    Prediction { context: Arc::clone(plan), candidate: Some(candidate), completion_time: None };
                path_choices.push(path_choice(route, path, prediction));
            }
        }
    }

    /// Returns the path of a candidate; `None` if a relay was removed from the configuration.
    fn path(&mut self, candidate: &Candidate) -> Option<Arc<Path>> {
        if let Some(path) = self.paths.get(candidate) {
            return Some(Arc::clone(path));
        }
        let map = self.chooser.map();
        let hop = |node: &u32| {
            let key = map.key(*node).filter(|key| !self.config.draining.contains(key))?;
            self.config.relays.iter().find(|hop| hop.has_key(&key)).cloned()
        };
        let hops = candidate.relays.iter().map(hop).collect::<Option<Vec<_>>>()?;
        let path = Arc::new(Path::from_hops(hops));
        self.paths.insert(candidate.clone(), Arc::clone(&path));
        Some(path)
    }

    /// Returns the candidate of a path; `None` for a path that the selector cannot choose.
    fn candidate(&self, path: &Path) -> Option<Candidate> {
        let node = |hop: &Arc<crate::config::Hop>| self.chooser.map().find(&hop.peering()?.key);
        let relays = path.hops.iter().map(node).collect::<Option<Vec<_>>>()?;
        (relays.len() <= MAX_RELAYS).then_some(Candidate { relays })
    }

    fn change_event(
        &self,
        prefix: Prefix,
        choice: &Choice,
        predicted_size: ekiden_proto::path::transfer_size::TransferSize,
    ) -> Option<Event> {
        let former = choice.previous.as_ref()?;
        let name = |candidate: &Candidate| candidate.name(self.chooser.map());
        Some(Event::PathChanged {
            prefix: Some(prefix),
            likely_bytes: predicted_size.bytes,
            likely_direction: predicted_size.direction.as_str(),
            from: name(former),
            to: choice.ranking.first().map_or_else(|| "-".to_owned(), |ranked| name(&ranked.candidate)),
            why: choice.reason.to_string(),
        })
    }

    /// Records an established path among racing paths.
    pub fn on_connected(&mut self, prediction: &Prediction) {
        if let Some(candidate) = &prediction.candidate {
            self.last_connected.insert(prediction.context.prefix, candidate.clone());
        }
    }

    /// Records a failed path, if another path was established or a hop was at fault.
    pub fn on_failure(&mut self, prediction: &Prediction, now: Duration) {
        self.is_dirty = true;
        if let Some(candidate) = &prediction.candidate {
            self.chooser.record_failure(prediction.context.prefix, candidate, now);
        }
    }

    /// Records the bytes of a session that has ended.
    pub fn record_transfer(&mut self, plan: &SelectionContext, transfer: &TransferStats, now: Duration) {
        self.sizes.record(&plan.target.host, plan.target.port, transfer.down, transfer.up, now);
    }

    /// Records the outcome of a session, or of a part of a session.
    pub fn record_outcome(&mut self, prediction: &Prediction, outcome: &TransferOutcome, now: Duration) {
        self.is_dirty = true;
        // The address of the name may have been resolved since the prediction.
        let prefix = self.names.prefix(&prediction.context.target.host, now);
        if let Some(candidate) = &prediction.candidate {
            self.chooser.record_outcome(prefix, candidate, outcome, now);
        }
    }

    /// Returns the predicted duration of a session with the number of bytes of `outcome`.
    pub fn predict(&self, prediction: &Prediction, outcome: &TransferOutcome, now: Duration) -> Option<Duration> {
        let Prediction { context: plan, candidate, .. } = prediction;
        Some(self.chooser.predict(plan.prefix, candidate.as_ref()?, outcome.transferred, now)?.predicted)
    }
}

fn path_choice(route: &Route, path: Arc<Path>, prediction: Prediction) -> PathChoice {
    PathChoice { prediction: Some(Arc::new(prediction)), ..PathChoice::of_route(route, path) }
}
