//! Who reaches whom, and through which neighbour: fewest links, then first by name of link.

use std::collections::{BTreeMap, VecDeque};

use crate::conditions::Conditions;
use crate::topology::{Lab, Link};

/// The first step of a way: over this link to this neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// The link.
    pub link: &'a str,
    /// The host at its other end.
    pub neighbour: &'a str,
}

/// The neighbours of a host, in order of the names of the links that lead there.
fn neighbours<'a>(lab: &'a Lab, host: &'a str) -> impl Iterator<Item = NextHop<'a>> {
    lab.links.iter().filter_map(move |(name, link)| {
        let [a, b] = [link.ends[0].as_str(), link.ends[1].as_str()];
        let neighbour = if a == host { b } else { a };
        (a == host || b == host).then_some(NextHop { link: name, neighbour })
    })
}

/// The first step from `from` to every host that it reaches. Every host on the way between forwards.
#[must_use]
pub fn next_hops<'a>(lab: &'a Lab, from: &'a str) -> BTreeMap<&'a str, NextHop<'a>> {
    shortest_paths(lab, from, |host| lab.hosts.get(host).is_some_and(|host| host.forward))
}

/// A link on a way, and what it is like in the direction of the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteHop<'a> {
    /// The link.
    pub link: &'a Link,
    /// That direction of it.
    pub conditions: &'a Conditions,
}

/// The links that packets take from `from` to `to`, in order; `None` if there is no way.
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

/// The delays of the links from `from` to `to` and back, in seconds; `None` if there is no way.
#[must_use]
pub fn round_trip(lab: &Lab, from: &str, to: &str) -> Option<f64> {
    // Not sum(): that of nothing is -0.0, by which nobody should divide.
    let delay = |hops: Vec<RouteHop<'_>>| {
        let delays = hops.iter().filter_map(|hop| hop.conditions.delay);
        delays.fold(0.0, |sum, delay| sum + delay.0.as_secs_f64())
    };
    Some(delay(route_hops(lab, from, to)?) + delay(route_hops(lab, to, from)?))
}

/// If `from` does not reach `to`: the first host on the shortest way that does not forward, or `None` if no links lead there.
#[must_use]
pub fn first_non_forwarding_host<'a>(lab: &'a Lab, from: &'a str, to: &'a str) -> Option<&'a str> {
    let mut host = shortest_paths(lab, from, |_| true).get(to)?.neighbour;
    while host != to && lab.hosts.get(host).is_some_and(|host| host.forward) {
        host = shortest_paths(lab, host, |_| true).get(to)?.neighbour;
    }
    Some(host)
}

/// Breadth first: a host reached earlier is nearer, and among equals the one whose way began with an earlier link is first.
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
