//! Labs for the tests.

use std::collections::BTreeMap;

use ekiden_emulator::conditions::Conditions;
use ekiden_emulator::links::{EmulationMode, Link};
use ekiden_lab::topology::{Backend, Family, Host, Lab};

/// A link without conditions, which needs no emulator.
pub fn cable(a: &str, b: &str) -> Link {
    let ends = [a, b].map(str::to_owned);
    Link { ends, mtu: 1500, forward: Conditions::default(), reverse: Conditions::default() }
}

/// A link with a delay of 10 ms in each direction, which needs an emulator.
pub fn emulated(a: &str, b: &str) -> Link {
    let slow = Conditions { delay: Some("10ms".parse().unwrap()), ..Conditions::default() };
    Link { forward: slow.clone(), reverse: slow, ..cable(a, b) }
}

/// A lab with these links, and hosts with default settings at their ends.
pub fn lab(links: &[(&str, Link)]) -> Lab {
    let links: BTreeMap<String, Link> = links.iter().map(|(name, link)| ((*name).to_owned(), link.clone())).collect();
    let hosts = links.values().flat_map(|link| link.ends.clone()).map(|name| (name, Host::default())).collect();
    let (mode, backend) = (EmulationMode::Auto, Backend::Packet);
    let family = Family::Ipv4;
    Lab {
        name: "test".to_owned(),
        seed: 1,
        mode,
        backend,
        family,
        modules: [].into(),
        hosts,
        links,
        events: Vec::new(),
    }
}

/// Changes one host of a lab.
pub fn with_host(mut lab: Lab, name: &str, change: impl FnOnce(&mut Host)) -> Lab {
    change(lab.hosts.get_mut(name).unwrap());
    lab
}

/// A lab with a client, a forwarding router, and a server.
pub fn chain() -> Lab {
    let lab = lab(&[("first", cable("client", "router")), ("second", cable("router", "server"))]);
    with_host(lab, "router", |router| router.forward = true)
}
