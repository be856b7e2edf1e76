//! Hosts that a queue knows as senders: their addresses, looked up when all links are known.

use std::collections::BTreeMap;

use ekiden_proto::aqm::priority::SENDERS;

use crate::conditions::{Conditions, QueueKind, Senders};
use crate::topology::Lab;
use crate::topology::file::mistakes::Mistakes;
use crate::topology::plan::Plan;

/// The addresses of each host.
type Addresses = BTreeMap<String, Vec<u32>>;

/// Gives the senders that queues name their addresses; notes those that are no hosts.
pub fn look_up(lab: &mut Lab, mistakes: &mut Mistakes) {
    let plan = Plan::of(lab);
    let of = |host: &String| plan.ends_of(host).map(|(_, here, _)| here.address.to_bits()).collect();
    let addresses: Addresses = lab.hosts.keys().map(|host| (host.clone(), of(host))).collect();
    for (name, link) in &mut lab.links {
        let at = format!("link.{name}");
        in_both(&at, &mut link.forward, &mut link.reverse, &addresses, mistakes);
    }
    for (number, event) in lab.events.iter_mut().enumerate() {
        let at = format!("event.{number}.set");
        in_both(&at, &mut event.forward, &mut event.reverse, &addresses, mistakes);
    }
}

fn in_both(
    at: &str,
    forward: &mut Conditions,
    reverse: &mut Conditions,
    addresses: &Addresses,
    mistakes: &mut Mistakes,
) {
    // What both directions say is wrong once.
    let shared = senders(forward).is_some() && senders(forward) == senders(reverse);
    let mut again = Mistakes::default();
    in_one(at, forward, addresses, mistakes);
    in_one(&format!("{at}.reverse"), reverse, addresses, if shared { &mut again } else { mistakes });
}

fn senders(conditions: &mut Conditions) -> Option<&mut Senders> {
    match &mut conditions.queue {
        Some(QueueKind::StaticPriority(settings)) => Some(&mut settings.heavy),
        _ => None,
    }
}

fn in_one(at: &str, conditions: &mut Conditions, addresses: &Addresses, mistakes: &mut Mistakes) {
    let Some(senders) = senders(conditions) else { return };
    let key = format!("{at}.queue.heavy");
    let value = toml::Value::from(senders.hosts.clone());
    for host in senders.hosts.iter().filter(|host| !addresses.contains_key(*host)) {
        let known: Vec<&str> = addresses.keys().map(String::as_str).collect();
        mistakes.note(&key, &value, format!("there is no host {host:?}; hosts are {}", known.join(", ")));
    }
    senders.sources = senders.hosts.iter().filter_map(|host| addresses.get(host)).flatten().copied().collect();
    if senders.hosts.is_empty() {
        mistakes.note(&key, &value, r#"expected at least one host, like ["client"]"#);
    } else if senders.sources.len() > SENDERS {
        let addresses = senders.sources.len();
        mistakes.note(&key, &value, format!("expected hosts with at most {SENDERS} addresses; these have {addresses}"));
    }
}
