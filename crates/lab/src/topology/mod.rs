//! Hosts and links: what a lab file says ([`mod@file`]), the namespaces they become ([`network`]), and a lab that runs.

use std::collections::BTreeMap;

use ekiden_proto::units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;

pub mod counters;
pub mod file;
pub mod host;
pub mod ip;
mod netem;
pub mod network;
pub mod plan;
pub mod routes;
pub mod running;
pub mod sandbox;
pub mod shell;
pub mod window;

/// A lab: everything a file says about hosts and links, with every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lab {
    /// What it is called.
    pub name: String,
    /// What every random decision in it depends on.
    pub seed: u64,
    /// How packets are handed over.
    pub mode: EmulationMode,
    /// By what means packets get from a host to the emulator.
    pub backend: Backend,
    /// Hosts by name; each is a network namespace.
    pub hosts: BTreeMap<String, Host>,
    /// Links by name.
    pub links: BTreeMap<String, Link>,
    /// What changes while the lab runs, in order of time.
    pub events: Vec<LinkEvent>,
}

impl Lab {
    /// Whether a link needs no emulator: it is perfect, and no event changes that.
    #[must_use]
    pub fn is_bare(&self, link: &str) -> bool {
        self.links.get(link).is_some_and(Link::is_bare) && self.events.iter().all(|event| event.link != link)
    }
}

/// How the emulator hands packets over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmulationMode {
    /// Every packet of the wire by itself, at its own time.
    Exact,
    /// Packets gather for [`FAST_QUANTUM`](crate::emulator::FAST_QUANTUM), and neighbours go together as one superpacket.
    Fast,
    /// The same for [`COARSE_QUANTUM`](crate::emulator::COARSE_QUANTUM): a third of the work, where packets are 100 µs apart.
    Coarse,
    /// `exact` for directions whose rate a machine can keep up with, `fast` for the others.
    #[default]
    Auto,
}

impl EmulationMode {
    /// The mode in which links are checked: coarse ones decide as all others, and would only hide when.
    #[must_use]
    pub const fn for_check(self) -> Self {
        match self {
            Self::Coarse => Self::Auto,
            mode => mode,
        }
    }
}

/// By what means packets get from a host to the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A veth pair for each end, the emulator behind `AF_PACKET` sockets.
    #[default]
    Packet,
    /// A TUN device in each end.
    Tun,
    /// A veth pair and the kernel's own netem: for cross-checking, where the kernel has it.
    Netem,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Whether it forwards packets that are not for it.
    pub forward: bool,
    /// The congestion control of every connection it makes or accepts; pinned by its routes. Empty: the kernel's default.
    pub congestion: Option<String>,
    /// How much one of its connections has under way at most, in either direction; see [`window`]. None: what the kernel's own
    /// defaults allow.
    pub window: Option<Bytes>,
    /// The shortest time until one of its connections sends again what nobody has acknowledged; pinned by its routes. None:
    /// the kernel's default, or what a program asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Span>,
    /// How it finds out what was lost.
    #[serde(skip_serializing_if = "LossRecovery::is_new")]
    pub recovery: LossRecovery,
    /// Its own sysctls, as in `net.ipv4.tcp_rmem = "4096 131072 1048576"`.
    pub sysctl: BTreeMap<String, String>,
    /// Whether its interfaces segment and merge for it.
    pub offload: Offload,
}

/// How a host finds out what was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossRecovery {
    /// As the kernel does: SACK (RFC 2018), RACK and TLP (RFC 8985), F-RTO (RFC 5682).
    #[default]
    New,
    /// By three duplicate acknowledgements (RFC 6582), or when the timeout is over: without any of these.
    Old,
}

impl LossRecovery {
    const fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }

    /// The sysctls that make it.
    #[must_use]
    pub fn sysctls(self) -> &'static [&'static str] {
        match self {
            Self::New => &[],
            // Each is off at 0.
            Self::Old => &[
                "net.ipv4.tcp_sack",
                "net.ipv4.tcp_dsack",
                "net.ipv4.tcp_recovery",
                "net.ipv4.tcp_early_retrans",
                "net.ipv4.tcp_frto",
            ],
        }
    }
}

/// Segmentation offload of a host's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Superpackets of up to 64 KiB, as on any real host.
    #[default]
    Gso,
    /// Every packet by itself.
    Off,
}

/// A link between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// The hosts at its ends.
    pub ends: [String; 2],
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// From `ends[0]` to `ends[1]`.
    pub forward: Conditions,
    /// From `ends[1]` to `ends[0]`.
    pub reverse: Conditions,
}

impl Link {
    /// Whether both directions are perfect: then it is a bare veth pair, and no emulator is in it.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let perfect = Conditions { count: self.forward.count, ..Conditions::default() };
        self.forward == perfect && Conditions { count: self.reverse.count, ..perfect } == self.reverse
    }
}

/// A change while the lab runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkEvent {
    /// When, since the lab started.
    pub at: Span,
    /// Which link.
    pub link: String,
    /// What its directions are like from then on.
    pub forward: Conditions,
    /// The other direction.
    pub reverse: Conditions,
}
