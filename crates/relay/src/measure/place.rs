//! Which section a connection belongs to.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::key::{KeyError, PublicKey};
use ekiden_proto::path::prefix::Prefix;

use crate::config::Path;

/// What is at the other end of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Another relay.
    Relay(PublicKey),
    /// A proxy of somebody else.
    Proxy(SocketAddr),
    /// Targets that lie together.
    Targets(Prefix),
}

/// What a way begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The target itself.
    Direct,
    /// Another relay.
    Relay(PublicKey),
    /// A proxy of somebody else.
    Proxy,
}

impl Via {
    /// That of `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        match path.hops.first() {
            None => Self::Direct,
            Some(hop) => hop.peering().map_or(Self::Proxy, |peering| Self::Relay(peering.key)),
        }
    }

    /// What is at the other end when `server` was dialled.
    #[must_use]
    pub fn place(self, ServerAddr(server): ServerAddr) -> Place {
        match self {
            Self::Direct => Place::Targets(server.ip().into()),
            Self::Relay(key) => Place::Relay(key),
            Self::Proxy => Place::Proxy(server),
        }
    }
}

impl FromStr for Place {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let targets = text.parse().map(Self::Targets);
        targets.or_else(|_| text.parse().map(Self::Proxy)).or_else(|_| text.parse().map(Self::Relay))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(key) => key.fmt(f),
            Self::Proxy(address) => address.fmt(f),
            Self::Targets(prefix) => prefix.fmt(f),
        }
    }
}
