//! Links and events out of their tables.

use std::collections::BTreeMap;

use ekiden_proto::units::Span;
use toml::{Table, Value};

use crate::conditions::Conditions;
use crate::topology::file::inherit::merged;
use crate::topology::file::mistakes::Mistakes;
use crate::topology::file::{conditions, named_well};
use crate::topology::{Event, Host, Link};

/// Keys of a link besides those of its conditions.
const OWN_KEYS: [&str; 3] = ["ends", "mtu", "reverse"];
const EVENT_KEYS: [&str; 3] = ["at", "link", "set"];
const DEFAULT_MTU: u32 = 1500;

/// Both directions of a link, as tables: what events change.
struct Directions {
    forward: Table,
    reverse: Table,
}

/// All links, by name.
pub struct Links {
    /// As read.
    pub links: BTreeMap<String, Link>,
    directions: BTreeMap<String, Directions>,
}

/// Reads all links.
pub fn read(value: Option<Value>, default: &Table, hosts: &BTreeMap<String, Host>, mistakes: &mut Mistakes) -> Links {
    let mut read = Links { links: BTreeMap::new(), directions: BTreeMap::new() };
    for (name, table) in mistakes.tables("link", value) {
        let at = format!("link.{name}");
        if !named_well(&name) {
            mistakes.note_at(&at, "expected a name of letters, digits and '-'");
        }
        let table = merged(default.clone(), &table);
        let ends = ends(&at, table.get("ends"), hosts, mistakes);
        let mtu = mtu(&at, table.get("mtu"), mistakes);
        let directions = directions(&at, table, mistakes);
        if let (Some(ends), Some(mtu), Some((forward, reverse))) = (ends, mtu, directions.read(&at, mistakes)) {
            read.links.insert(name.clone(), Link { ends, mtu, forward, reverse });
        }
        read.directions.insert(name, directions);
    }
    read
}

fn directions(at: &str, mut table: Table, mistakes: &mut Mistakes) -> Directions {
    let over = reverse_of(at, &mut table, mistakes);
    table.retain(|key, _| !OWN_KEYS.contains(&key));
    Directions { reverse: merged(table.clone(), &over), forward: table }
}

fn reverse_of(at: &str, table: &mut Table, mistakes: &mut Mistakes) -> Table {
    match table.remove("reverse") {
        None => Table::new(),
        Some(Value::Table(over)) => over,
        Some(other) => {
            mistakes.note(format!("{at}.reverse"), &other, "expected a table of what differs from ends[1] to ends[0]");
            Table::new()
        }
    }
}

impl Directions {
    fn read(&self, at: &str, mistakes: &mut Mistakes) -> Option<(Conditions, Conditions)> {
        let forward = conditions::read(at, &self.forward, mistakes);
        // What both directions say is wrong once.
        let mut again = Mistakes::default();
        let reverse = conditions::read(&format!("{at}.reverse"), &self.reverse, &mut again);
        mistakes.extend(again, |mistake| !self.is_shared(mistake.key.trim_start_matches(at)));
        forward.zip(reverse)
    }

    /// Whether the key `.reverse.KEY...` is the same in the other direction.
    fn is_shared(&self, key: &str) -> bool {
        key.split('.').nth(2).is_some_and(|key| self.forward.get(key) == self.reverse.get(key))
    }
}

fn ends(
    at: &str,
    value: Option<&Value>,
    hosts: &BTreeMap<String, Host>,
    mistakes: &mut Mistakes,
) -> Option<[String; 2]> {
    let key = format!("{at}.ends");
    let Some(value) = value else {
        mistakes.note_at(key, r#"is missing; expected two hosts like ["client", "server"]"#);
        return None;
    };
    let ends: [String; 2] = mistakes.read(&key, value, r#"two hosts like ["client", "server"]"#)?;
    if ends[0] == ends[1] {
        mistakes.note(&key, value, "expected two different hosts");
    }
    for end in ends.iter().filter(|end| !hosts.contains_key(*end)) {
        let known: Vec<&str> = hosts.keys().map(String::as_str).collect();
        mistakes.note(&key, value, format!("there is no host {end:?}; hosts are {}", known.join(", ")));
    }
    Some(ends)
}

fn mtu(at: &str, value: Option<&Value>, mistakes: &mut Mistakes) -> Option<u32> {
    let expected = "the bytes of the largest IP packet, 576 to 65535";
    let Some(value) = value else { return Some(DEFAULT_MTU) };
    let mtu: u32 = mistakes.read(&format!("{at}.mtu"), value, expected)?;
    if !(576..=65535).contains(&mtu) {
        mistakes.note(format!("{at}.mtu"), value, format!("expected {expected}"));
    }
    Some(mtu)
}

impl Links {
    /// Reads all events, in order of time; each changes what the ones before it left.
    pub fn read_events(&mut self, value: Option<Value>, mistakes: &mut Mistakes) -> Vec<Event> {
        let tables: Vec<Table> = match value {
            None => return Vec::new(),
            Some(value) => mistakes.read("event", &value, "tables like [[event]]").unwrap_or_default(),
        };
        let mut dated: Vec<(Span, usize, &Table)> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            dated.extend(event_time(number, table, mistakes).map(|at| (at, number, table)));
        }
        dated.sort_by_key(|(at, ..)| *at);
        dated.into_iter().filter_map(|(at, number, table)| self.event(at, number, table, mistakes)).collect()
    }

    fn event(&mut self, at: Span, number: usize, table: &Table, mistakes: &mut Mistakes) -> Option<Event> {
        let key = format!("event.{number}");
        let link: String = match table.get("link") {
            Some(value) => mistakes.read(&format!("{key}.link"), value, "the name of a link")?,
            None => {
                mistakes.note_at(format!("{key}.link"), "is missing; expected the name of a link");
                return None;
            }
        };
        let Some(directions) = self.directions.get_mut(&link) else {
            let known: Vec<&str> = self.directions.keys().map(String::as_str).collect();
            let value = Value::String(link);
            mistakes.note(
                format!("{key}.link"),
                &value,
                format!("there is no such link; links are {}", known.join(", ")),
            );
            return None;
        };
        let Some(Value::Table(set)) = table.get("set") else {
            mistakes.note_at(format!("{key}.set"), r#"expected what changes, like { rate = "5Mbit/s" }"#);
            return None;
        };
        let mut set = set.clone();
        let at_set = format!("{key}.set");
        let reverse = reverse_of(&at_set, &mut set, mistakes);
        directions.forward = merged(directions.forward.clone(), &set);
        directions.reverse = merged(merged(directions.reverse.clone(), &set), &reverse);
        let (forward, reverse) = directions.read(&at_set, mistakes)?;
        let counted = |link: &Link| (link.forward.count, link.reverse.count);
        if self.links.get(&link).is_some_and(|link| counted(link) != (forward.count, reverse.count)) {
            mistakes.note_at(format!("{at_set}.count"), "cannot change; expected it in the link itself");
        }
        Some(Event { at, link, forward, reverse })
    }
}

fn event_time(number: usize, table: &Table, mistakes: &mut Mistakes) -> Option<Span> {
    for key in table.keys().filter(|key| !EVENT_KEYS.contains(&key.as_str())) {
        mistakes.unknown(format!("event.{number}.{key}"), &EVENT_KEYS);
    }
    let key = format!("event.{number}.at");
    if let Some(value) = table.get("at") {
        return mistakes.read(&key, value, r#"a time since the start, like "5s""#);
    }
    mistakes.note_at(key, r#"is missing; expected a time since the start, like "5s""#);
    None
}
