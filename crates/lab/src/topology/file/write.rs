//! Writes a lab as a complete file, without relying on defaults.

use toml::{Table, Value};

use crate::conditions::Conditions;
use crate::topology::file::{FORMAT_VERSION, conditions};
use crate::topology::{Host, Lab, Link, LinkEvent};

impl Lab {
    /// Returns a lab file that reads as exactly this lab, independent of defaults.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut table = Table::new();
        table.insert("lab".to_owned(), Value::Integer(FORMAT_VERSION));
        table.insert("name".to_owned(), Value::String(self.name.clone()));
        let seed = i64::try_from(self.seed).map_or_else(|_| Value::String(self.seed.to_string()), Value::Integer);
        table.insert("seed".to_owned(), seed);
        for (key, value) in [("mode", Value::try_from(self.mode)), ("backend", Value::try_from(self.backend))] {
            table.extend(value.ok().map(|value| (key.to_owned(), value)));
        }
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
