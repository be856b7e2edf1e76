//! Selects paths to a target: the first route that matches, and its paths in order of preference.

pub mod estimates;
pub mod selector;

use std::net::IpAddr;
use std::sync::Arc;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::candidates::Candidate;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::proxy_protocol::ProxyVersion;
use ekiden_proto::wire::server_name::ServerName;
use selector::PathSelector;

use crate::config::{Config, Hop, HopKind, Path, Resolve, Route};
use crate::events::Events;
use crate::path::selector::{PathSelection, Prediction};
use crate::pool::Pools;

/// A path to a target, with the settings for its use.
#[derive(Debug, Clone)]
pub struct PathChoice {
    /// The hops that this relay knows.
    pub path: Arc<Path>,
    /// The keys of the relays after the last hop, which the previous relay has chosen.
    pub beyond: Vec<PublicKey>,
    /// TCP settings of the section to the target itself, where there is no hop.
    pub profile: Arc<Profile>,
    /// The version of the PROXY header to the target; only where there is no hop.
    pub send_proxy: Option<ProxyVersion>,
    /// The relay that resolves the name of the target.
    pub resolve: Resolve,
    /// The prediction, if the selector has chosen the path.
    pub prediction: Option<Arc<Prediction>>,
}

/// The paths to `target`, the best first. Paths whose first hop is down come last. `server_name` is that of an intercepted
/// client, whose target is an address.
#[must_use]
pub fn select(
    selector: &PathSelector,
    pools: &Pools,
    events: &Events,
    config: &Config,
    target: &Target,
    server_name: Option<&ServerName>,
) -> Vec<PathChoice> {
    let route = match (server_name, &target.host) {
        (Some(name), Host::Ip(ip)) => route_at(config, &Host::Name(name.host.clone()), Some(*ip), target.port),
        _ => route(config, &target.host, target.port),
    };
    let selection = if route.auto { selector.select(route, target) } else { None };
    let Some(PathSelection { choices: path_choices, change_event: changed }) = selection else {
        return configured_paths(route, pools);
    };
    if let Some(event) = changed {
        events.emit(&event);
    }
    down_last(path_choices, pools)
}

/// Paths for traffic without a session and possibly without a port: 0, which matches no pattern with a port. The
/// selector takes no part.
#[must_use]
pub fn paths_to(config: &Config, pools: &Pools, host: &Host, port: u16) -> Vec<PathChoice> {
    configured_paths(route(config, host, port), pools)
}

/// The path of datagrams to `host`: the first one of the route that can carry them and is up. The selector takes no part.
#[must_use]
pub fn datagram_path(config: &Config, pools: &Pools, host: &Host, port: u16) -> Option<PathChoice> {
    datagram_path_of(route(config, host, port), pools)
}

/// The path of datagrams that no particular route applies to.
#[must_use]
pub fn default_datagram_path(config: &Config, pools: &Pools) -> Option<PathChoice> {
    datagram_path_of(config.routes.iter().find(|route| route.takes_all())?, pools)
}

/// Whether a route can carry datagrams. Routes after one that takes all targets are not used.
#[must_use]
pub fn has_datagram_route(config: &Config) -> bool {
    let last = config.routes.iter().position(Route::takes_all).unwrap_or(config.routes.len() - 1);
    config.routes[..=last].iter().any(carries_datagrams)
}

fn datagram_path_of(route: &Route, pools: &Pools) -> Option<PathChoice> {
    let path_choices = if carries_datagrams(route) { configured_paths(route, pools) } else { Vec::new() };
    path_choices.into_iter().find(|path_choice| path_choice.path.carries_datagrams())
}

/// Whether the first path of a route carries datagrams. A later one is a fallback for connections, while a proxy is unreachable:
/// datagrams would always take it, past the proxy.
fn carries_datagrams(route: &Route) -> bool {
    route.paths.first().is_some_and(|path| path.carries_datagrams())
}

fn route<'a>(config: &'a Config, host: &Host, port: u16) -> &'a Route {
    route_at(config, host, None, port)
}

fn route_at<'a>(config: &'a Config, host: &Host, address: Option<IpAddr>, port: u16) -> &'a Route {
    let route = config.routes.iter().find(|route| route.matches(host, address, port));
    route.expect("invariant: the last route matches all")
}

fn configured_paths(route: &Route, pools: &Pools) -> Vec<PathChoice> {
    let path_choice = |path| PathChoice::of_route(route, Arc::clone(path));
    down_last(route.paths.iter().map(path_choice).collect(), pools)
}

fn down_last(path_choices: Vec<PathChoice>, pools: &Pools) -> Vec<PathChoice> {
    // A single path needs no order; partitioning would move it into a larger allocation.
    if path_choices.len() == 1 {
        return path_choices;
    }
    let is_up = |path_choice: &PathChoice| path_choice.path.hops.first().is_none_or(|hop| !pools.is_down(hop));
    let (mut up, down): (Vec<_>, Vec<_>) = path_choices.into_iter().partition(is_up);
    up.extend(down);
    up
}

/// Number of paths at the front of `path_choices` that are dialled in parallel, because too few measurements exist to
/// choose one.
#[must_use]
pub fn racing_count(path_choices: &[PathChoice]) -> usize {
    let racers = path_choices
        .first()
        .and_then(|path_choice| path_choice.prediction.as_ref())
        .map_or(0, |prediction| prediction.context.racing_count);
    racers.min(path_choices.len())
}

impl PathChoice {
    /// The path without more settings than those of the section to the target.
    #[must_use]
    pub const fn new(path: Arc<Path>, profile: Arc<Profile>) -> Self {
        Self { path, beyond: Vec::new(), profile, send_proxy: None, resolve: Resolve::AsRequested, prediction: None }
    }

    /// A path of a route.
    #[must_use]
    pub fn of_route(route: &Route, path: Arc<Path>) -> Self {
        let Route { profile, send_proxy, resolve, .. } = route;
        Self { send_proxy: *send_proxy, resolve: *resolve, ..Self::new(path, Arc::clone(profile)) }
    }

    /// The selector's id of the path.
    #[must_use]
    pub fn candidate(&self) -> Option<&Candidate> {
        self.prediction.as_ref()?.candidate.as_ref()
    }
}

/// The paths of `path_choices` that lead to another relay: `direct` would lead back into the tunnel.
///
/// # Errors
/// [`Cause::Unreachable`] if no path is left.
pub fn relayed(mut path_choices: Vec<PathChoice>) -> Result<Vec<PathChoice>, Cause> {
    path_choices.retain(|path_choice| !path_choice.path.is_direct());
    if path_choices.is_empty() { Err(Cause::Unreachable) } else { Ok(path_choices) }
}

/// The path that the previous relay has chosen: to the first of `keys`, which must be a configured relay, and on from
/// there.
///
/// # Errors
/// [`Cause::Denied`] if it is not.
pub fn requested_path(config: &Config, keys: &[PublicKey]) -> Result<Option<PathChoice>, Cause> {
    let Some((first, beyond)) = keys.split_first() else { return Ok(None) };
    let hop = config.relays.iter().find(|hop| hop.has_key(first)).ok_or(Cause::Denied)?;
    let path = Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] };
    Ok(Some(PathChoice { beyond: beyond.to_vec(), ..PathChoice::new(Arc::new(path), Arc::default()) }))
}

impl Path {
    /// The last hop, if it is an HTTP proxy: requests to it are in absolute form.
    #[must_use]
    pub fn http_hop(&self) -> Option<&Arc<Hop>> {
        self.hops.last().filter(|hop| matches!(hop.kind, HopKind::Http(_)))
    }

    /// Whether all hops are relays: proxies carry no datagrams.
    #[must_use]
    pub fn carries_datagrams(&self) -> bool {
        self.hops.iter().all(|hop| hop.is_section())
    }

    /// Whether there is nothing between this relay and the target.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.hops.is_empty()
    }
}
