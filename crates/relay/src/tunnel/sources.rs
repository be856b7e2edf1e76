//! Source address validation: which relay may send packets from which addresses. Packets with other source addresses
//! count as forged and are dropped.
//!
//! `from=` in the file of peers lists the networks of a peer. Without `from=`, a relay that has dialled a lane may send
//! from the networks that are routed only to that relay, by a path that ends there: packets in a lane do not show which
//! relay behind the dialler sent them. In a lane that this relay has dialled, the other end may send from the networks
//! that are routed by the path of the lane. A network without a route (`answer_only`) is bound by `from=`, or, if
//! exactly one admitted peer has no `from=`, to that peer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_proto::key::PublicKey;

use crate::config::access::AccessPolicy;
use crate::config::{Config, Listener, Path, Peers};
use crate::path::PathChoice;

/// The relay at the other end of a lane.
#[derive(Debug)]
pub enum LaneRemote {
    /// A relay with this key that has dialled the lane. Relays behind the dialler may share the lane, so the dialler
    /// may send from the networks of paths that end at it.
    Dialler {
        /// The name in the status.
        name: Box<str>,
        /// The key of the relay.
        key: PublicKey,
    },
    /// The next relay of a lane that passes through. The previous relay has chosen the path, which may continue behind
    /// the next one.
    Next {
        /// The name in the status.
        name: Box<str>,
        /// The key of the relay.
        key: PublicKey,
    },
    /// The end of a path that this relay has chosen and dialled.
    Path {
        /// The name of the path.
        name: Box<str>,
        /// The key of the last relay.
        key: Option<PublicKey>,
    },
}

impl LaneRemote {
    /// Returns the end of a path.
    pub fn from_path(path: &Path) -> Self {
        let key = path.hops.last().and_then(|hop| hop.peering()).map(|peering| peering.key);
        Self::Path { name: path.name.clone(), key }
    }

    /// Returns the next relay of a path that the previous relay has chosen.
    pub fn next_hop(path_choice: &PathChoice) -> Option<Self> {
        let peering = path_choice.path.hops.first()?.peering()?;
        Some(Self::Next { name: path_choice.path.name.clone(), key: peering.key })
    }

    /// Returns the name in the status: of the path, or of the relay.
    pub const fn name(&self) -> &str {
        match self {
            Self::Dialler { name, .. } | Self::Next { name, .. } | Self::Path { name, .. } => name,
        }
    }

    const fn key(&self) -> Option<PublicKey> {
        match self {
            Self::Dialler { key, .. } | Self::Next { key, .. } => Some(*key),
            Self::Path { key, .. } => *key,
        }
    }

    /// Returns the access rules for the relay, one policy for each section listener that admits it. If none does, no
    /// rules restrict the destinations of the packets that the relay sends.
    pub fn access_rules<'c>(&self, config: &'c Config) -> Vec<AccessPolicy<'c>> {
        let Some(key) = self.key() else { return Vec::new() };
        let policy = |listener: &'c Arc<Listener>| {
            let peer = match &listener.section.as_ref()?.peers {
                Some(peers) => Some(&peers.0.get(&key)?.access),
                None => None,
            };
            Some(AccessPolicy { listener: &listener.access, peer })
        };
        config.listeners.iter().filter_map(policy).collect()
    }

    fn is_reached_by(&self, path: &Path) -> bool {
        match self {
            Self::Dialler { key, .. } => matches!(path.hops.as_slice(), [hop] if hop.has_key(key)),
            Self::Next { key, .. } => path.hops.first().is_some_and(|hop| hop.has_key(key)),
            Self::Path { name, .. } => path.name == *name,
        }
    }
}

/// The source bindings of one configuration.
#[derive(Debug, Default)]
pub struct SourceBindings {
    /// The networks of the peers that have `from=`.
    networks: BTreeMap<PublicKey, Vec<Network>>,
    /// The peer without `from=`, if there is exactly one and no listener is open to others.
    sole_unbound_peer: Option<PublicKey>,
}

impl SourceBindings {
    /// Collects the bindings of the peers of all section listeners.
    pub fn new(config: &Config) -> Self {
        let sections = || config.listeners.iter().filter_map(|listener| listener.section.as_ref());
        let peers = || sections().filter_map(|section| section.peers.as_deref()).flat_map(|Peers(peers)| peers);
        let mut networks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, nets) in peers().filter_map(|(key, peer)| Some((key, peer.from.as_ref()?))) {
            networks.entry(*key).or_default().extend(nets);
        }
        let unbound: BTreeSet<_> = peers().map(|(key, _)| *key).filter(|key| !networks.contains_key(key)).collect();
        let is_open = sections().any(|section| section.peers.is_none());
        let sole_unbound_peer = unbound.first().copied().filter(|_| unbound.len() == 1 && !is_open);
        Self { networks, sole_unbound_peer }
    }

    /// Returns whether `remote` may send packets with this source address into a tunnel.
    pub fn permits(&self, config: &Config, remote: &LaneRemote, source: IpAddr) -> bool {
        if let Some(nets) = remote.key().and_then(|key| self.networks.get(&key)) {
            return contains_address(nets, source);
        }
        let mut paths = paths(config, source).peekable();
        if paths.peek().is_none() {
            remote.key().is_some() && remote.key() == self.sole_unbound_peer && !self.is_bound(source)
        } else {
            paths.any(|path| remote.is_reached_by(path))
        }
    }

    /// Returns whether packets with this source address may be forwarded from a neighbour to the next relay, if no
    /// tunnel of this host leads to the address. The routes of this relay do not apply, because the dialling relay has
    /// chosen the path.
    pub fn permits_through(&self, remote: &LaneRemote, source: IpAddr) -> bool {
        match remote.key().and_then(|key| self.networks.get(&key)) {
            Some(nets) => contains_address(nets, source),
            None => !self.is_bound(source),
        }
    }

    /// Returns whether the `from=` of any peer contains the address.
    fn is_bound(&self, source: IpAddr) -> bool {
        self.networks.values().any(|nets| contains_address(nets, source))
    }

    /// Returns the networks of tunnels that the configuration binds to no peer; no peer may send from them.
    fn unbound_networks(&self, config: &Config) -> Vec<Network> {
        let nets = config.tunnels().filter(|(_, tun)| tun.answer_only).flat_map(|(_, tun)| &tun.nets);
        let is_bound = |net: &Network| self.networks.values().flatten().any(|from| from.overlaps(net));
        nets.filter(|net| self.sole_unbound_peer.is_none() && !is_bound(net)).copied().collect()
    }
}

impl Config {
    /// Returns a warning for each network from which no peer may send packets.
    #[must_use]
    pub fn unbound_network_warnings(&self) -> Vec<String> {
        let warning = |net: Network| {
            format!(
                "no peer may send packets from {net}, so only TCP crosses: no route assigns {net} to a peer; add \
                 from={net} to the line of the peer in the file of peers"
            )
        };
        SourceBindings::new(self).unbound_networks(self).into_iter().map(warning).collect()
    }
}

/// Returns the paths over relays that packets to `ip` may take; none in a network with `answer_only`.
fn paths(config: &Config, ip: IpAddr) -> impl Iterator<Item = &Path> {
    let answers_only = config.tunnels().any(|(_, tun)| tun.answer_only && contains_address(&tun.nets, ip));
    let routes = (!answers_only).then(|| config.routes_into(Network::from(ip))).into_iter().flatten();
    routes.flat_map(|route| &route.paths).map(Arc::as_ref).filter(|path| !path.is_direct())
}

fn contains_address(nets: &[Network], ip: IpAddr) -> bool {
    nets.iter().any(|net| net.contains(ip))
}

#[cfg(test)]
mod tests {
    use ekiden_proto::addr::Host;
    use ekiden_proto::key::PrivateKey;

    use super::*;
    use crate::config::SectionListener;
    use crate::config::read::from_text;

    /// Relays `one`, `two` and `hub` and the networks 10.1.0.0/16 and fd01::/32 of `one`, by two routes; 10.2.0.0/16 of
    /// `two`, by its own path and by `hub`; 10.3.0.0/16 with `answer_only`.
    const TEXT: &str = r#"
version = 1
[[path]]
name = "to-one"
relays = ["one"]
[[path]]
name = "to-two"
relays = ["two"]
[[path]]
name = "by-hub"
relays = ["hub", "two"]
[[route]]
to = ["10.1.5.0/24:53", "10.1.0.0/17"]
path = ["to-one"]
[[route]]
to = ["10.1.0.0/16", "fd01::/32"]
path = ["to-one"]
[[route]]
to = ["10.2.0.0/16:53"]
path = ["by-hub"]
[[route]]
to = ["10.2.0.0/16"]
path = ["direct", "to-two"]
[[route]]
path = ["to-one"]
[[listener]]
bind = "127.0.0.1:0"
[[listener]]
name = "tun"
kind = "tun"
device = "ekiden0"
net = ["10.1.0.0/16", "fd01::/32", "10.2.0.0/16"]
[[listener]]
name = "answers"
kind = "tun"
device = "ekiden1"
net = ["10.3.0.0/16"]
answer_only = true
"#;

    struct TestPeer(&'static str, PublicKey);

    impl TestPeer {
        fn new(name: &'static str) -> Self {
            Self(name, PrivateKey::generate().public_key())
        }

        /// A lane that the peer has dialled.
        fn as_dialler(&self) -> LaneRemote {
            LaneRemote::Dialler { name: self.0.into(), key: self.1 }
        }

        /// A lane in transit whose next relay is the peer.
        fn as_next(&self) -> LaneRemote {
            LaneRemote::Next { name: self.0.into(), key: self.1 }
        }
    }

    struct Bindings {
        sources: SourceBindings,
        config: Config,
    }

    /// The bindings for these peers, each with the options of its line; `None` for an open listener.
    fn bindings(relays: &[TestPeer; 3], peers: Option<&[(&TestPeer, &str)]>) -> Bindings {
        let relay = |peer: &TestPeer| {
            format!(
                "[[relay]]\nname = {:?}\naddress = \"192.0.2.1:7000\"\nkey = \"{}\"\nencrypt = true\n",
                peer.0, peer.1
            )
        };
        let mut config = from_text(&(TEXT.to_owned() + &relays.iter().map(relay).collect::<String>())).unwrap();
        let lines = peers.map(|peers| peers.iter().map(|(peer, more)| format!("{} {} {more}\n", peer.1, peer.0)));
        let peers = lines.map(|lines| Arc::new(Peers::from_text(&lines.collect::<String>(), &[], &[]).unwrap()));
        let listener = Listener::clone(&config.listeners[0]);
        let key = Arc::new(PrivateKey::generate());
        let section =
            SectionListener { public_key: key.public_key(), private_key: key, peers, fleet: false, encrypt: true };
        config.listeners[0] = Arc::new(Listener { section: Some(section), ..listener });
        Bindings { sources: SourceBindings::new(&config), config }
    }

    impl Bindings {
        /// Returns those of one address per network from which `remote` may send.
        fn permitted(&self, remote: &LaneRemote) -> Vec<&'static str> {
            let all = ["10.1.5.1", "10.1.200.1", "fd01::1", "10.2.0.1", "10.3.0.1"];
            all.into_iter().filter(|ip| self.sources.permits(&self.config, remote, ip.parse().unwrap())).collect()
        }

        /// The addresses from which a lane dialled by this path may send.
        fn permitted_by(&self, path: &str) -> Vec<&'static str> {
            let paths = self.config.paths();
            self.permitted(&LaneRemote::from_path(paths.iter().find(|known| *known.name == *path).unwrap()))
        }

        fn unbound(&self) -> Vec<String> {
            self.sources.unbound_networks(&self.config).iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn routes_bind_sources_of_peers_without_from() {
        let relays = ["one", "two", "hub"].map(TestPeer::new);
        let [one, two, hub] = &relays;
        let stranger = TestPeer::new("stranger");
        let of_one = vec!["10.1.5.1", "10.1.200.1", "fd01::1"];
        for peers in [None, Some(&[(one, ""), (two, ""), (hub, ""), (&stranger, "")][..])] {
            let bindings = bindings(&relays, peers);
            assert_eq!(bindings.permitted(&one.as_dialler()), of_one);
            assert_eq!(bindings.permitted(&two.as_dialler()), ["10.2.0.1"]);
            assert_eq!(bindings.permitted(&hub.as_dialler()), [""; 0], "any relay behind the hub may be the sender");
            assert_eq!(bindings.permitted(&hub.as_next()), ["10.2.0.1"], "the other end has chosen the path");
            assert_eq!(bindings.permitted(&stranger.as_dialler()), [""; 0]);
            assert_eq!(bindings.unbound(), ["10.3.0.0/16"]);
            assert_eq!(bindings.permitted_by("to-one"), of_one);
            assert_eq!(bindings.permitted_by("to-two"), ["10.2.0.1"]);
            assert_eq!(bindings.permitted_by("by-hub"), ["10.2.0.1"]);
        }
    }

    #[test]
    fn from_option_replaces_the_binding_by_routes() {
        let relays = ["one", "two", "hub"].map(TestPeer::new);
        let [one, two, hub] = &relays;
        let peers = [(one, "from=10.1.5.0/24,10.3.0.0/24"), (two, ""), (hub, "from=10.2.0.0/16")];
        let bindings = bindings(&relays, Some(&peers));
        assert_eq!(bindings.permitted(&one.as_dialler()), ["10.1.5.1", "10.3.0.1"]);
        assert_eq!(
            bindings.permitted(&two.as_dialler()),
            ["10.2.0.1"],
            "the only peer without from=, but 10.3.0.1 is in a from="
        );
        let another = "10.3.1.1".parse().unwrap();
        assert!(bindings.sources.permits(&bindings.config, &two.as_dialler(), another), "the only peer without from=");
        assert_eq!(bindings.permitted(&hub.as_dialler()), ["10.2.0.1"]);
        assert_eq!(bindings.permitted_by("to-one"), ["10.1.5.1", "10.3.0.1"], "the same if this relay has dialled");
        assert_eq!(bindings.unbound(), [""; 0]);
    }

    #[test]
    fn network_without_a_route_belongs_to_the_only_peer() {
        let relays = ["one", "two", "hub"].map(TestPeer::new);
        let one = TestPeer::new("site");
        let bindings = bindings(&relays, Some(&[(&one, "")]));
        assert_eq!(bindings.permitted(&one.as_dialler()), ["10.3.0.1"]);
        assert_eq!(bindings.permitted(&TestPeer::new("was struck off the list").as_dialler()), [""; 0]);
    }

    #[test]
    fn rules_for_a_relay_are_those_of_the_listeners_that_admit_it() {
        let relays = ["one", "two", "hub"].map(TestPeer::new);
        let [one, two, _] = &relays;
        let Bindings { config, .. } = bindings(&relays, Some(&[(one, "to=203.0.113.0/24")]));
        let by_path = LaneRemote::from_path(config.paths().iter().find(|path| *path.name == *"to-one").unwrap());
        for remote in [one.as_dialler(), one.as_next(), by_path] {
            let rules = remote.access_rules(&config);
            let permits = |ip: [u8; 4]| rules.iter().map(move |policy| policy.permits(&Host::Ip(ip.into()), None, 0));
            assert_eq!(permits([203, 0, 113, 1]).collect::<Vec<_>>(), [true], "{remote:?}");
            assert_eq!(permits([198, 51, 100, 1]).collect::<Vec<_>>(), [false], "{remote:?}");
        }
        assert!(two.as_dialler().access_rules(&config).is_empty());
        let Bindings { config, .. } = bindings(&relays, None);
        assert_eq!(two.as_dialler().access_rules(&config).len(), 1, "an open listener");
    }

    #[test]
    fn transit_packets_are_bound_by_from_only() {
        let relays = ["one", "two", "hub"].map(TestPeer::new);
        let [one, two, hub] = &relays;
        let Bindings { sources, .. } =
            bindings(&relays, Some(&[(one, "from=10.8.0.0/16"), (two, "from=10.9.0.0/16"), (hub, "")]));
        let passing = |peer: &TestPeer| {
            let all = ["10.7.0.1", "10.8.0.1", "10.9.0.1"];
            all.into_iter()
                .filter(|ip| sources.permits_through(&peer.as_dialler(), ip.parse().unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!((passing(one), passing(two), passing(hub)), (vec!["10.8.0.1"], vec!["10.9.0.1"], vec!["10.7.0.1"]));
    }
}
