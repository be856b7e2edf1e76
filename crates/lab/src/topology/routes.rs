//! Routes between hosts: fewest links first, then the first link by name.

use std::collections::{BTreeMap, VecDeque};

use crate::conditions::Conditions;
use crate::topology::{Lab, Link};

/// First hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// Name of the link.
    pub link: &'a str,
    /// Name of the host at the other end.
    pub neighbour: &'a str,
}

/// Returns the neighbours of a host, in order of the names of the links.
fn neighbours<'a>(lab: &'a Lab, host: &'a str) -> impl Iterator<Item = NextHop<'a>> {
    lab.links.iter().filter_map(move |(name, link)| {
        let [a, b] = [link.ends[0].as_str(), link.ends[1].as_str()];
        let neighbour = if a == host { b } else { a };
        (a == host || b == host).then_some(NextHop { link: name, neighbour })
    })
}

/// Returns the first hop from `from` to every reachable host. Only hosts with forwarding are intermediate hops.
#[must_use]
pub fn next_hops<'a>(lab: &'a Lab, from: &'a str) -> BTreeMap<&'a str, NextHop<'a>> {
    shortest_paths(lab, from, |host| lab.hosts.get(host).is_some_and(|host| host.forward))
}

/// A link of a route, with its conditions in the direction of the route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteHop<'a> {
    /// The link of the hop.
    pub link: &'a Link,
    /// Conditions in the direction of the route.
    pub conditions: &'a Conditions,
}

/// Returns the links from `from` to `to`, in order, or `None` without a route.
#[must_use]
pub fn route_hops<'a>(lab: &'a Lab, from: &'a str, to: &str) -> Option<Vec<RouteHop<'a>>> {
    let (mut host, mut hops) = (from, Vec::new());
    while host != to {
        let step = *next_hops(lab, host).get(to)?;
        let link = lab.links.get(step.link)?;
        let conditions = if link.ends[0] == host { &link.forward } else { &link.reverse };
        hops.push(RouteHop { link, conditions });
        host = step.neighbour;
    }
    Some(hops)
}

/// Returns the sum of the link delays from `from` to `to` and back, in seconds, or `None` without a route.
#[must_use]
pub fn round_trip(lab: &Lab, from: &str, to: &str) -> Option<f64> {
    // sum() of an empty iterator is -0.0, which must not become a divisor.
    let delay = |hops: Vec<RouteHop<'_>>| {
        let delays = hops.iter().filter_map(|hop| hop.conditions.delay);
        delays.fold(0.0, |sum, delay| sum + delay.0.as_secs_f64())
    };
    Some(delay(route_hops(lab, from, to)?) + delay(route_hops(lab, to, from)?))
}

/// If `from` does not reach `to`: returns the first host on the shortest path that does not forward, or `None` if no
/// links lead to `to`.
#[must_use]
pub fn first_non_forwarding_host<'a>(lab: &'a Lab, from: &'a str, to: &'a str) -> Option<&'a str> {
    let mut host = shortest_paths(lab, from, |_| true).get(to)?.neighbour;
    while host != to && lab.hosts.get(host).is_some_and(|host| host.forward) {
        host = shortest_paths(lab, host, |_| true).get(to)?.neighbour;
    }
    Some(host)
}

/// Searches breadth first: fewer links first, and among equals the path whose first link has the smaller name.
fn shortest_paths<'a>(lab: &'a Lab, from: &'a str, forwards: impl Fn(&str) -> bool) -> BTreeMap<&'a str, NextHop<'a>> {
    let mut steps: BTreeMap<&str, NextHop<'_>> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(host) = queue.pop_front() {
        if host != from && !forwards(host) {
            continue;
        }
        for next in neighbours(lab, host) {
            if next.neighbour != from && !steps.contains_key(next.neighbour) {
                let first = steps.get(host).copied().unwrap_or(next);
                steps.insert(next.neighbour, first);
                queue.push_back(next.neighbour);
            }
        }
    }
    steps
}
