//! The ways that are tried: direct, each relay alone, and each path.

use std::sync::Arc;

use ekiden_proto::addr::Target;

use crate::config::{Config, Path};
use crate::path::{self, PathChoice};
use crate::pool::Pools;

/// Names that are none of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--via {name}: expected {}", expected(known))]
pub struct UnknownCandidate {
    name: String,
    known: Vec<String>,
}

fn expected(known: &[String]) -> String {
    match known {
        [] => "a relay, but there is none: name some with -c FILE or -F".to_owned(),
        known => format!("a relay or a path, one of {}", known.join(", ")),
    }
}

/// Direct, and what `config` knows beside it; of that only what `via` names, unless it is empty.
///
/// # Errors
/// A name in `via` that nothing has.
pub fn candidates(
    config: &Config,
    via: &[String],
    target: &Target,
    pools: &Pools,
) -> Result<Vec<PathChoice>, UnknownCandidate> {
    let alone = config.relays.iter().map(|hop| Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] });
    let mut paths: Vec<Arc<Path>> = alone.map(Arc::new).collect();
    for path in config.routes.iter().flat_map(|route| &route.paths) {
        if !path.is_direct() && !paths.iter().any(|known| known.hops == path.hops) {
            paths.push(Arc::clone(path));
        }
    }
    let known: Vec<String> = paths.iter().map(|path| path.name.to_string()).collect();
    if let Some(name) = via.iter().find(|name| !known.contains(name)) {
        return Err(UnknownCandidate { name: name.clone(), known });
    }
    paths.retain(|path| via.is_empty() || via.iter().any(|name| **name == *path.name));
    let direct = Path { name: "direct".into(), hops: Vec::new() };
    // The settings of the section to the target itself are those that a session to it would have.
    let profile = path::paths_to(config, pools, &target.host, target.port).first().map(|way| Arc::clone(&way.profile));
    let profile = profile.unwrap_or_default();
    let way = |path| PathChoice { path, beyond: Vec::new(), profile: Arc::clone(&profile), expected: None };
    Ok([Arc::new(direct)].into_iter().chain(paths).map(way).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::from_text;
    use crate::probe::empty_pools;

    #[test]
    fn every_way_is_tried_once_and_direct_first() {
        let relay =
            |name: &str, last: u8| format!("[[relay]]\nname = \"{name}\"\nurl = \"socks5://192.0.2.{last}:1080\"\n");
        let path = |name: &str, relays: &str| format!("[[path]]\nname = \"{name}\"\nrelays = [{relays}]\n");
        let text = format!(
            "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{}{}{}{}[[route]]\npath = [\"same\", \"both\", \"direct\"]\n",
            relay("a", 1),
            relay("b", 2),
            path("same", "\"a\""),
            path("both", "\"a\", \"b\""),
        );
        let config = from_text(&text).unwrap();
        let target = Target::parse("server.example:443", None).unwrap();
        let names = |via: &[&str]| {
            let via: Vec<String> = via.iter().map(|name| (*name).to_owned()).collect();
            let ways = candidates(&config, &via, &target, &empty_pools());
            ways.map(|ways| ways.iter().map(|way| way.path.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["direct", "a", "b", "both"]);
        assert_eq!(names(&["both"]).unwrap(), ["direct", "both"]);
        let unknown = names(&["c"]).unwrap_err().to_string();
        assert_eq!(unknown, "--via c: expected a relay or a path, one of a, b, both");
    }
}
