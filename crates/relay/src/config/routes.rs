//! `[[path]]` and `[[route]]`: which ways to which targets.

use std::sync::Arc;

use super::named::{Named, names};
use super::profiles::Profiles;
use super::reader::Reader;
use super::{Hop, Hosts, Path, Pattern, Route};

/// The word for the path without relays.
const DIRECT: &str = "direct";

/// Reads all routes. The last one is that of all other targets: by `forward`, or direct.
pub(super) fn read(
    file: &Reader<'_>,
    relays: &Named<Arc<Hop>>,
    forward: Vec<Arc<Hop>>,
    profiles: &Profiles,
) -> Vec<Route> {
    let usual = profiles.choose(file, "target_profile");
    let paths = paths(file.tables("path"), relays);
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
        let paths = paths.choose(&reader, "path");
        let own = reader.has("profile");
        if own && !paths.is_empty() && !paths.iter().any(|path| path.is_direct()) {
            reader.mistake("profile", "no profile: no path of this route is direct, and relays have their own");
        }
        let profile = if own { profiles.choose(&reader, "profile") } else { Arc::clone(&usual) };
        routes.push(Route { to, paths, profile });
        reader.finish();
    }
    routes.push(Route { to: Vec::new(), paths: vec![Arc::new(default(forward))], profile: usual });
    routes
}

fn paths(readers: Vec<Reader<'_>>, relays: &Named<Arc<Hop>>) -> Named<Arc<Path>> {
    let mut paths = Named::new("a path");
    paths.add(DIRECT, Some(Arc::new(default(Vec::new()))));
    let names = names(&readers);
    for (reader, name) in readers.into_iter().zip(names) {
        if name.as_deref() == Some(DIRECT) {
            reader.mistake("name", "another name: direct is the path without relays");
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

/// A path that has no name of its own.
fn default(hops: Vec<Arc<Hop>>) -> Path {
    if hops.is_empty() {
        return Path { name: DIRECT.into(), hops };
    }
    let name = hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Path { name: name.into(), hops }
}
