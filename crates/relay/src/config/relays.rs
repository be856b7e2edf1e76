//! `[[relay]]`, `forward` and `-F`: the next hops.

use std::sync::Arc;

use super::error::Disclosure;
use super::hop::{self, read_peering};
use super::listener::{ListenerSet, is_loop};
use super::place::KeyLocation;
use super::profiles::for_section;
use super::read::Flags;
use super::reader::TableReader;
use super::shared::NamedTables;
use super::shared::ReadContext;
use super::{Hop, HopKind};

/// Reads `[[relay]]`; `names` are those of the tables.
pub(super) fn read(
    readers: Vec<TableReader<'_>>,
    names: &[Option<String>],
    shared: &ReadContext,
    listeners: &ListenerSet,
) -> NamedTables<Arc<Hop>> {
    let mut relays: NamedTables<Arc<Hop>> = NamedTables::new("a relay");
    for (reader, name) in readers.into_iter().zip(names) {
        let hop = read_relay(&reader, shared);
        let in_url = reader.has("url");
        if let Some(hop) = &hop {
            if let Some((key, expected)) = loop_error(hop, shared, listeners) {
                reader.error(if in_url { "url" } else { key }, expected);
            }
            if relays.valid().any(|other| is_same_relay(other, hop)) {
                reader.error(if in_url { "url" } else { "key" }, "a key that no other relay has");
            }
        }
        reader.finish();
        if let Some(name) = name {
            relays.add(name, hop.map(|hop| Arc::new(Hop { name: name.as_str().into(), ..hop })));
        }
    }
    relays
}

/// Reads one `[[relay]]`, all but its name.
fn read_relay(reader: &TableReader<'_>, shared: &ReadContext) -> Option<Hop> {
    if reader.has("url") {
        let url = reader.url("url", hop::EXPECTED);
        reader.set_disclosure("key", Disclosure::PublicKey);
        for key in ["address", "key", "encrypt", "profile"].into_iter().filter(|key| reader.has(key)) {
            reader.error(key, "nothing beside url, which says it all");
        }
        return url.and_then(|(place, text)| hop::read(&place, text, shared));
    }
    if !reader.has("address") {
        reader.error("address", "HOST:PORT of another ekiden, beside its key; or url = as in forward");
    }
    let address = reader.optional("address");
    let peering = read_peering(reader, shared);
    let profile = for_section(shared.profiles.read_profile(reader, "profile"));
    Some(Hop { name: Box::default(), kind: HopKind::Section(peering?), address: address?, profile })
}

/// Why going on to `hop` would come back here, and the key that says so.
fn loop_error(hop: &Hop, shared: &ReadContext, listeners: &ListenerSet) -> Option<(&'static str, String)> {
    if listeners.binds().any(|bind| is_loop(&hop.address, bind)) {
        let expected = format!("another relay: {} is our own listener, this is a loop", hop.address);
        return Some(("address", expected));
    }
    let own = hop.peering().is_some_and(|peering| shared.is_own_key(&peering.key));
    own.then(|| ("key", "the key of another relay: this is our own key".to_owned()))
}

/// Whether both are the same ekiden.
fn is_same_relay(one: &Hop, other: &Hop) -> bool {
    let key = |hop: &Hop| hop.peering().map(|peering| peering.key);
    one.is_section() && key(one) == key(other)
}

/// Reads the hops of all targets that have no other way: those of the command line if there are any.
pub(super) fn read_forward(
    file: &TableReader<'_>,
    command: &KeyLocation<'_>,
    flags: &Flags,
    shared: &ReadContext,
    listeners: &ListenerSet,
    relays: &NamedTables<Arc<Hop>>,
) -> Vec<Arc<Hop>> {
    let written = file.urls("forward", hop::EXPECTED);
    let place = command.child("-F", None);
    let flags = flags.forward.iter().enumerate();
    let flags: Vec<_> = flags.map(|(at, text)| (place.child_item(at, None), text.as_str())).collect();
    let (used, replaced) = if flags.is_empty() { (written, flags) } else { (flags, written) };
    // Replaced, but still to be right in itself.
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
            place.error(Disclosure::Url.disclose_text(text), "each relay once: this is a loop");
        }
        hops.push(hop);
    }
    hops
}

/// Reads a hop: a URL, or the name of a relay.
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
