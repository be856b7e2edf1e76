//! What the chooser of this relay knows, behind one short lock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::event::Event;
use ekiden_proto::path::bounded::Bounded;
use ekiden_proto::path::candidates::{Candidate, MOST_RELAYS};
use ekiden_proto::path::choice::{Choice, Outcome};
use ekiden_proto::path::likely::Sizes;
use ekiden_proto::path::map::Map;
use ekiden_proto::path::model::Costs;
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::path::select::Chooser;

use super::names::Names;
use super::{Carried, Expected, Plan};
use crate::config::{Config, Path, Route};
use crate::path::Way;

/// Prefixes of which is remembered what stood there last.
const MOST_STOOD: usize = 1 << 14;

/// Relays that are tried where nothing is measured and neither direct nor the default stands.
const MOST_TRIED: usize = 4;

/// Networks of targets that are noted between two maps, at most.
const MOST_ASKED: usize = 1024;

/// The answer for one session.
#[derive(Debug)]
pub struct Answer {
    /// The ways, the best first.
    pub ways: Vec<Way>,
    /// What the operator is told, where the choice is another one now.
    pub changed: Option<Event>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct State {
    pub config: Arc<Config>,
    pub chooser: Chooser,
    pub names: Names,
    /// Whether somebody has asked or told since the last map.
    pub stirred: bool,
    /// Where sessions have gone since.
    asked: HashMap<Prefix, SocketAddr>,
    sizes: Sizes,
    /// The paths of candidates, under this configuration.
    paths: HashMap<Candidate, Arc<Path>>,
    /// What stood last where too little is measured.
    stood: Bounded<Prefix, Candidate>,
}

impl State {
    pub fn new(config: Arc<Config>, map: Arc<Map>) -> Self {
        Self {
            config,
            chooser: Chooser::new(map, Costs::default()),
            names: Names::new(),
            stirred: true,
            asked: HashMap::new(),
            sizes: Sizes::default(),
            paths: HashMap::new(),
            stood: Bounded::new(MOST_STOOD),
        }
    }

    /// Goes over to another configuration. What was experienced stays: relays keep their numbers.
    pub fn serve(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
        self.paths.clear();
        self.stirred = true;
    }

    /// Where sessions have gone since the last time, which is to be known from other relays as well.
    pub fn take_asked(&mut self) -> HashMap<Prefix, SocketAddr> {
        std::mem::take(&mut self.asked)
    }

    /// The ways to `target` by a route that leaves it to us.
    pub fn ways(&mut self, route: &Route, target: &Target, now: Duration) -> Answer {
        self.stirred = true;
        let prefix = self.names.prefix(&target.host, now);
        if let Some(address) = self.names.address(&target.host).filter(|_| self.asked.len() < MOST_ASKED) {
            self.asked.insert(prefix, SocketAddr::new(address, target.port));
        }
        let likely = self.sizes.likely(&target.host, target.port, now);
        let choice = self.chooser.choose(prefix, likely, now);
        let changed = self.change(prefix, &choice, likely);
        let racing = if choice.race { self.racing(route, prefix) } else { Vec::new() };
        let racers = if choice.race { racing.len() } else { 0 };
        let plan = Arc::new(Plan { target: target.clone(), prefix, likely, racers, why: choice.why });
        let mut ways: Vec<Way> = Vec::new();
        for (path, candidate) in racing {
            ways.push(way(route, path, Expected { plan: Arc::clone(&plan), candidate, predicted: None }));
        }
        for ranked in choice.ways {
            let is_there = |way: &Way| way.candidate() == Some(&ranked.candidate);
            if let Some(path) = self.path(&ranked.candidate).filter(|_| !ways.iter().any(is_there)) {
                let predicted = Some(ranked.predicted).filter(|predicted| !predicted.is_zero());
                let candidate = Some(ranked.candidate);
                ways.push(way(route, path, Expected { plan: Arc::clone(&plan), candidate, predicted }));
            }
        }
        if racers > 0 {
            self.try_all(route, &plan, &mut ways);
        }
        Answer { ways, changed }
    }

    /// What is dialled at once while too little is measured: the default, direct, and what stood last.
    fn racing(&mut self, route: &Route, prefix: Prefix) -> Vec<(Arc<Path>, Option<Candidate>)> {
        let mut racing: Vec<_> = route.paths.iter().map(|path| (Arc::clone(path), self.candidate(path))).collect();
        let stood = self.stood.get(&prefix).cloned();
        if let Some(stood) = stood.filter(|stood| !racing.iter().any(|(_, known)| known.as_ref() == Some(stood)))
            && let Some(path) = self.path(&stood)
        {
            racing.push((path, Some(stood)));
        }
        racing
    }

    /// Where none of those stands, one of the other relays may.
    fn try_all(&mut self, route: &Route, plan: &Arc<Plan>, ways: &mut Vec<Way>) {
        let config = Arc::clone(&self.config);
        for hop in config.relays.iter().filter(|hop| hop.is_section()).take(MOST_TRIED) {
            let key = hop.peering().map(|peering| peering.key);
            let Some(node) = key.and_then(|key| self.chooser.map().find(&key)) else { continue };
            let candidate = Candidate { relays: vec![node] };
            let is_there = |way: &Way| way.candidate() == Some(&candidate);
            if let Some(path) = self.path(&candidate).filter(|_| !ways.iter().any(is_there)) {
                let expected = Expected { plan: Arc::clone(plan), candidate: Some(candidate), predicted: None };
                ways.push(way(route, path, expected));
            }
        }
    }

    /// The hops of a candidate; none where a relay is no longer there.
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
        let path = Arc::new(Path::of(hops));
        self.paths.insert(candidate.clone(), Arc::clone(&path));
        Some(path)
    }

    /// The other way round; none for what nobody could choose.
    fn candidate(&self, path: &Path) -> Option<Candidate> {
        let node = |hop: &Arc<crate::config::Hop>| self.chooser.map().find(&hop.peering()?.key);
        let relays = path.hops.iter().map(node).collect::<Option<Vec<_>>>()?;
        (relays.len() <= MOST_RELAYS).then_some(Candidate { relays })
    }

    fn change(&self, prefix: Prefix, choice: &Choice, likely: ekiden_proto::path::likely::Likely) -> Option<Event> {
        let former = choice.former.as_ref()?;
        let name = |candidate: &Candidate| candidate.name(self.chooser.map());
        Some(Event::PathChanged {
            prefix: Some(prefix),
            likely_bytes: likely.bytes,
            likely_direction: likely.direction.word(),
            from: name(former),
            to: choice.ways.first().map_or_else(|| "-".to_owned(), |way| name(&way.candidate)),
            why: choice.why.to_string(),
        })
    }

    /// A way stood where too little was measured.
    pub fn stood(&mut self, expected: &Expected) {
        if let Some(candidate) = &expected.candidate {
            self.stood.insert(expected.plan.prefix, candidate.clone());
        }
    }

    /// A way did not stand though another one did, or it was a hop's fault.
    pub fn failed(&mut self, expected: &Expected, now: Duration) {
        self.stirred = true;
        if let Some(candidate) = &expected.candidate {
            self.chooser.failed(expected.plan.prefix, candidate, now);
        }
    }

    /// A session has ended: what it has carried in all.
    pub fn carried(&mut self, plan: &Plan, carried: &Carried, now: Duration) {
        self.sizes.carried(&plan.target.host, plan.target.port, carried.down, carried.up, now);
    }

    /// How it came out, or a part of it.
    pub fn came(&mut self, expected: &Expected, outcome: &Outcome, now: Duration) {
        self.stirred = true;
        // Where its name lies may be known by now.
        let prefix = self.names.prefix(&expected.plan.target.host, now);
        if let Some(candidate) = &expected.candidate {
            self.chooser.came(prefix, candidate, outcome, now);
        }
    }

    /// What is predicted for a session that carries as much.
    pub fn predicted(&self, expected: &Expected, outcome: &Outcome, now: Duration) -> Option<Duration> {
        let Expected { plan, candidate, .. } = expected;
        self.chooser.predicted(plan.prefix, candidate.as_ref()?, outcome.carried, now)
    }
}

fn way(route: &Route, path: Arc<Path>, expected: Expected) -> Way {
    let (profile, expected) = (Arc::clone(&route.profile), Some(Arc::new(expected)));
    Way { path, beyond: Vec::new(), profile, expected }
}
