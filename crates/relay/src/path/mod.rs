//! Path selection: finds the first route that matches a target, and returns the paths of the route in order of
//! preference.

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
    /// The hops that this relay has in its configuration.
    pub path: Arc<Path>,
    /// The keys of the relays after the last hop of `path`, as chosen by the previous relay.
    pub later_relays: Vec<PublicKey>,
    /// The TCP profile of the section to the target, for a direct path.
    pub profile: Arc<Profile>,
    /// The version of the PROXY header to the target; only for a direct path.
    pub send_proxy: Option<ProxyVersion>,
    /// The relay that resolves the name of the target.
    pub resolve: Resolve,
    /// The prediction; `None` if the path was not chosen by the path selector.
    pub prediction: Option<Arc<Prediction>>,
}

/// Returns the paths to `target`, best first. Paths whose first hop is down are last. `server_name` is the server name
/// that an intercepted client has sent, for a target that is an address.
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

/// Returns the paths for traffic without a session. Without a port, `port` is 0, which matches no pattern with a port.
/// The path selector is not used.
#[must_use]
pub fn paths_to(config: &Config, pools: &Pools, host: &Host, port: u16) -> Vec<PathChoice> {
    configured_paths(route(config, host, port), pools)
}

/// Returns the path of datagrams to `host`: the first path of the route that can carry datagrams and is up. The path
/// selector is not used.
#[must_use]
pub fn datagram_path(config: &Config, pools: &Pools, host: &Host, port: u16) -> Option<PathChoice> {
    datagram_path_of(route(config, host, port), pools)
}

/// Returns the path of datagrams to which no specific route applies.
#[must_use]
pub fn default_datagram_path(config: &Config, pools: &Pools) -> Option<PathChoice> {
    datagram_path_of(config.routes.iter().find(|route| route.takes_all())?, pools)
}

/// Returns whether any route can carry datagrams. Routes after a route that matches all targets are not considered.
#[must_use]
pub fn has_datagram_route(config: &Config) -> bool {
    let last = config.routes.iter().position(Route::takes_all).unwrap_or(config.routes.len() - 1);
    config.routes[..=last].iter().any(carries_datagrams)
}

fn datagram_path_of(route: &Route, pools: &Pools) -> Option<PathChoice> {
    let path_choices = if carries_datagrams(route) { configured_paths(route, pools) } else { Vec::new() };
    path_choices.into_iter().find(|path_choice| path_choice.path.carries_datagrams())
}

/// Returns whether the first path of a route carries datagrams. A later path is the fallback for connections while a
/// proxy is unreachable; datagrams would always use that path and bypass the proxy.
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

/// Returns the number of paths at the front of `path_choices` that are dialled in parallel, because there are too few
/// measurements to choose one path.
#[must_use]
pub fn racing_count(path_choices: &[PathChoice]) -> usize {
    let racers = path_choices
        .first()
        .and_then(|path_choice| path_choice.prediction.as_ref())
        .map_or(0, |prediction| prediction.context.racing_count);
    racers.min(path_choices.len())
}

impl PathChoice {
    /// Creates a choice with the default settings, except for the profile of the section to the target.
    #[must_use]
    pub const fn new(path: Arc<Path>, profile: Arc<Profile>) -> Self {
        Self {
            path,
            later_relays: Vec::new(),
            profile,
            send_proxy: None,
            resolve: Resolve::AsRequested,
            prediction: None,
        }
    }

    /// Creates the choice of a path with the settings of its route.
    #[must_use]
    pub fn of_route(route: &Route, path: Arc<Path>) -> Self {
        let Route { profile, send_proxy, resolve, .. } = route;
        Self { send_proxy: *send_proxy, resolve: *resolve, ..Self::new(path, Arc::clone(profile)) }
    }

    /// Returns the candidate by which the path selector identifies the path; `None` without a prediction or a
    /// candidate.
    #[must_use]
    pub fn candidate(&self) -> Option<&Candidate> {
        self.prediction.as_ref()?.candidate.as_ref()
    }
}

/// Returns the paths of `path_choices` that lead to another relay: packets on a direct path would be routed back into
/// the tunnel.
///
/// # Errors
/// [`Cause::Unreachable`] if no path is left.
pub fn relayed(mut path_choices: Vec<PathChoice>) -> Result<Vec<PathChoice>, Cause> {
    path_choices.retain(|path_choice| !path_choice.path.is_direct());
    if path_choices.is_empty() { Err(Cause::Unreachable) } else { Ok(path_choices) }
}

/// Returns the path that the previous relay has chosen: through the relay with the first of `keys`, which must be
/// configured, and then through the relays with the other keys. `None` if `keys` is empty.
///
/// # Errors
/// [`Cause::Denied`] if the first relay is not configured.
pub fn requested_path(config: &Config, keys: &[PublicKey]) -> Result<Option<PathChoice>, Cause> {
    let Some((first, later_relays)) = keys.split_first() else { return Ok(None) };
    let hop = config.relays.iter().find(|hop| hop.has_key(first)).ok_or(Cause::Denied)?;
    let path = Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] };
    Ok(Some(PathChoice { later_relays: later_relays.to_vec(), ..PathChoice::new(Arc::new(path), Arc::default()) }))
}

impl Path {
    /// Returns the last hop if it is an HTTP proxy: requests to such a proxy are in absolute form.
    #[must_use]
    pub fn http_hop(&self) -> Option<&Arc<Hop>> {
        self.hops.last().filter(|hop| matches!(hop.kind, HopKind::Http(_)))
    }

    /// Returns whether all hops are relays: proxies do not carry datagrams.
    #[must_use]
    pub fn carries_datagrams(&self) -> bool {
        self.hops.iter().all(|hop| hop.is_section())
    }

    /// Returns whether the path has no hop between this relay and the target.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.hops.is_empty()
    }
}
