//! What a configuration needs that a service has to be given, and no more than that: capabilities (capabilities(7)) and a
//! device, as a drop-in of the systemd unit.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{AdminPlace, Config, Kind};

/// The first port that needs no privilege (`net.ipv4.ip_unprivileged_port_start`, ip(7)), as kernels have it by default.
const FIRST_FREE_PORT: u16 = 1024;

/// Something that a configuration needs, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What.
    pub what: What,
    /// What for, in words.
    pub why: String,
}

/// What a service may be given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Ports below 1024.
    Ports,
    /// Marks, rules, foreign addresses, devices, restricted congestion controls.
    Network,
    /// /dev/net/tun.
    Tun,
    /// A congestion control that root loads before.
    Loaded(String),
}

impl Config {
    /// What it needs where everybody may choose the congestion controls `free`, and ekiden carries those that `carried`
    /// says.
    #[must_use]
    pub fn needs(&self, free: &[String], carried: impl Fn(&str) -> bool) -> Vec<Need> {
        let mut needs = Vec::new();
        let mut need = |what, why: String| needs.push(Need { what, why });
        for listener in &self.listeners {
            let (name, kind, port) = (&listener.name, listener.kind.word(), listener.bind.port());
            if (1..FIRST_FREE_PORT).contains(&port) {
                need(What::Ports, format!("listener {name} has port {port}"));
            }
            if listener.kind.is_transparent() {
                need(What::Network, format!("listener {name} is {kind}"));
            } else if listener.keep_client_address {
                need(What::Network, format!("listener {name} has keep_client_address"));
            }
            if listener.kind == Kind::Tun {
                need(What::Tun, format!("listener {name} is {kind}"));
            }
        }
        if let AdminPlace::Tcp(address) = self.admin.place
            && (1..FIRST_FREE_PORT).contains(&address.port())
        {
            need(What::Ports, format!("[admin] has port {}", address.port()));
        }
        if self.profiles().any(|profile| profile.says("fwmark")) {
            need(What::Network, "a profile has fwmark".to_owned());
        }
        let named: BTreeSet<_> =
            self.profiles().filter_map(|profile| profile.congestion()).map(|name| &name.0).collect();
        for name in named.into_iter().filter(|name| !free.contains(name)) {
            if carried(name) {
                need(What::Loaded(name.clone()), format!("a profile has congestion = {name:?}"));
            } else {
                let key = "net.ipv4.tcp_allowed_congestion_control";
                need(What::Network, format!("a profile has congestion = {name:?}, which is not in sysctl {key}"));
            }
        }
        needs
    }
}

/// The drop-in that gives a service `needs`, and nothing else.
#[must_use]
pub fn drop_in(needs: &[Need]) -> String {
    let mut text = "[Service]\n".to_owned();
    let mut line = |line: String| writeln!(text, "{line}").expect("invariant: writing to a String does not fail");
    if needs.is_empty() {
        line("# This configuration needs no capability.".to_owned());
    }
    for Need { what, why } in needs {
        line(format!("# {}: {why}", what.word()));
    }
    let whats: BTreeSet<_> = needs.iter().map(|need| &need.what).collect();
    let capabilities: Vec<_> = whats.iter().filter_map(|what| what.capability()).collect();
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        // The empty one takes back what was said before.
        line(format!("{key}="));
        if !capabilities.is_empty() {
            line(format!("{key}={}", capabilities.join(" ")));
        }
    }
    for what in whats {
        match what {
            What::Tun => line("DeviceAllow=/dev/net/tun rw".to_owned()),
            What::Loaded(name) => line(format!("ExecStartPre=+/usr/bin/ekiden cc load {name}")),
            What::Ports | What::Network => {}
        }
    }
    text
}

impl What {
    const fn capability(&self) -> Option<&'static str> {
        match self {
            Self::Ports => Some("CAP_NET_BIND_SERVICE"),
            Self::Network => Some("CAP_NET_ADMIN"),
            Self::Tun | Self::Loaded(_) => None,
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::Tun => "/dev/net/tun",
            Self::Loaded(name) => name,
            Self::Ports | Self::Network => self.capability().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::super::read::{Flags, load};
    use super::*;

    fn text(urls: &[&str]) -> String {
        let listen = urls.iter().map(|url| (*url).to_owned()).collect();
        let config = load(None, &Flags { listen, ..Flags::default() }).unwrap();
        drop_in(&config.needs(&["cubic".to_owned(), "reno".to_owned()], |name| name == "ctcp"))
    }

    /// The lines that are no comments.
    fn lines(urls: &[&str]) -> Vec<String> {
        text(urls).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn who_needs_nothing_gets_nothing() {
        let bare = ["[Service]", "AmbientCapabilities=", "CapabilityBoundingSet="];
        assert_eq!(lines(&["auto://127.0.0.1:1080", "auto://127.0.0.1:0"]), bare);
        assert!(text(&["auto://127.0.0.1:1080"]).contains("no capability"));
    }

    #[test]
    fn everything_is_for_something() {
        let given = |urls: &[&str]| lines(urls).into_iter().find(|line| line.starts_with("CapabilityBoundingSet=CAP"));
        let ports = "CapabilityBoundingSet=CAP_NET_BIND_SERVICE";
        let network = "CapabilityBoundingSet=CAP_NET_ADMIN";
        assert_eq!(given(&["auto://127.0.0.1:443"]).unwrap(), ports);
        assert_eq!(given(&["tproxy://0.0.0.0:7001?interfaces=lan0"]).unwrap(), network);
        assert_eq!(given(&["auto://127.0.0.1:1080?keep_client_address=true"]).unwrap(), network);
        assert_eq!(given(&["auto://127.0.0.1:1080?profile=longhaul"]).unwrap(), network, "bbr is restricted");
        let both = ["auto://127.0.0.1:80", "tproxy://0.0.0.0:7001?interfaces=lan0"];
        assert_eq!(given(&both).unwrap(), "CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_NET_ADMIN");
        assert!(text(&both).contains("# CAP_NET_BIND_SERVICE: listener auto-80 has port 80"), "{}", text(&both));
    }
}
