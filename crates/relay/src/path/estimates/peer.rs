//! Which section a connection belongs to.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::key::{KeyError, PublicKey};
use ekiden_proto::path::prefix::Prefix;

use crate::config::Path;

/// The peer at the other end of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerId {
    /// A relay.
    Relay(PublicKey),
    /// A proxy that is no relay.
    Proxy(SocketAddr),
    /// Targets that lie together.
    Targets(Prefix),
}

/// The first hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstHop {
    /// No hop: the target itself.
    Direct,
    /// A relay.
    Relay(PublicKey),
    /// A proxy that is no relay.
    Proxy,
}

impl FirstHop {
    /// The first hop of `path`.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.hops.first() {
            None => Self::Direct,
            Some(hop) => hop.peering().map_or(Self::Proxy, |peering| Self::Relay(peering.key)),
        }
    }

    /// The peer when `server` was dialled.
    #[must_use]
    pub fn peer_id(self, ServerAddr(server): ServerAddr) -> PeerId {
        match self {
            Self::Direct => PeerId::Targets(server.ip().into()),
            Self::Relay(key) => PeerId::Relay(key),
            Self::Proxy => PeerId::Proxy(server),
        }
    }
}

impl FromStr for PeerId {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let targets = text.parse().map(Self::Targets);
        targets.or_else(|_| text.parse().map(Self::Proxy)).or_else(|_| text.parse().map(Self::Relay))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(key) => key.fmt(f),
            Self::Proxy(address) => address.fmt(f),
            Self::Targets(prefix) => prefix.fmt(f),
        }
    }
}
