//! Resolves the addresses of hosts named by queues, after all links are known.

use std::collections::BTreeMap;

use ekiden_proto::aqm::priority::MAX_SENDERS;

use crate::conditions::{Conditions, SenderHosts};
use crate::topology::Lab;
use crate::topology::file::errors::LabFileErrors;
use crate::topology::plan::NetworkPlan;

/// Addresses of each host.
type HostAddresses = BTreeMap<String, Vec<u32>>;

/// Fills in the addresses of the hosts named by queues, and reports unknown hosts.
pub fn resolve_senders(lab: &mut Lab, errors: &mut LabFileErrors) {
    let plan = NetworkPlan::new(lab);
    let of = |host: &String| plan.ends_of(host).map(|(_, here, _)| here.address.to_bits()).collect();
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
    let mut again = LabFileErrors::default();
    resolve_in_direction(at, forward, addresses, errors);
    resolve_in_direction(&format!("{at}.reverse"), reverse, addresses, if shared { &mut again } else { errors });
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
            format!("expected hosts with at most {MAX_SENDERS} addresses; these have {addresses}"),
        );
    }
}
