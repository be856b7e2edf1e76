//! `[[relay]]`, `forward` and `-F`: the next hops.

use std::sync::Arc;

use super::hop::{self, peering};
use super::listener::{Listeners, leads_to};
use super::named::Named;
use super::place::Place;
use super::profiles::tuned;
use super::read::Flags;
use super::reader::Reader;
use super::shared::Shared;
use super::shows::Shows;
use super::{Hop, HopKind};

/// Reads `[[relay]]`; `names` are those of the tables.
pub(super) fn read(
    readers: Vec<Reader<'_>>,
    names: &[Option<String>],
    shared: &Shared,
    listeners: &Listeners,
) -> Named<Arc<Hop>> {
    let mut relays: Named<Arc<Hop>> = Named::new("a relay");
    for (reader, name) in readers.into_iter().zip(names) {
        let hop = relay(&reader, shared);
        let in_url = reader.has("url");
        if let Some(hop) = &hop {
            if let Some((key, expected)) = comes_back(hop, shared, listeners) {
                reader.mistake(if in_url { "url" } else { key }, expected);
            }
            if relays.good().any(|other| is_same(other, hop)) {
                reader.mistake(if in_url { "url" } else { "key" }, "a key that no other relay has");
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
fn relay(reader: &Reader<'_>, shared: &Shared) -> Option<Hop> {
    if reader.has("url") {
        let url = reader.url("url", hop::EXPECTED);
        reader.hide("key", Shows::PublicKey);
        for key in ["address", "key", "encrypt", "profile"].into_iter().filter(|key| reader.has(key)) {
            reader.mistake(key, "nothing beside url, which says it all");
        }
        return url.and_then(|(place, text)| hop::read(&place, text, shared));
    }
    if !reader.has("address") {
        reader.mistake("address", "HOST:PORT of another ekiden, beside its key; or url = as in forward");
    }
    let address = reader.optional("address");
    let peering = peering(reader, shared);
    let profile = tuned(shared.profiles.choose(reader, "profile"));
    Some(Hop { name: Box::default(), kind: HopKind::Section(peering?), address: address?, profile })
}

/// Why going on to `hop` would come back here, and the key that says so.
fn comes_back(hop: &Hop, shared: &Shared, listeners: &Listeners) -> Option<(&'static str, String)> {
    if listeners.binds().any(|bind| leads_to(&hop.address, bind)) {
        let expected = format!("another relay: {} is our own listener, this is a loop", hop.address);
        return Some(("address", expected));
    }
    let own = hop.peering().is_some_and(|peering| shared.is_own(&peering.key));
    own.then(|| ("key", "the key of another relay: this is our own key".to_owned()))
}

/// Whether both are the same ekiden.
fn is_same(one: &Hop, other: &Hop) -> bool {
    let key = |hop: &Hop| hop.peering().map(|peering| peering.key);
    one.is_section() && key(one) == key(other)
}

/// Reads the hops of all targets that have no other way: those of the command line if there are any.
pub(super) fn forward(
    file: &Reader<'_>,
    command: &Place<'_>,
    flags: &Flags,
    shared: &Shared,
    listeners: &Listeners,
    relays: &Named<Arc<Hop>>,
) -> Vec<Arc<Hop>> {
    let written = file.urls("forward", hop::EXPECTED);
    let place = command.below("-F", None);
    let flags = flags.forward.iter().enumerate();
    let flags: Vec<_> = flags.map(|(at, text)| (place.item(at, None), text.as_str())).collect();
    let (used, replaced) = if flags.is_empty() { (written, flags) } else { (flags, written) };
    // Replaced, but still to be right in itself.
    for (place, text) in replaced {
        hop(&place, text, shared, relays);
    }
    let mut hops: Vec<Arc<Hop>> = Vec::new();
    for (place, text) in used {
        let Some(hop) = hop(&place, text, shared, relays) else { continue };
        if let Some((_, expected)) = comes_back(&hop, shared, listeners) {
            place.note(Shows::Url.found_text(text), expected);
        }
        if hops.iter().any(|earlier| is_same(earlier, &hop)) {
            place.note(Shows::Url.found_text(text), "each relay once: this is a loop");
        }
        hops.push(hop);
    }
    hops
}

/// Reads a hop: a URL, or the name of a relay.
fn hop(place: &Place<'_>, text: &str, shared: &Shared, relays: &Named<Arc<Hop>>) -> Option<Arc<Hop>> {
    match relays.get(text) {
        Some(relay) => relay.clone(),
        None if text.contains("://") => hop::read(place, text, shared).map(Arc::new),
        None => {
            let name = relays.expected(text);
            let expected = hop::lacks_scheme(text).unwrap_or_else(|| format!("{}, or {name}", hop::EXPECTED));
            place.note(Shows::Url.found_text(text), expected);
            None
        }
    }
}
