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

use crate::topology::file::hosts::is_valid_name;
use crate::topology::{Backend, EmulationMode, Lab, routes};

mod conditions;
mod hosts;
pub mod lines;
mod links;
mod mistakes;
mod senders;
pub mod words;
mod write;

pub use mistakes::{LabFileError, LabFileErrors};

/// The keys of a lab at the top of a file. An experiment's file has others besides, which its reader takes out before.
pub const LAB_KEYS: [&str; 9] = ["lab", "name", "seed", "mode", "backend", "default", "host", "link", "event"];

/// The format this reads.
const FORMAT_VERSION: i64 = 1;

/// Labs that come with the laboratory: name and text of every one.
pub const BUILT_IN_LABS: [(&str, &str); 4] = [
    ("acceptance", include_str!("../../../labs/acceptance.toml")),
    ("bufferbloat", include_str!("../../../labs/bufferbloat.toml")),
    ("long", include_str!("../../../labs/long.toml")),
    ("lossy", include_str!("../../../labs/lossy.toml")),
];

/// Reads a lab: one of [`BUILT_IN_LABS`] by its name, or a file that holds a lab and nothing else.
///
/// # Errors
/// It cannot be read, is not TOML, or all [`LabFileErrors`] in it.
pub fn load_lab(path: &Path) -> anyhow::Result<Lab> {
    let built_in = BUILT_IN_LABS.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
    let text = built_in.map_or_else(|| fs::read_to_string(path), Ok).with_context(|| {
        let names = BUILT_IN_LABS.map(|(name, _)| name).join(", ");
        format!("cannot read the lab file {}; labs that need no file are {names}", path.display())
    })?;
    let table: Table = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
    parse_lab(table).map_err(|mistakes| {
        let told = lines::prefix_line_numbers(&text, mistakes.iter().map(LabFileError::to_string));
        anyhow::anyhow!("mistakes in {}:\n{}", path.display(), told.join("\n"))
    })
}

/// Makes a lab of the table of a file.
///
/// # Errors
/// Every mistake in it.
pub fn parse_lab(mut table: Table) -> Result<Lab, LabFileErrors> {
    let mut mistakes = LabFileErrors::default();
    for key in table.keys().filter(|key| !LAB_KEYS.contains(&key.as_str())) {
        mistakes.push_unknown_key(key, &LAB_KEYS);
    }
    check_version(table.remove("lab"), &mut mistakes);
    let name = read_name(table.remove("name"), &mut mistakes);
    let seed = table.remove("seed").map_or(Some(1), |value| read_seed(&value, &mut mistakes));
    let mode: Option<EmulationMode> =
        read_or_default(&mut table, "mode", r#""exact", "fast", "coarse" or "auto""#, &mut mistakes);
    let backend: Option<Backend> =
        read_or_default(&mut table, "backend", r#""packet", "tun" or "netem""#, &mut mistakes);
    let [host_default, link_default] = read_defaults(table.remove("default"), &mut mistakes);
    let hosts = hosts::read_hosts(table.remove("host"), &host_default, &mut mistakes);
    let mut links = links::read_links(table.remove("link"), &link_default, &hosts, &mut mistakes);
    let events = links.read_events(table.remove("event"), &mut mistakes);
    let (Some(name), Some(seed), Some(mode), Some(backend)) = (name, seed, mode, backend) else { return Err(mistakes) };
    let mut lab = Lab { name, seed, mode, backend, hosts, links: links.links, events };
    senders::resolve_senders(&mut lab, &mut mistakes);
    if mistakes.error_count() == 0 {
        check_reachability(&lab, &mut mistakes);
    }
    mistakes.into_result(lab)
}

fn check_version(value: Option<Value>, mistakes: &mut LabFileErrors) {
    match value {
        Some(Value::Integer(FORMAT_VERSION)) => {}
        Some(other) => mistakes.push("lab", &other, format!("expected {FORMAT_VERSION}, the version of the format")),
        None => mistakes
            .push_at_key("lab", format!("is missing; expected lab = {FORMAT_VERSION}, the version of the format")),
    }
}

fn read_name(value: Option<Value>, mistakes: &mut LabFileErrors) -> Option<String> {
    match value {
        Some(Value::String(name)) if !name.is_empty() => return Some(name),
        Some(other) => mistakes.push("name", &other, "expected what the lab is called"),
        None => mistakes.push_at_key("name", "is missing; expected what the lab is called"),
    }
    None
}

/// An integer, or beyond what TOML can say, a string.
fn read_seed(value: &Value, mistakes: &mut LabFileErrors) -> Option<u64> {
    let seed = match value {
        Value::Integer(seed) => u64::try_from(*seed).ok(),
        Value::String(seed) => seed.parse().ok(),
        _ => None,
    };
    if seed.is_none() {
        mistakes.push("seed", value, "expected a whole number, not negative");
    }
    seed
}

fn read_or_default<T>(table: &mut Table, key: &str, expected: &str, mistakes: &mut LabFileErrors) -> Option<T>
where
    T: Default + serde::de::DeserializeOwned,
{
    table.remove(key).map_or_else(|| Some(T::default()), |value| mistakes.read_value(key, &value, expected))
}

/// `default.host` and `default.link`.
fn read_defaults(value: Option<Value>, mistakes: &mut LabFileErrors) -> [Table; 2] {
    const KEYS: [&str; 2] = ["host", "link"];
    let mut defaults = BTreeMap::from_iter(mistakes.read_tables("default", value));
    for key in defaults.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        mistakes.push_unknown_key(format!("default.{key}"), &KEYS);
    }
    KEYS.map(|key| defaults.remove(key).unwrap_or_default())
}

/// Every host has to reach every other. Ways lead back as they lead there.
fn check_reachability(lab: &Lab, mistakes: &mut LabFileErrors) {
    for from in lab.hosts.keys() {
        let steps = routes::next_hops(lab, from);
        for to in lab.hosts.keys().filter(|to| *to > from && !steps.contains_key(to.as_str())) {
            let why = routes::first_non_forwarding_host(lab, from, to)
                .map_or_else(|| "no links lead there".to_owned(), |host| format!("{host:?} does not forward"));
            mistakes.push_at_key("", format!("host {from:?} cannot reach {to:?}: {why}"));
        }
    }
}

/// What names the variant of a table: a queue's kind, a loss's model. With another one, other keys mean something.
const VARIANT_KEYS: [&str; 2] = ["kind", "model"];

/// `base`, changed to what `over` says. A table inside is merged in the same way, unless it says its own kind or model: then
/// it stands for itself.
#[must_use]
pub fn merge_tables(mut base: Table, over: &Table) -> Table {
    for (key, value) in over {
        let value = match (base.remove(key), value) {
            (Some(Value::Table(old)), Value::Table(new)) if !VARIANT_KEYS.iter().any(|tag| new.contains_key(*tag)) => {
                Value::Table(merge_tables(old, new))
            }
            _ => value.clone(),
        };
        base.insert(key.clone(), value);
    }
    base
}

/// Without what is switched off by `false`: so a link does without what it would inherit. (`down = false` is a value.)
#[must_use]
pub fn remove_disabled_keys(mut table: Table) -> Table {
    table.retain(|key, value| key == "down" || *value != Value::Boolean(false));
    table
}

#[cfg(test)]
mod tests;
