//! Kernel rules that intercept connections of other hosts: nftables, policy routing, and a queue in which first packets
//! wait for the gate.
//!
//! A first packet is the SYN of a connection. It passes these chains in prerouting, all before conntrack:
//!
//! `catch` marks the packet CAUGHT → the queue, where the gate replaces the mark by its verdict → `steer`: to the
//! listener (TPROXY), forwarded as without a relay, or rejected with a reset or an ICMP error.
//!
//! Any other packet is delivered locally only if a transparent socket of this relay matches it, so connections that
//! began without the relay continue without it. When the daemon is not running, or the queue is full, packets keep the
//! mark CAUGHT and are forwarded. A kernel without a queue has no gate, and these packets go to the listener.
//!
//! Packets from a tunnel's device without a local socket would be forwarded into the tunnel again; they are rejected instead.

mod apply;
mod counters;
mod error;
pub mod marks;
mod nft;
mod owner;
mod queue;
mod routing;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{Config, Listener, ListenerKind, QuicPolicy};

pub use apply::{Applied, claim, forget_ended, remove};
pub use apply::{has_parts, probe};
pub use counters::{Counter, counters};
pub use error::RulesError;
pub use marks::Marks;
pub use owner::{Holder, Owner, holder};
pub use queue::Queue;

/// The kernel rules of one daemon.
#[derive(Debug, Clone)]
pub struct Ruleset {
    marks: Marks,
    families: Vec<Family>,
    listeners: Vec<Arc<Listener>>,
    /// The devices of tunnels.
    devices: Vec<String>,
    /// Whether the packets of sessions are translated: there is, or was, a listener of kind `redirect`.
    translates: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Ruleset {
    /// Returns the rules that `config` needs; `None` if it needs none.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        let needs = |listener: &&Arc<Listener>| listener.keep_client_address || listener.kind.is_transparent();
        let with_rules = config.listeners.iter().filter(needs);
        let mut families: Vec<_> = with_rules.flat_map(|listener| Family::of_clients(listener)).copied().collect();
        families.sort_unstable();
        families.dedup();
        let (marks, listeners) = (config.marks(), config.transparent_listeners().cloned().collect());
        let devices = config.tunnels().map(|(_, tun)| tun.device.clone()).collect();
        let translates = config.listeners.iter().any(|listener| listener.kind == ListenerKind::Redirect);
        (!families.is_empty()).then_some(Self { marks, families, listeners, devices, translates })
    }

    /// Adds what sessions need that began under the rules `earlier`, which these rules replace.
    pub fn add_sessions_of(&mut self, earlier: &Self) {
        self.translates |= earlier.translates;
        self.families.extend(&earlier.families);
        self.families.sort_unstable();
        self.families.dedup();
    }

    /// Returns the number of the daemon on this host that owns the rules.
    #[must_use]
    pub const fn instance(&self) -> u8 {
        self.marks.instance()
    }

    /// Returns the rules without interception: running sessions still receive their packets, and new connections bypass
    /// the relay.
    #[must_use]
    pub fn released(&self) -> Self {
        Self { listeners: Vec::new(), ..self.clone() }
    }

    /// Returns the rules as a shell script, equivalent to [`Ruleset::apply`] on a host without rules of this instance.
    #[must_use]
    pub fn script(&self, queue: &Queue) -> String {
        let mut script = format!(
            "#!/bin/sh\n# The rules of ekiden, instance {}. This script adds them where there are none; `ekiden rules apply`\n\
             # replaces older ones, and `ekiden rules remove --instance {0}` takes them out again.\nset -e\n",
            self.marks.instance()
        );
        let mut part = |command: &str, text: &str| script += &format!("\n{command} <<'END'\n{text}END\n");
        for family in &self.families {
            let (ip, text) = (family.flag(), routing::add(self.marks));
            part(&format!("ip {ip} -batch -"), &text);
        }
        if *queue == Queue::Iptables && self.holds() {
            for family in &self.families {
                part(&format!("{} --noflush", family.restore()), &queue::add(self, true));
            }
        }
        part("nft -f -", &nft::text(self, queue, &Owner::Operator.comment(self.marks)));
        script
    }

    /// Returns whether `other` has the same effect in the kernel.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.script(&Queue::Nft) == other.script(&Queue::Nft)
    }

    /// Returns the listeners that intercept traffic of other hosts, with their numbers.
    fn catching_others(&self) -> impl Iterator<Item = (usize, &Listener)> {
        let listeners = self.listeners.iter().map(AsRef::as_ref).enumerate();
        listeners.filter(|(_, listener): &(usize, &Listener)| interfaces(listener).any(|name| name != OWN_PROGRAMS))
    }

    /// Returns matches of packets that a wildcard-bound listener of this relay could receive.
    fn listening_everywhere(&self) -> impl Iterator<Item = String> {
        let is_wildcard = |listener: &&Arc<Listener>| by_tproxy(listener) && listener.bind.ip().is_unspecified();
        let ports: BTreeSet<u16> =
            self.listeners.iter().filter(is_wildcard).map(|listener| listener.bind.port()).collect();
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        (!ports.is_empty()).then(|| format!("tcp dport {{ {} }}", ports.join(", "))).into_iter()
    }

    /// Returns the listeners that intercept traffic of other hosts by address translation, with their numbers.
    fn redirecting(&self) -> impl Iterator<Item = (usize, &Listener)> {
        self.catching_others().filter(|(_, listener)| !by_tproxy(listener))
    }

    /// Returns the listeners that intercept traffic of programs on this host, with their numbers.
    fn catching_own_programs(&self) -> impl Iterator<Item = (usize, &Listener)> {
        let listeners = self.listeners.iter().map(AsRef::as_ref).enumerate();
        listeners.filter(|(_, listener): &(usize, &Listener)| interfaces(listener).any(|name| name == OWN_PROGRAMS))
    }

    /// Returns the listeners with a rule for QUIC, with their numbers. Tunnels have none, because they carry UDP.
    fn judging_quic(&self) -> impl Iterator<Item = (usize, &Listener, QuicPolicy)> {
        let listeners = self.listeners.iter().map(AsRef::as_ref).enumerate();
        let listeners = listeners.filter(|(_, listener): &(usize, &Listener)| listener.tun.is_none());
        listeners.filter_map(|(number, listener)| Some((number, listener, listener.capture.as_ref()?.quic)))
    }

    /// Returns an nftables set of the tunnels' devices; `None` without tunnels.
    fn devices(&self) -> Option<String> {
        (!self.devices.is_empty()).then(|| nft::set(self.devices.iter().map(String::as_str)))
    }

    /// Returns whether first packets wait for the gate. First packets of programs on this host do not.
    fn holds(&self) -> bool {
        self.catching_others().next().is_some()
    }
}

/// The interface name that stands for programs on this host.
const OWN_PROGRAMS: &str = "lo";

fn interfaces(listener: &Listener) -> impl Iterator<Item = &str> {
    listener.capture.iter().flat_map(|capture| &capture.interfaces).map(String::as_str)
}

/// Returns whether the listener intercepts by TPROXY, not by address translation.
fn by_tproxy(listener: &Listener) -> bool {
    listener.kind.uses_tproxy()
}

impl Family {
    /// Returns the families of the connections that a listener at `bind` accepts.
    fn of(bind: SocketAddr) -> &'static [Self] {
        match bind {
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => &[Self::Ipv4, Self::Ipv6],
            bind if bind.ip().to_canonical().is_ipv4() => &[Self::Ipv4],
            _ => &[Self::Ipv6],
        }
    }

    /// Returns the families of the clients whose addresses the sockets of a listener have. A section carries clients of
    /// both families.
    fn of_clients(listener: &Listener) -> &'static [Self] {
        if listener.kind == ListenerKind::Section && routing::is_supported(Self::Ipv6) {
            return &[Self::Ipv4, Self::Ipv6];
        }
        Self::of(listener.bind)
    }

    /// Returns the option of ip(8) for the family.
    const fn flag(self) -> &'static str {
        match self {
            Self::Ipv4 => "-4",
            Self::Ipv6 => "-6",
        }
    }

    /// Returns the name of `iptables-restore` for the family.
    const fn restore(self) -> &'static str {
        match self {
            Self::Ipv4 => "iptables-restore",
            Self::Ipv6 => "ip6tables-restore",
        }
    }

    /// Returns the name of `iptables-save` for the family.
    const fn save(self) -> &'static str {
        match self {
            Self::Ipv4 => "iptables-save",
            Self::Ipv6 => "ip6tables-save",
        }
    }

    /// Returns the keyword of nft(8) in an address match.
    const fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
        }
    }
}
