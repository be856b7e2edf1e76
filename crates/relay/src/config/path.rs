//! What is meant by the ways to a target: routes, paths, and the hops in them.

use std::fmt;
use std::sync::Arc;

use ekiden_proto::addr::Target;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::profile::Profile;

use super::TargetPattern;

/// Where sessions to some targets go.
#[derive(Debug, Clone)]
pub struct Route {
    /// The targets it is for; none for all.
    pub to: Vec<TargetPattern>,
    /// The ways, the best first; at least one. Where the relay chooses, those that race as long as it knows too little.
    pub paths: Vec<Arc<Path>>,
    /// Whether the relay chooses among direct and all that it can make of the relays it knows.
    pub auto: bool,
    /// TCP settings of sections dialled to the targets themselves.
    pub profile: Arc<Profile>,
}

/// The hops between this relay and a target.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// Its name in logs: that of `[[path]]`, or its hops, or `direct`.
    pub name: Box<str>,
    /// The hops in order; none for `direct`.
    pub hops: Vec<Arc<Hop>>,
}

impl Path {
    /// The name of the path without hops.
    pub const DIRECT: &str = "direct";

    /// One that has no name of its own.
    #[must_use]
    pub fn from_hops(hops: Vec<Arc<Hop>>) -> Self {
        if hops.is_empty() {
            return Self { name: Self::DIRECT.into(), hops };
        }
        let name = hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Self { name: name.into(), hops }
    }
}

/// The next thing a relay dials on the way to a target.
#[derive(Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name in logs and metrics: that of `[[relay]]`, or its URL without the credentials.
    pub name: Box<str>,
    /// The protocol it speaks, and what it wants from us.
    pub kind: HopKind,
    /// Where it listens.
    pub address: Target,
    /// TCP settings of the section to it.
    pub profile: Arc<Profile>,
}

/// The protocol of a [`Hop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HopKind {
    /// Another ekiden.
    Section(Peering),
    /// SOCKS5.
    Socks5(Option<Credentials>),
    /// HTTP proxy with CONNECT.
    Http(Option<Credentials>),
    /// A relay of the fleet that is not there now.
    Absent,
}

/// What it takes to call another ekiden.
#[derive(Debug, Clone)]
pub struct Peering {
    /// Its key.
    pub key: PublicKey,
    /// Ours.
    pub own_key: Arc<PrivateKey>,
    /// Whether sessions to it are encrypted.
    pub encrypt: bool,
}

/// User name and password for a hop. Never printed: there is no `Display`, and `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl HopKind {
    /// Its word in the configuration, in logs and in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Section(_) => "section",
            Self::Socks5(_) => "socks5",
            Self::Http(_) => "http",
            Self::Absent => "absent",
        }
    }
}

impl Hop {
    /// What it takes to call it, where it is another ekiden.
    #[must_use]
    pub fn peering(&self) -> Option<&Peering> {
        match &self.kind {
            HopKind::Section(peering) => Some(peering),
            HopKind::Socks5(_) | HopKind::Http(_) | HopKind::Absent => None,
        }
    }

    /// Whether it is the ekiden with this key.
    #[must_use]
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.peering().is_some_and(|peering| peering.key == *key)
    }

    /// Whether it is another ekiden.
    #[must_use]
    pub fn is_section(&self) -> bool {
        self.peering().is_some()
    }
}

/// Two are the same when they call the same relay as the same one, in the same way.
impl PartialEq for Peering {
    fn eq(&self, other: &Self) -> bool {
        // Public halves have to be computed, and nearly always both are the same key anyway.
        let same_own =
            || Arc::ptr_eq(&self.own_key, &other.own_key) || self.own_key.public_key() == other.own_key.public_key();
        (self.key, self.encrypt) == (other.key, other.encrypt) && same_own()
    }
}

impl Eq for Peering {}

/// Its name, for logs and metrics.
impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
