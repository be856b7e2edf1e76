//! `[[path]]` and `[[route]]`: which ways to which targets.

use std::sync::Arc;

use super::named::{Named, names};
use super::profiles::Profiles;
use super::reader::Reader;
use super::value::Name;
use super::{Hop, Hosts, Path, Pattern, Route};

/// The word for the path that the relay chooses.
const AUTO: &str = "auto";

/// Reads all routes. The last one is that of all other targets: by `forward`, or direct.
pub(super) fn read(
    file: &Reader<'_>,
    relays: &Named<Arc<Hop>>,
    forward: Vec<Arc<Hop>>,
    profiles: &Profiles,
) -> Vec<Route> {
    let usual = profiles.choose(file, "target_profile");
    let paths = paths(file.tables("path"), relays);
    let through = paths.and("a path or a relay", relays, |relay| Arc::new(Path::of(vec![Arc::clone(relay)])));
    let known = Known { paths: &paths, through, relays, forward: &forward, fleet: file.has("fleet") };
    let mut routes = Vec::new();
    let mut takes_all = None;
    for (number, reader) in (1..).zip(file.tables("route")) {
        if let Some(earlier) = takes_all {
            reader.note(format!("a route that a target can get to: route[{earlier}] takes all of them"));
        }
        let to = targets(&reader);
        if !reader.has("to") || to.iter().any(is_all) {
            takes_all.get_or_insert(number);
        }
        let auto = reader.says("path", AUTO);
        let paths = if auto { known.racing(&reader) } else { known.listed(&reader) };
        let own = reader.has("profile");
        if own && !paths.is_empty() && !paths.iter().any(|path| path.is_direct()) {
            reader.mistake("profile", "no profile: no path of this route is direct, and relays have their own");
        }
        let profile = if own { profiles.choose(&reader, "profile") } else { Arc::clone(&usual) };
        routes.push(Route { to, paths, auto, profile });
        reader.finish();
    }
    routes.push(Route { to: Vec::new(), paths: vec![Arc::new(Path::of(forward))], auto: false, profile: usual });
    routes
}

/// What a route may speak of.
struct Known<'a> {
    paths: &'a Named<Arc<Path>>,
    /// The paths, and each relay by its name as the path through it alone.
    through: Named<Arc<Path>>,
    relays: &'a Named<Arc<Hop>>,
    forward: &'a [Arc<Hop>],
    /// Whether relays come from a fleet as well.
    fleet: bool,
}

impl Known<'_> {
    /// The paths of a route that says which.
    fn listed(&self, reader: &Reader<'_>) -> Vec<Arc<Path>> {
        if reader.has("default") {
            reader.mistake("default", "nothing: only path = \"auto\" has it, and otherwise the first path is taken");
        }
        self.through.choose(reader, "path")
    }

    /// The paths of a route that leaves it to the relay: the default, and direct.
    fn racing(&self, reader: &Reader<'_>) -> Vec<Arc<Path>> {
        if !self.fleet && !self.relays.good().chain(self.forward).any(|hop| hop.is_section()) {
            let expected = "a list of paths: auto chooses among relays of ekiden, and no [[relay]] has address and key";
            reader.mistake("path", expected);
        }
        let direct = Arc::new(Path::of(Vec::new()));
        let first = if reader.has("default") { self.default(reader) } else { self.first() };
        first.filter(|path| !path.is_direct()).into_iter().chain([direct]).collect()
    }

    /// The one that the route names.
    fn default(&self, reader: &Reader<'_>) -> Option<Arc<Path>> {
        let Name(name) = reader.required("default")?;
        let path = self.through.get(&name);
        if path.is_none() {
            reader.mistake("default", self.through.expected(&name));
        }
        path.cloned().flatten()
    }

    /// Without one: the first path of the file, else forward, else the first relay.
    fn first(&self) -> Option<Arc<Path>> {
        let path = self.paths.good().find(|path| !path.is_direct()).cloned();
        let forward = || (!self.forward.is_empty()).then(|| Arc::new(Path::of(self.forward.to_vec())));
        let relay = || self.relays.good().find(|hop| hop.is_section()).map(|hop| Arc::new(Path::of(vec![hop.clone()])));
        path.or_else(forward).or_else(relay)
    }
}

fn paths(readers: Vec<Reader<'_>>, relays: &Named<Arc<Hop>>) -> Named<Arc<Path>> {
    let mut paths = Named::new("a path");
    paths.add(Path::DIRECT, Some(Arc::new(Path::of(Vec::new()))));
    let names = names(&readers);
    for (reader, name) in readers.into_iter().zip(names) {
        if name.as_deref() == Some(Path::DIRECT) {
            reader.mistake("name", "another name: direct is the path without relays");
        }
        if name.as_deref() == Some(AUTO) {
            reader.mistake("name", "another name: auto is the path that the relay chooses");
        }
        let hops = relays.choose(&reader, "relays");
        // In logs, `forward` through that relay alone has its name.
        let misleading = |relay: &Arc<Hop>| !matches!(&hops[..], [hop] if Arc::ptr_eq(hop, relay));
        if let Some(Some(relay)) = name.as_deref().and_then(|name| relays.get(name))
            && misleading(relay)
        {
            reader.mistake("name", "another name: this is that of a relay, and the path is not that relay alone");
        }
        reader.finish();
        if let Some(name) = name {
            paths.add(&name, Some(Arc::new(Path { name: name.as_str().into(), hops })));
        }
    }
    paths
}

/// The targets of a route; none for all, which has to be meant.
fn targets(reader: &Reader<'_>) -> Vec<Pattern> {
    if !reader.has("to") {
        return Vec::new();
    }
    reader.some("to").into_iter().map(|(_, pattern)| pattern).collect()
}

fn is_all(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern { hosts: Hosts::Any, port: None })
}
