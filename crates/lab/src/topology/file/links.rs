//! Reads links and events from their tables.

use std::collections::BTreeMap;

use ekiden_proto::aqm;
use ekiden_proto::aqm::priority::MAX_SENDERS;
use ekiden_proto::units::Span;
use toml::{Table, Value};

use super::errors::LabFileErrors;
use super::{conditions, is_valid_name, merge_tables};
use crate::topology::plan::{LinkEnd, NetworkPlan};
use crate::topology::{Family, Host, Lab};
use ekiden_emulator::conditions::{Conditions, SenderHosts};
use ekiden_emulator::links::{Link, LinkEvent};

/// Keys of a link in addition to those of its conditions.
const OWN_KEYS: [&str; 3] = ["ends", "mtu", "reverse"];
const EVENT_KEYS: [&str; 3] = ["at", "link", "set"];
const DEFAULT_MTU: u32 = 1500;

/// Tables of both directions of a link. Events modify them.
struct DirectionTables {
    forward: Table,
    reverse: Table,
}

/// Links and the tables they were read from.
pub struct LinkTables {
    /// Links by name, in their initial state.
    pub links: BTreeMap<String, Link>,
    directions: BTreeMap<String, DirectionTables>,
}

/// Reads all links, and reports errors.
pub fn read_links(
    value: Option<Value>,
    default: &Table,
    hosts: &BTreeMap<String, Host>,
    errors: &mut LabFileErrors,
) -> LinkTables {
    let mut read = LinkTables { links: BTreeMap::new(), directions: BTreeMap::new() };
    for (name, table) in errors.read_tables("link", value) {
        let at = format!("link.{name}");
        if !is_valid_name(&name) {
            errors.push_at_key(&at, "expected a name of letters, digits and '-'");
        }
        let table = merge_tables(default.clone(), &table);
        let ends = read_ends(&at, table.get("ends"), hosts, errors);
        let mtu = read_mtu(&at, table.get("mtu"), errors);
        let directions = split_directions(&at, table, errors);
        if let (Some(ends), Some(mtu), Some((forward, reverse))) = (ends, mtu, directions.read(&at, errors)) {
            read.links.insert(name.clone(), Link { ends, mtu, forward, reverse });
        }
        read.directions.insert(name, directions);
    }
    read
}

fn split_directions(at: &str, mut table: Table, errors: &mut LabFileErrors) -> DirectionTables {
    let over = take_reverse_table(at, &mut table, errors);
    table.retain(|key, _| !OWN_KEYS.contains(&key));
    DirectionTables { reverse: merge_tables(table.clone(), &over), forward: table }
}

fn take_reverse_table(at: &str, table: &mut Table, errors: &mut LabFileErrors) -> Table {
    match table.remove("reverse") {
        None => Table::new(),
        Some(Value::Table(over)) => over,
        Some(other) => {
            errors.push(format!("{at}.reverse"), &other, "expected a table of the differences from ends[1] to ends[0]");
            Table::new()
        }
    }
}

impl DirectionTables {
    fn read(&self, at: &str, errors: &mut LabFileErrors) -> Option<(Conditions, Conditions)> {
        let forward = conditions::read_conditions(at, &self.forward, errors);
        // A key inherited by the reverse direction is reported once.
        let mut reverse_errors = LabFileErrors::default();
        let reverse = conditions::read_conditions(&format!("{at}.reverse"), &self.reverse, &mut reverse_errors);
        errors.extend_filtered(reverse_errors, |error| !self.is_shared(error.key.trim_start_matches(at)));
        forward.zip(reverse)
    }

    /// Returns whether the key `.reverse.KEY...` has equal values in both directions.
    fn is_shared(&self, key: &str) -> bool {
        key.split('.').nth(2).is_some_and(|key| self.forward.get(key) == self.reverse.get(key))
    }
}

fn read_ends(
    at: &str,
    value: Option<&Value>,
    hosts: &BTreeMap<String, Host>,
    errors: &mut LabFileErrors,
) -> Option<[String; 2]> {
    let key = format!("{at}.ends");
    let Some(value) = value else {
        errors.push_at_key(key, r#"is missing; expected two hosts like ["client", "server"]"#);
        return None;
    };
    let ends: [String; 2] = errors.read_value(&key, value, r#"two hosts like ["client", "server"]"#)?;
    if ends[0] == ends[1] {
        errors.push(&key, value, "expected two different hosts");
    }
    for end in ends.iter().filter(|end| !hosts.contains_key(*end)) {
        let known: Vec<&str> = hosts.keys().map(String::as_str).collect();
        errors.push(&key, value, format!("there is no host {end:?}; hosts are {}", known.join(", ")));
    }
    Some(ends)
}

fn read_mtu(at: &str, value: Option<&Value>, errors: &mut LabFileErrors) -> Option<u32> {
    let expected = "the bytes of the largest IP packet, 576 to 65535";
    let Some(value) = value else { return Some(DEFAULT_MTU) };
    let mtu: u32 = errors.read_value(&format!("{at}.mtu"), value, expected)?;
    if !(576..=65535).contains(&mtu) {
        errors.push(format!("{at}.mtu"), value, format!("expected {expected}"));
    }
    Some(mtu)
}

impl LinkTables {
    /// Reads all events, in order of time. Each event modifies the state after the earlier events.
    pub fn read_events(&mut self, value: Option<Value>, errors: &mut LabFileErrors) -> Vec<LinkEvent> {
        let tables: Vec<Table> = match value {
            None => return Vec::new(),
            Some(value) => errors.read_value("event", &value, "tables like [[event]]").unwrap_or_default(),
        };
        let mut dated: Vec<(Span, usize, &Table)> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            dated.extend(read_event_time(number, table, errors).map(|at| (at, number, table)));
        }
        dated.sort_by_key(|(at, ..)| *at);
        dated.into_iter().filter_map(|(at, number, table)| self.read_event(at, number, table, errors)).collect()
    }

    fn read_event(&mut self, at: Span, number: usize, table: &Table, errors: &mut LabFileErrors) -> Option<LinkEvent> {
        let key = format!("event.{number}");
        let link: String = match table.get("link") {
            Some(value) => errors.read_value(&format!("{key}.link"), value, "the name of a link")?,
            None => {
                errors.push_at_key(format!("{key}.link"), "is missing; expected the name of a link");
                return None;
            }
        };
        let Some(directions) = self.directions.get_mut(&link) else {
            let known: Vec<&str> = self.directions.keys().map(String::as_str).collect();
            let value = Value::String(link);
            errors.push(
                format!("{key}.link"),
                &value,
                format!("there is no such link; links are {}", known.join(", ")),
            );
            return None;
        };
        let Some(Value::Table(set)) = table.get("set") else {
            errors.push_at_key(format!("{key}.set"), r#"expected the changes, like { rate = "5Mbit/s" }"#);
            return None;
        };
        let mut set = set.clone();
        let at_set = format!("{key}.set");
        let reverse = take_reverse_table(&at_set, &mut set, errors);
        directions.forward = merge_tables(directions.forward.clone(), &set);
        directions.reverse = merge_tables(merge_tables(directions.reverse.clone(), &set), &reverse);
        let (forward, reverse) = directions.read(&at_set, errors)?;
        let counted = |link: &Link| (link.forward.count, link.reverse.count);
        if self.links.get(&link).is_some_and(|link| counted(link) != (forward.count, reverse.count)) {
            errors.push_at_key(format!("{at_set}.count"), "cannot change in an event; set the key in the link");
        }
        Some(LinkEvent { at, link, forward, reverse })
    }
}

fn read_event_time(number: usize, table: &Table, errors: &mut LabFileErrors) -> Option<Span> {
    for key in table.keys().filter(|key| !EVENT_KEYS.contains(&key.as_str())) {
        errors.push_unknown_key(format!("event.{number}.{key}"), &EVENT_KEYS);
    }
    let key = format!("event.{number}.at");
    if let Some(value) = table.get("at") {
        return errors.read_value(&key, value, r#"a time since the start, like "5s""#);
    }
    errors.push_at_key(key, r#"is missing; expected a time since the start, like "5s""#);
    None
}

/// Addresses of each host.
type HostAddresses = BTreeMap<String, Vec<u32>>;

/// Fills in the addresses of the hosts named by queues, and reports unknown hosts.
pub fn resolve_senders(lab: &mut Lab, errors: &mut LabFileErrors) {
    let plan = NetworkPlan::new(lab);
    let key = |end: &LinkEnd| match lab.family {
        Family::Ipv4 => end.address.to_bits(),
        Family::Ipv6 => aqm::source_key(&end.address6.octets()),
    };
    let of = |host: &String| plan.ends_of(host).map(|(_, end, _)| key(end)).collect();
    let addresses: HostAddresses = lab.hosts.keys().map(|host| (host.clone(), of(host))).collect();
    for (name, link) in &mut lab.links {
        let at = format!("link.{name}");
        resolve_in_link(&at, &mut link.forward, &mut link.reverse, &addresses, errors);
    }
    for (number, event) in lab.events.iter_mut().enumerate() {
        let at = format!("event.{number}.set");
        resolve_in_link(&at, &mut event.forward, &mut event.reverse, &addresses, errors);
    }
}

fn resolve_in_link(
    at: &str,
    forward: &mut Conditions,
    reverse: &mut Conditions,
    addresses: &HostAddresses,
    errors: &mut LabFileErrors,
) {
    // A queue shared by both directions is reported once.
    let shared = sender_hosts_mut(forward).is_some() && sender_hosts_mut(forward) == sender_hosts_mut(reverse);
    let mut repeated_errors = LabFileErrors::default();
    resolve_in_direction(at, forward, addresses, errors);
    resolve_in_direction(
        &format!("{at}.reverse"),
        reverse,
        addresses,
        if shared { &mut repeated_errors } else { errors },
    );
}

fn sender_hosts_mut(conditions: &mut Conditions) -> Option<&mut SenderHosts> {
    conditions.queue.as_mut()?.sender_hosts_mut()
}

fn resolve_in_direction(at: &str, conditions: &mut Conditions, addresses: &HostAddresses, errors: &mut LabFileErrors) {
    let Some(senders) = sender_hosts_mut(conditions) else { return };
    let key = format!("{at}.queue.heavy");
    let value = toml::Value::from(senders.hosts.clone());
    for host in senders.hosts.iter().filter(|host| !addresses.contains_key(*host)) {
        let known: Vec<&str> = addresses.keys().map(String::as_str).collect();
        errors.push(&key, &value, format!("there is no host {host:?}; hosts are {}", known.join(", ")));
    }
    senders.sources = senders.hosts.iter().filter_map(|host| addresses.get(host)).flatten().copied().collect();
    if senders.hosts.is_empty() {
        errors.push(&key, &value, r#"expected at least one host, like ["client"]"#);
    } else if senders.sources.len() > MAX_SENDERS {
        let addresses = senders.sources.len();
        errors.push(
            &key,
            &value,
            format!("expected hosts with at most {MAX_SENDERS} addresses; the hosts have {addresses}"),
        );
    }
}
