//! Adds relays of the fleet to a configuration: as next hops under their names, and as peers of section listeners.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_proto::event::Event;
use ekiden_proto::fleet::{FleetMember, RelayState};
use ekiden_proto::key::PublicKey;

use crate::config::{AccessRules, Config, FleetConfig, Hop, HopKind, Listener, Path, Peer, Peering, Peers, Route};

impl Config {
    /// Returns the written configuration with the relays of the fleet added. A relay in the file takes precedence over
    /// a member with its name or key.
    #[must_use]
    pub fn with_fleet(&self, members: &[FleetMember]) -> Self {
        let Some(fleet) = &self.fleet else { return self.clone() };
        let (own_key, joining) = (fleet.own_key.public_key(), self.joining_members(members));
        let peers: Vec<_> =
            members.iter().filter(|member| member.entry.signed_certificate.certificate.key != own_key).collect();
        let hops: Vec<_> = joining.iter().map(|member| (member_hop(fleet, member), member.entry.state)).collect();
        let draining = |(hop, state): &(Arc<Hop>, RelayState)| {
            hop.peering().filter(|_| *state == RelayState::Draining).map(|peering| peering.key)
        };
        Self {
            listeners: self.listeners.iter().map(|listener| with_fleet_peers(listener, &peers)).collect(),
            relays: self.relays.iter().cloned().chain(hops.iter().map(|(hop, _)| Arc::clone(hop))).collect(),
            routes: self.routes.iter().map(|route| resolve_route(route, &hops)).collect(),
            draining: hops.iter().filter_map(draining).collect(),
            ..self.clone()
        }
    }

    /// Returns the members that are neither this relay nor in the configuration file. Of members with the same name,
    /// only the most recently certified is returned.
    fn joining_members<'m>(&self, members: &'m [FleetMember]) -> Vec<&'m FleetMember> {
        let own_key = self.fleet.as_ref().map(|fleet| fleet.own_key.public_key());
        let is_known = |key: &PublicKey, name: &str| {
            let matches =
                |hop: &Arc<Hop>| *hop.name == *name || hop.peering().is_some_and(|peering| peering.key == *key);
            own_key == Some(*key) || self.relays.iter().any(matches)
        };
        let mut by_name: BTreeMap<&str, &FleetMember> = BTreeMap::new();
        for member in members {
            let certificate = &member.entry.signed_certificate.certificate;
            let is_preferred =
                |other: &&FleetMember| other.entry.signed_certificate.certificate.not_before >= certificate.not_before;
            if !is_known(&certificate.key, &certificate.name)
                && !by_name.get(&*certificate.name).is_some_and(is_preferred)
            {
                by_name.insert(&certificate.name, member);
            }
        }
        by_name.into_values().collect()
    }

    /// Returns the event for the change since `previous`; `None` without a change.
    #[must_use]
    pub fn fleet_change(&self, previous: &Self) -> Option<Event> {
        let is_same = (&self.relays, &self.draining) == (&previous.relays, &previous.draining);
        if is_same && self.peers().eq(previous.peers()) {
            return None;
        }
        let (serving, draining, was_draining) =
            (self.relay_names(false), self.relay_names(true), previous.relay_names(true));
        let joined = difference(&serving, &previous.relay_names(false));
        let left =
            difference(&difference(&[previous.relay_names(false), was_draining.clone()].concat(), &serving), &draining);
        let draining = difference(&draining, &was_draining);
        Some(Event::FleetChanged { relays: serving.len(), joined, draining, left })
    }

    fn peers(&self) -> impl Iterator<Item = Option<&Arc<Peers>>> {
        self.listeners.iter().filter_map(|listener| listener.section.as_ref()).map(|section| section.peers.as_ref())
    }

    /// Returns the names of the relays that are draining, or of those that are not.
    fn relay_names(&self, draining: bool) -> Vec<String> {
        let is_draining = |hop: &Hop| hop.peering().is_some_and(|peering| self.draining.contains(&peering.key));
        self.relays.iter().filter(|hop| is_draining(hop) == draining).map(ToString::to_string).collect()
    }
}

fn difference(names: &[String], excluded: &[String]) -> Vec<String> {
    names.iter().filter(|name| !excluded.contains(name)).cloned().collect()
}

fn member_hop(fleet: &FleetConfig, member: &FleetMember) -> Arc<Hop> {
    let certificate = &member.entry.signed_certificate.certificate;
    let peering = Peering { key: certificate.key, own_key: Arc::clone(&fleet.own_key), encrypt: fleet.encrypt };
    Arc::new(Hop {
        name: certificate.name.as_str().into(),
        kind: HopKind::Section(peering),
        address: certificate.address.clone(),
        profile: Arc::clone(&fleet.profile),
        group: None,
    })
}

/// Adds all members to the peers of a section listener that admits the fleet. Peers in the file take precedence.
fn with_fleet_peers(listener: &Arc<Listener>, members: &[&FleetMember]) -> Arc<Listener> {
    let Some(section) = listener.section.as_ref().filter(|section| section.fleet) else { return Arc::clone(listener) };
    let mut peers = section.peers.as_deref().cloned().unwrap_or_default();
    for member in members {
        let certificate = &member.entry.signed_certificate.certificate;
        let access = AccessRules { allow_private: true, ..AccessRules::default() };
        let peer = || Arc::new(Peer { name: certificate.name.as_str().into(), access, next_hops: None, from: None });
        peers.0.entry(certificate.key).or_insert_with(peer);
    }
    let section = crate::config::SectionListener { peers: Some(Arc::<Peers>::new(peers)), ..section.clone() };
    Arc::new(Listener { section: Some(section), ..Listener::clone(listener) })
}

/// Returns the route with the present members as hops. A path over an absent or draining member remains only if the
/// route has no better path.
fn resolve_route(route: &Route, hops: &[(Arc<Hop>, RelayState)]) -> Route {
    let paths: Vec<_> = route.paths.iter().map(|path| resolve_path(path, hops)).collect();
    let rank = |(_, rank): &(Arc<Path>, PathAvailability)| *rank;
    let best = paths.iter().map(rank).min().unwrap_or(PathAvailability::Available);
    let paths = paths.iter().filter(|path| rank(path) == best).map(|(path, _)| Arc::clone(path)).collect();
    Route { paths, ..route.clone() }
}

/// The availability of a path, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathAvailability {
    Available,
    Draining,
    Absent,
}

fn resolve_path(path: &Arc<Path>, fleet: &[(Arc<Hop>, RelayState)]) -> (Arc<Path>, PathAvailability) {
    let find = |hop: &Arc<Hop>| match hop.kind {
        HopKind::Absent => match fleet.iter().find(|(member, _)| member.name == hop.name) {
            Some((member, RelayState::Serving)) => (Arc::clone(member), PathAvailability::Available),
            Some((member, RelayState::Draining)) => (Arc::clone(member), PathAvailability::Draining),
            None => (Arc::clone(hop), PathAvailability::Absent),
        },
        _ => (Arc::clone(hop), PathAvailability::Available),
    };
    if path.hops.iter().all(|hop| hop.kind != HopKind::Absent) {
        return (Arc::clone(path), PathAvailability::Available);
    }
    let found: Vec<_> = path.hops.iter().map(find).collect();
    let availability = found.iter().map(|(_, availability)| *availability).max().unwrap_or(PathAvailability::Available);
    let hops = found.into_iter().map(|(hop, _)| hop).collect();
    (Arc::new(Path { name: path.name.clone(), hops }), availability)
}
