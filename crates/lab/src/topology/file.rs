//! The lab file: hosts, links and events as a person writes them. (Stand-in.)

use std::collections::BTreeMap;

use crate::conditions::Conditions;
use crate::topology::{Backend, Host, Lab, Link, Mode};

/// The keys.
pub const LAB_KEYS: &[&str] = &["lab", "name", "seed", "mode", "backend", "host", "link", "event"];

/// Reads.
///
/// # Errors
/// All.
pub fn parse(table: &toml::Table) -> Result<Lab, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut hosts = BTreeMap::new();
    let mut links = BTreeMap::new();
    for (name, value) in table.get("host").and_then(|v| v.as_table()).into_iter().flatten() {
        match value.clone().try_into::<Host>() {
            Ok(host) => {
                hosts.insert(name.clone(), host);
            }
            Err(error) => mistakes.push(format!("host.{name}: {}", error.message())),
        }
    }
    for (name, value) in table.get("link").and_then(|v| v.as_table()).into_iter().flatten() {
        let mut value = value.as_table().cloned().unwrap_or_default();
        let ends = value.remove("ends").and_then(|ends| ends.try_into::<[String; 2]>().ok());
        match (toml::Value::Table(value).try_into::<Conditions>(), ends) {
            (Ok(forward), Some(ends)) => {
                links.insert(name.clone(), Link { ends, mtu: 1500, reverse: forward.clone(), forward });
            }
            (Err(error), _) => mistakes.push(format!("link.{name}: {}", error.message())),
            (_, None) => mistakes.push(format!("link.{name}: ends")),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(Lab {
        name: table.get("name").and_then(|v| v.as_str()).unwrap_or("lab").into(),
        seed: table.get("seed").and_then(toml::Value::as_integer).unwrap_or(0).cast_unsigned(),
        mode: Mode::Auto,
        backend: Backend::Packet,
        hosts,
        links,
        events: Vec::new(),
    })
}
