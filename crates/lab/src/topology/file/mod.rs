//! The lab file: hosts, links and events in TOML.
//!
//! Hosts and links inherit from `[default.host]` and `[default.link]`, and the reverse direction of a link from its
//! forward direction, key by key. `KEY = false` removes an inherited value. Units are mandatory, unknown keys are
//! errors, and all errors are reported at once.

mod conditions;
mod errors;
mod hosts;
pub mod lines;
mod links;
pub mod traces;
pub mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use toml::{Table, Value};

use super::{Backend, Family, Host, Lab, ModuleParameters, plan};
use ekiden_emulator::conditions::Conditions;
use ekiden_emulator::links::{EmulationMode, Link, LinkEvent};
use hosts::{is_path_component, is_valid_name, sysctl_value};

pub use errors::{LabFileError, LabFileErrors};

/// Top-level keys of a lab. The file of an experiment has further keys, which its reader removes first.
pub const LAB_KEYS: [&str; 11] =
    ["lab", "name", "seed", "mode", "backend", "family", "module", "default", "host", "link", "event"];

/// Version of the file format.
const FORMAT_VERSION: i64 = 1;

/// Built-in labs, as pairs of name and text.
pub const BUILT_IN_LABS: [(&str, &str); 4] = [
    ("acceptance", include_str!("../../../labs/acceptance.toml")),
    ("bufferbloat", include_str!("../../../labs/bufferbloat.toml")),
    ("long", include_str!("../../../labs/long.toml")),
    ("lossy", include_str!("../../../labs/lossy.toml")),
];

/// Reads a lab: one of [`BUILT_IN_LABS`] by name, or a lab file.
///
/// # Errors
/// The file cannot be read or is not TOML, or has [`LabFileErrors`].
pub fn load_lab(path: &Path) -> anyhow::Result<Lab> {
    let built_in = BUILT_IN_LABS.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
    let text = built_in.map_or_else(|| fs::read_to_string(path), Ok).with_context(|| {
        let names = BUILT_IN_LABS.map(|(name, _)| name).join(", ");
        format!("cannot read the lab file {}; built-in labs are {names}", path.display())
    })?;
    let text = traces::inline_traces(text, path.parent().unwrap_or(Path::new("")))
        .with_context(|| path.display().to_string())?;
    let table: Table = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
    parse_lab(table).map_err(|errors| {
        let messages = lines::prefix_line_numbers(&text, errors.iter().map(LabFileError::to_string));
        anyhow::anyhow!("errors in {}:\n{}", path.display(), messages.join("\n"))
    })
}

/// Reads a lab from the table of a file.
///
/// # Errors
/// All errors in the table.
pub fn parse_lab(mut table: Table) -> Result<Lab, LabFileErrors> {
    let mut errors = LabFileErrors::default();
    for key in table.keys().filter(|key| !LAB_KEYS.contains(&key.as_str())) {
        errors.push_unknown_key(key, &LAB_KEYS);
    }
    check_version(table.remove("lab"), &mut errors);
    let name = read_name(table.remove("name"), &mut errors);
    let seed = table.remove("seed").map_or(Some(1), |value| read_seed(&value, &mut errors));
    let mode: Option<EmulationMode> =
        read_or_default(&mut table, "mode", r#""exact", "fast", "coarse" or "auto""#, &mut errors);
    let backend: Option<Backend> = read_or_default(&mut table, "backend", r#""packet", "tun" or "netem""#, &mut errors);
    let family: Option<Family> = read_or_default(&mut table, "family", r#""ipv4" or "ipv6""#, &mut errors);
    let modules = read_module_parameters(table.remove("module"), &mut errors);
    let [host_default, link_default] = read_defaults(table.remove("default"), &mut errors);
    let hosts = hosts::read_hosts(table.remove("host"), &host_default, &mut errors);
    let mut links = links::read_links(table.remove("link"), &link_default, &hosts, &mut errors);
    let events = links.read_events(table.remove("event"), &mut errors);
    let (Some(name), Some(seed), Some(mode), Some(backend), Some(family)) = (name, seed, mode, backend, family) else {
        return Err(errors);
    };
    let mut lab = Lab { name, seed, mode, backend, family, modules, hosts, links: links.links, events };
    links::resolve_senders(&mut lab, &mut errors);
    if errors.error_count() == 0 {
        check_reachability(&lab, &mut errors);
    }
    errors.into_result(lab)
}

fn check_version(value: Option<Value>, errors: &mut LabFileErrors) {
    match value {
        Some(Value::Integer(FORMAT_VERSION)) => {}
        Some(other) => errors.push("lab", &other, format!("expected {FORMAT_VERSION}, the version of the format")),
        None => {
            errors.push_at_key("lab", format!("is missing; expected lab = {FORMAT_VERSION}, the version of the format"))
        }
    }
}

fn read_name(value: Option<Value>, errors: &mut LabFileErrors) -> Option<String> {
    match value {
        Some(Value::String(name)) if !name.is_empty() => return Some(name),
        Some(other) => errors.push("name", &other, "expected the name of the lab"),
        None => errors.push_at_key("name", "is missing; expected the name of the lab"),
    }
    None
}

/// Reads an integer, or a string for values beyond TOML's integers.
fn read_seed(value: &Value, errors: &mut LabFileErrors) -> Option<u64> {
    let seed = match value {
        Value::Integer(seed) => u64::try_from(*seed).ok(),
        Value::String(seed) => seed.parse().ok(),
        _ => None,
    };
    if seed.is_none() {
        errors.push("seed", value, "expected a whole number, not negative");
    }
    seed
}

fn read_or_default<T>(table: &mut Table, key: &str, expected: &str, errors: &mut LabFileErrors) -> Option<T>
where
    T: Default + serde::de::DeserializeOwned,
{
    table.remove(key).map_or_else(|| Some(T::default()), |value| errors.read_value(key, &value, expected))
}

/// Reads the tables `default.host` and `default.link`.
fn read_defaults(value: Option<Value>, errors: &mut LabFileErrors) -> [Table; 2] {
    const KEYS: [&str; 2] = ["host", "link"];
    let mut defaults = BTreeMap::from_iter(errors.read_tables("default", value));
    for key in defaults.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        errors.push_unknown_key(format!("default.{key}"), &KEYS);
    }
    KEYS.map(|key| defaults.remove(key).unwrap_or_default())
}

/// Reads the tables `[module.NAME]` of parameters and values.
fn read_module_parameters(value: Option<Value>, errors: &mut LabFileErrors) -> ModuleParameters {
    let mut modules = ModuleParameters::new();
    for (module, table) in errors.read_tables("module", value) {
        for (parameter, value) in table {
            let is_name = is_path_component(&module) && is_path_component(&parameter);
            match sysctl_value(value) {
                Value::String(value) if is_name => {
                    modules.entry(module.clone()).or_default().insert(parameter, value);
                }
                other => {
                    errors.push(format!("module.{module}.{parameter}"), &other, "expected a parameter like hystart = 0")
                }
            }
        }
    }
    modules
}

/// Verifies that every host reaches every other. Routes are symmetric in reachability.
fn check_reachability(lab: &Lab, errors: &mut LabFileErrors) {
    for from in lab.hosts.keys() {
        let steps = plan::next_hops(lab, from);
        for to in lab.hosts.keys().filter(|to| *to > from && !steps.contains_key(to.as_str())) {
            let why = plan::first_non_forwarding_host(lab, from, to).map_or_else(
                || "no links connect these hosts".to_owned(),
                |host| format!("{host:?} needs forward = true"),
            );
            errors.push_at_key("", format!("host {from:?} cannot reach {to:?}: {why}"));
        }
    }
}

/// Keys that select the variant of a table: the kind of a queue, the model of a loss. The other keys depend on the
/// variant.
const VARIANT_KEYS: [&str; 2] = ["kind", "model"];

/// Merges `over` into `base`. Inner tables are merged recursively, except that a table with its own kind or model
/// replaces the inherited one.
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

/// Removes keys with the value `false`, which disable an inherited value. (`down = false` is a value.)
#[must_use]
pub fn remove_disabled_keys(mut table: Table) -> Table {
    table.retain(|key, value| key == "down" || *value != Value::Boolean(false));
    table
}

impl Lab {
    /// Returns a lab file that reads as exactly this lab, independent of defaults.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut table = Table::new();
        table.insert("lab".to_owned(), Value::Integer(FORMAT_VERSION));
        table.insert("name".to_owned(), Value::String(self.name.clone()));
        let seed = i64::try_from(self.seed).map_or_else(|_| Value::String(self.seed.to_string()), Value::Integer);
        table.insert("seed".to_owned(), seed);
        let family = ("family", Value::try_from(self.family));
        for (key, value) in [("mode", Value::try_from(self.mode)), ("backend", Value::try_from(self.backend)), family] {
            table.extend(value.ok().map(|value| (key.to_owned(), value)));
        }
        let modules = Value::try_from(&self.modules).ok().filter(|_| !self.modules.is_empty());
        table.extend(modules.map(|modules| ("module".to_owned(), modules)));
        let hosts = self.hosts.iter().map(|(name, host)| (name.clone(), Value::Table(host_table(host))));
        table.insert("host".to_owned(), Value::Table(hosts.collect()));
        let links = self.links.iter().map(|(name, link)| (name.clone(), Value::Table(link_table(link))));
        table.insert("link".to_owned(), Value::Table(links.collect()));
        if !self.events.is_empty() {
            let events = self.events.iter().map(|event| Value::Table(event_table(event)));
            table.insert("event".to_owned(), Value::Array(events.collect()));
        }
        table.to_string()
    }
}

fn host_table(host: &Host) -> Table {
    Table::try_from(host).unwrap_or_default()
}

/// Returns a table with every key of the conditions. Absent values are `false`, so that nothing is inherited.
fn conditions_table(conditions: &Conditions) -> Table {
    let mut table = Table::try_from(conditions).unwrap_or_default();
    for (key, _) in conditions::CONDITION_KEYS {
        table.entry(*key).or_insert(Value::Boolean(false));
    }
    table
}

fn directions_table(forward: &Conditions, reverse: &Conditions) -> Table {
    let mut table = conditions_table(forward);
    table.insert("reverse".to_owned(), Value::Table(conditions_table(reverse)));
    table
}

fn link_table(link: &Link) -> Table {
    let mut table = directions_table(&link.forward, &link.reverse);
    table.insert("ends".to_owned(), Value::from(link.ends.to_vec()));
    table.insert("mtu".to_owned(), Value::Integer(i64::from(link.mtu)));
    table
}

fn event_table(event: &LinkEvent) -> Table {
    Table::from_iter([
        ("at".to_owned(), Value::String(event.at.to_string())),
        ("link".to_owned(), Value::String(event.link.clone())),
        ("set".to_owned(), Value::Table(directions_table(&event.forward, &event.reverse))),
    ])
}

#[cfg(test)]
mod tests;
