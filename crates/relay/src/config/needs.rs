//! The privileges that a configuration requires of its service: capabilities (capabilities(7)) and access to a device,
//! as a drop-in of the systemd unit.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{AdminBind, Config, ListenerKind};

/// The first port that needs no privilege by default (`net.ipv4.ip_unprivileged_port_start`, ip(7)).
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// A privilege that a configuration requires, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The privilege that the configuration requires.
    pub privilege: Privilege,
    /// The setting that requires the privilege, as text.
    pub reason: String,
}

/// Privileges that a service can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// Binding ports below 1024 (capabilities(7)).
    LowPorts,
    /// `CAP_NET_ADMIN`: marks, rules, foreign addresses, devices, restricted congestion controls.
    NetAdmin,
    /// Access to the device /dev/net/tun.
    TunDevice,
    /// A congestion control that root must load before the service starts.
    LoadedCongestion(String),
}

impl Config {
    /// Returns the privileges that the configuration requires. `free` are the congestion controls that every user of
    /// the host may select; `carried` returns whether ekiden provides a control.
    #[must_use]
    pub fn requirements(&self, free: &[String], carried: impl Fn(&str) -> bool) -> Vec<Requirement> {
        let mut requirements = Vec::new();
        let mut require = |privilege, reason: String| requirements.push(Requirement { privilege, reason });
        for listener in &self.listeners {
            let (name, kind, port) = (&listener.name, listener.kind.as_str(), listener.bind.port());
            if (1..FIRST_UNPRIVILEGED_PORT).contains(&port) {
                require(Privilege::LowPorts, format!("listener {name} has port {port}"));
            }
            if listener.kind.is_transparent() {
                require(Privilege::NetAdmin, format!("listener {name} is {kind}"));
            } else if listener.keep_client_address {
                require(Privilege::NetAdmin, format!("listener {name} has keep_client_address"));
            }
            if listener.kind == ListenerKind::Tun {
                require(Privilege::TunDevice, format!("listener {name} is {kind}"));
            }
        }
        if let AdminBind::Tcp(address) = self.admin.bind
            && (1..FIRST_UNPRIVILEGED_PORT).contains(&address.port())
        {
            require(Privilege::LowPorts, format!("[admin] has port {}", address.port()));
        }
        if self.profiles().any(|profile| profile.has_setting("fwmark")) {
            require(Privilege::NetAdmin, "a profile has fwmark".to_owned());
        }
        let is_free = |name: &str| free.iter().any(|free| free == name);
        // A control that ekiden has loaded is free too, and missing after a reboot.
        for name in self.requested_controls().into_iter().filter(|name| carried(name) || !is_free(name)) {
            if carried(name) {
                require(Privilege::LoadedCongestion(name.to_owned()), format!("a profile has congestion = {name:?}"));
            } else {
                let key = "net.ipv4.tcp_allowed_congestion_control";
                require(
                    Privilege::NetAdmin,
                    format!("a profile has congestion = {name:?}, which is not in sysctl {key}"),
                );
            }
        }
        requirements
    }
}

/// Returns the drop-in that gives a service exactly the privileges of `requirements`.
#[must_use]
pub fn systemd_drop_in(requirements: &[Requirement]) -> String {
    let mut text = "[Service]\n".to_owned();
    let mut line = |line: String| writeln!(text, "{line}").expect("invariant: writing to a String does not fail");
    if requirements.is_empty() {
        line("# This configuration needs no capability.".to_owned());
    }
    for Requirement { privilege, reason } in requirements {
        line(format!("# {}: {reason}", privilege.label()));
    }
    let privileges: BTreeSet<_> = requirements.iter().map(|requirement| &requirement.privilege).collect();
    let capabilities: Vec<_> = privileges.iter().filter_map(|privilege| privilege.capability()).collect();
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        // An empty assignment clears the list of the unit.
        line(format!("{key}="));
        if !capabilities.is_empty() {
            line(format!("{key}={}", capabilities.join(" ")));
        }
    }
    for privilege in privileges {
        match privilege {
            Privilege::TunDevice => line("DeviceAllow=/dev/net/tun rw".to_owned()),
            // `-`: the relay starts also if the control cannot be loaded, and replaces it.
            Privilege::LoadedCongestion(name) => line(format!("ExecStartPre=-+/usr/bin/ekiden cc load {name}")),
            Privilege::LowPorts | Privilege::NetAdmin => {}
        }
    }
    text
}

impl Privilege {
    const fn capability(&self) -> Option<&'static str> {
        match self {
            Self::LowPorts => Some("CAP_NET_BIND_SERVICE"),
            Self::NetAdmin => Some("CAP_NET_ADMIN"),
            Self::TunDevice | Self::LoadedCongestion(_) => None,
        }
    }

    fn label(&self) -> &str {
        match self {
            Self::TunDevice => "/dev/net/tun",
            Self::LoadedCongestion(name) => name,
            Self::LowPorts | Self::NetAdmin => self.capability().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;
    use crate::config::read::{Flags, from_text, load};

    fn text(urls: &[&str]) -> String {
        let listen = urls.iter().map(|url| (*url).to_owned()).collect();
        let config = load(None, &Flags { listen, ..Flags::default() }).unwrap();
        systemd_drop_in(&config.requirements(&["cubic".to_owned(), "reno".to_owned()], |name| name == "ctcp"))
    }

    /// The lines without comments.
    fn lines(urls: &[&str]) -> Vec<String> {
        text(urls).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn unprivileged_config_gets_no_capabilities() {
        let bare = ["[Service]", "AmbientCapabilities=", "CapabilityBoundingSet="];
        assert_eq!(lines(&["auto://127.0.0.1:1080", "auto://127.0.0.1:0"]), bare);
        assert!(text(&["auto://127.0.0.1:1080"]).contains("no capability"));
    }

    #[test]
    fn capabilities_are_limited_to_the_needs_of_the_config() {
        let bounding_set =
            |urls: &[&str]| lines(urls).into_iter().find(|line| line.starts_with("CapabilityBoundingSet=CAP"));
        let ports = "CapabilityBoundingSet=CAP_NET_BIND_SERVICE";
        let network = "CapabilityBoundingSet=CAP_NET_ADMIN";
        assert_eq!(bounding_set(&["auto://127.0.0.1:443"]).unwrap(), ports);
        assert_eq!(bounding_set(&["tproxy://0.0.0.0:7001?interfaces=lan0"]).unwrap(), network);
        assert_eq!(bounding_set(&["auto://127.0.0.1:1080?keep_client_address=true"]).unwrap(), network);
        assert_eq!(bounding_set(&["auto://127.0.0.1:1080?profile=longhaul"]).unwrap(), network, "bbr is restricted");
        let both = ["auto://127.0.0.1:80", "tproxy://0.0.0.0:7001?interfaces=lan0"];
        assert_eq!(bounding_set(&both).unwrap(), "CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_NET_ADMIN");
        assert!(text(&both).contains("# CAP_NET_BIND_SERVICE: listener auto-80 has port 80"), "{}", text(&both));
    }

    /// Bug: a control that `cc load` had made free was not in the drop-in that was written next, so the control was
    /// missing after a reboot. Bug: without `-`, a control that could not be loaded kept the relay from starting.
    #[test]
    fn control_of_ekiden_is_loaded_before_each_start_also_if_it_is_free_now() {
        let profile = "[profile.compound]\ncongestion = \"ctcp\"\n";
        let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\nprofile = \"compound\"\n";
        let config = from_text(&format!("version = 1\n{profile}{listener}")).unwrap();
        let free = ["cubic".to_owned(), "ctcp".to_owned()];
        let commands = |carried: bool| {
            let text = systemd_drop_in(&config.requirements(&free, |name| carried && name == "ctcp"));
            text.lines().filter(|line| line.starts_with("ExecStartPre=")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(commands(true), ["ExecStartPre=-+/usr/bin/ekiden cc load ctcp"]);
        assert_eq!(commands(false), [""; 0], "a control of the kernel that is free needs no privilege");
    }

    /// Bug: the profile of `[fleet]` counted only after a relay of the fleet was known, which is at run time.
    #[test]
    fn profile_of_the_fleet_needs_its_privileges() {
        let profile = "[profile.far]\nfwmark = 1\ncongestion = \"ctcp\"\n";
        let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\n";
        let key = "e06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM=";
        let fleet = format!("[fleet]\netcd = [\"http://127.0.0.1:2379\"]\nkey = \"{key}\"\nprofile = \"far\"\n");
        let config = from_text(&format!("version = 1\n{profile}{listener}{fleet}")).unwrap();
        let privileges: Vec<_> =
            config.requirements(&[], |name| name == "ctcp").into_iter().map(|needed| needed.privilege).collect();
        assert_eq!(privileges, [Privilege::NetAdmin, Privilege::LoadedCongestion("ctcp".to_owned())]);
    }
}
