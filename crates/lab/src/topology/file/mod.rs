//! The lab file: hosts, links and events as a person writes them, in TOML.
//!
//! Hosts and links inherit from `[default.host]` and `[default.link]`, the reverse direction of a link from its forward one,
//! key by key; `KEY = false` does without what would be inherited. Units are mandatory, unknown keys are mistakes, and all
//! mistakes are told at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use toml::{Table, Value};

use crate::topology::file::hosts::named_well;
use crate::topology::{Backend, Lab, Mode, routes};

mod conditions;
mod hosts;
mod inherit;
pub mod lines;
mod links;
mod mistakes;
mod senders;
pub mod words;
mod write;

pub use mistakes::{Mistake, Mistakes};

/// The keys of a lab at the top of a file. An experiment's file has others besides, which its reader takes out before.
pub const LAB_KEYS: [&str; 9] = ["lab", "name", "seed", "mode", "backend", "default", "host", "link", "event"];

/// The format this reads.
const VERSION: i64 = 1;

/// Labs that come with the laboratory: name and text of every one.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("acceptance", include_str!("../../../labs/acceptance.toml")),
    ("bufferbloat", include_str!("../../../labs/bufferbloat.toml")),
    ("long", include_str!("../../../labs/long.toml")),
    ("lossy", include_str!("../../../labs/lossy.toml")),
];

/// Reads a lab: one of [`BUILT_IN`] by its name, or a file that holds a lab and nothing else.
///
/// # Errors
/// It cannot be read, is not TOML, or all [`Mistakes`] in it.
pub fn read(path: &Path) -> anyhow::Result<Lab> {
    let built_in = BUILT_IN.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
    let text = built_in.map_or_else(|| fs::read_to_string(path), Ok).with_context(|| {
        let names = BUILT_IN.map(|(name, _)| name).join(", ");
        format!("cannot read the lab file {}; labs that need no file are {names}", path.display())
    })?;
    let table: Table = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
    parse(table).map_err(|mistakes| {
        let told = lines::with_lines(&text, mistakes.iter().map(Mistake::to_string));
        anyhow::anyhow!("mistakes in {}:\n{}", path.display(), told.join("\n"))
    })
}

/// Makes a lab of the table of a file.
///
/// # Errors
/// Every mistake in it.
pub fn parse(mut table: Table) -> Result<Lab, Mistakes> {
    let mut mistakes = Mistakes::default();
    for key in table.keys().filter(|key| !LAB_KEYS.contains(&key.as_str())) {
        mistakes.unknown(key, &LAB_KEYS);
    }
    version(table.remove("lab"), &mut mistakes);
    let name = name(table.remove("name"), &mut mistakes);
    let seed = table.remove("seed").map_or(Some(1), |value| seed(&value, &mut mistakes));
    let mode: Option<Mode> = chosen(&mut table, "mode", r#""exact", "fast", "coarse" or "auto""#, &mut mistakes);
    let backend: Option<Backend> = chosen(&mut table, "backend", r#""packet", "tun" or "netem""#, &mut mistakes);
    let [host_default, link_default] = defaults(table.remove("default"), &mut mistakes);
    let hosts = hosts::read(table.remove("host"), &host_default, &mut mistakes);
    let mut links = links::read(table.remove("link"), &link_default, &hosts, &mut mistakes);
    let events = links.read_events(table.remove("event"), &mut mistakes);
    let (Some(name), Some(seed), Some(mode), Some(backend)) = (name, seed, mode, backend) else { return Err(mistakes) };
    let mut lab = Lab { name, seed, mode, backend, hosts, links: links.links, events };
    senders::look_up(&mut lab, &mut mistakes);
    if mistakes.count() == 0 {
        reachable(&lab, &mut mistakes);
    }
    mistakes.or(lab)
}

fn version(value: Option<Value>, mistakes: &mut Mistakes) {
    match value {
        Some(Value::Integer(VERSION)) => {}
        Some(other) => mistakes.note("lab", &other, format!("expected {VERSION}, the version of the format")),
        None => mistakes.note_at("lab", format!("is missing; expected lab = {VERSION}, the version of the format")),
    }
}

fn name(value: Option<Value>, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Some(Value::String(name)) if !name.is_empty() => return Some(name),
        Some(other) => mistakes.note("name", &other, "expected what the lab is called"),
        None => mistakes.note_at("name", "is missing; expected what the lab is called"),
    }
    None
}

/// An integer, or beyond what TOML can say, a string.
fn seed(value: &Value, mistakes: &mut Mistakes) -> Option<u64> {
    let seed = match value {
        Value::Integer(seed) => u64::try_from(*seed).ok(),
        Value::String(seed) => seed.parse().ok(),
        _ => None,
    };
    if seed.is_none() {
        mistakes.note("seed", value, "expected a whole number, not negative");
    }
    seed
}

fn chosen<T>(table: &mut Table, key: &str, expected: &str, mistakes: &mut Mistakes) -> Option<T>
where
    T: Default + serde::de::DeserializeOwned,
{
    table.remove(key).map_or_else(|| Some(T::default()), |value| mistakes.read(key, &value, expected))
}

/// `default.host` and `default.link`.
fn defaults(value: Option<Value>, mistakes: &mut Mistakes) -> [Table; 2] {
    const KEYS: [&str; 2] = ["host", "link"];
    let mut defaults = BTreeMap::from_iter(mistakes.tables("default", value));
    for key in defaults.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        mistakes.unknown(format!("default.{key}"), &KEYS);
    }
    KEYS.map(|key| defaults.remove(key).unwrap_or_default())
}

/// Every host has to reach every other. Ways lead back as they lead there.
fn reachable(lab: &Lab, mistakes: &mut Mistakes) {
    for from in lab.hosts.keys() {
        let steps = routes::first_steps(lab, from);
        for to in lab.hosts.keys().filter(|to| *to > from && !steps.contains_key(to.as_str())) {
            let why = routes::obstacle(lab, from, to)
                .map_or_else(|| "no links lead there".to_owned(), |host| format!("{host:?} does not forward"));
            mistakes.note_at("", format!("host {from:?} cannot reach {to:?}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests;
