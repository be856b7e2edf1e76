//! `[[relay]]`, `forward` and `-F`: the next hops.

use std::sync::Arc;

use ekiden_proto::addr::Target;
use ekiden_proto::balance::Balance;

use super::error::{Disclosure, FoundValue};
use super::hop::{self, read_peering};
use super::listener::{ListenerSet, is_loop};
use super::place::KeyLocation;
use super::profiles::for_section;
use super::read::Flags;
use super::reader::TableReader;
use super::shared::NamedTables;
use super::shared::ReadContext;
use super::value::ConfigValue;
use super::{Hop, HopKind, RelayGroup};

/// Reads the tables `[[relay]]`, whose names are `names`.
pub(super) fn read(
    readers: Vec<TableReader<'_>>,
    names: &[Option<String>],
    shared: &ReadContext,
    listeners: &ListenerSet,
) -> NamedTables<Arc<Hop>> {
    let mut relays: NamedTables<Arc<Hop>> = NamedTables::new("a relay");
    for (reader, name) in readers.into_iter().zip(names) {
        let hop = read_relay(&reader, name.as_deref().unwrap_or_default(), shared);
        let has_url = reader.has("url");
        if let Some(hop) = &hop {
            if let Some((key, expected)) = loop_error(hop, shared, listeners) {
                reader.error(if has_url { "url" } else { key }, expected);
            }
            if relays.valid().any(|other| is_same_relay(other, hop)) {
                reader.error(if has_url { "url" } else { "key" }, "a key that no other relay has");
            }
        }
        reader.finish();
        if let Some(name) = name {
            relays.add(name, hop);
        }
    }
    relays
}

/// Reads one `[[relay]]` with this name, which may be a group.
fn read_relay(reader: &TableReader<'_>, name: &str, shared: &ReadContext) -> Option<Arc<Hop>> {
    if reader.has("url") {
        let url = reader.url("url", hop::EXPECTED);
        reader.set_disclosure("key", Disclosure::PublicKey);
        for key in ["address", "balance", "key", "encrypt", "profile"].into_iter().filter(|key| reader.has(key)) {
            reader.error(key, "this key only without url, which contains all settings of the relay");
        }
        let hop = url.and_then(|(place, text)| hop::read(&place, text, shared));
        return hop.map(|hop| Arc::new(Hop { name: name.into(), ..hop }));
    }
    let addresses = read_addresses(reader);
    let balance = reader.optional::<Balance>("balance");
    if balance.is_some() && addresses.len() < 2 {
        reader.error("balance", "no balance: the relay has only one address");
    }
    let peering = read_peering(reader, shared);
    let profile = for_section(shared.profiles.read_profile(reader, "profile"));
    let kind = HopKind::Section(peering?);
    let hop = |name: String, address: &Target, group| {
        let (kind, address, profile) = (kind.clone(), address.clone(), Arc::clone(&profile));
        Arc::new(Hop { name: name.into(), kind, address, profile, group })
    };
    let first = addresses.first()?;
    let group = (addresses.len() > 1).then(|| RelayGroup {
        balance: balance.unwrap_or_default(),
        members: addresses.iter().map(|address| hop(format!("{name}@{address}"), address, None)).collect(),
    });
    Some(hop(name.to_owned(), first, group))
}

/// Reads the addresses of a relay, without duplicates; empty if `address` is missing.
fn read_addresses(reader: &TableReader<'_>) -> Vec<Target> {
    if !reader.has("address") {
        reader.error(
            "address",
            "HOST:PORT of another ekiden, with its public key in key; or url, in the syntax of forward",
        );
        return Vec::new();
    }
    let mut addresses = Vec::new();
    for (place, address) in reader.non_empty_list::<Target>("address") {
        if addresses.contains(&address) {
            place.error(FoundValue::Value(format!("\"{address}\"")), "each address once");
        }
        addresses.push(address);
    }
    addresses
}

/// Returns why connections to `hop` would lead back to this relay, and the key of the mistake.
fn loop_error(hop: &Arc<Hop>, shared: &ReadContext, listeners: &ListenerSet) -> Option<(&'static str, String)> {
    let is_own = |member: &&Arc<Hop>| listeners.binds().any(|bind| is_loop(&member.address, bind));
    if let Some(member) = hop.members().iter().find(is_own) {
        let expected =
            format!("another relay: {} is a listener of this relay, and sessions would loop", member.address);
        return Some(("address", expected));
    }
    let is_own_key = hop.peering().is_some_and(|peering| shared.is_own_key(&peering.key));
    is_own_key.then(|| ("key", "the key of another relay, not of this relay".to_owned()))
}

/// Whether both hops are the same ekiden.
fn is_same_relay(one: &Hop, other: &Hop) -> bool {
    let key = |hop: &Hop| hop.peering().map(|peering| peering.key);
    one.is_section() && key(one) == key(other)
}

/// Returns why the second of two consecutive hops cannot be a group if the first is a proxy: the proxy gets one
/// address, and load and health of the other members are unknown.
pub(super) fn proxied_group_error(hops: &[Arc<Hop>]) -> Option<String> {
    let is_proxy = |hop: &Hop| matches!(hop.kind, HopKind::Socks5(_) | HopKind::Http(_));
    let group = hops.windows(2).find(|pair| is_proxy(&pair[0]) && pair[1].group.is_some())?;
    Some(format!("a relay with one address behind the proxy {}: {} has several addresses", group[0], group[1]))
}

/// Reads the hops for all targets without a route: those of the command line if there are any.
pub(super) fn read_forward(
    file: &TableReader<'_>,
    command: &KeyLocation<'_>,
    flags: &Flags,
    shared: &ReadContext,
    listeners: &ListenerSet,
    relays: &NamedTables<Arc<Hop>>,
) -> Vec<Arc<Hop>> {
    let from_file = file.urls("forward", hop::EXPECTED);
    let place = command.child("-F", None);
    let flags = flags.forward.iter().enumerate();
    let flags: Vec<_> = flags.map(|(at, text)| (place.child_item(at, None), text.as_str())).collect();
    let (used, replaced) = if flags.is_empty() { (from_file, flags) } else { (flags, from_file) };
    // Read although the command line replaces them, so that their mistakes are reported.
    for (place, text) in replaced {
        read_hop(&place, text, shared, relays);
    }
    let mut hops: Vec<Arc<Hop>> = Vec::new();
    for (place, text) in used {
        let Some(hop) = read_hop(&place, text, shared, relays) else { continue };
        if let Some((_, expected)) = loop_error(&hop, shared, listeners) {
            place.error(Disclosure::Url.disclose_text(text), expected);
        }
        if hops.iter().any(|earlier| is_same_relay(earlier, &hop)) {
            place.error(Disclosure::Url.disclose_text(text), "each relay once: sessions would loop");
        }
        hops.push(hop);
        if let Some(expected) = proxied_group_error(&hops) {
            place.error(Disclosure::Url.disclose_text(text), expected);
            break;
        }
    }
    hops
}

/// Reads a hop, which is a URL or the name of a relay; `None` after reporting a mistake.
fn read_hop(
    place: &KeyLocation<'_>,
    text: &str,
    shared: &ReadContext,
    relays: &NamedTables<Arc<Hop>>,
) -> Option<Arc<Hop>> {
    match relays.get(text) {
        Some(relay) => relay.clone(),
        None if text.contains("://") => hop::read(place, text, shared).map(Arc::new),
        None => {
            let name = relays.expected(text);
            let expected = hop::scheme_hint(text).unwrap_or_else(|| format!("{}, or {name}", hop::EXPECTED));
            place.error(Disclosure::Url.disclose_text(text), expected);
            None
        }
    }
}

impl ConfigValue for Balance {
    const EXPECTED: &'static str = r#""least" or "client""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        Self::ALL.into_iter().find(|balance| balance.as_str() == text).ok_or(Self::EXPECTED)
    }
}
