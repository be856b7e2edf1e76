//! A full mesh of relays, with one relay that selects the path.
//!
//! The chooser runs on the single host of the chain, accepts clients, and has a route: `path = "auto"` or one fixed
//! path. Every other relay has a `section` listener and admits all others by key, so that every path through them is
//! possible. The chooser logs in JSON; its record of the end of a session has the path.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::experiment::spec::treatment::Treatment;
use crate::program::chain::RelayContext;
use crate::program::curl::ClientRoute;
use crate::program::ekiden::ProfileChoice;
use crate::program::section::{self, RelayKeys, SectionRelay};
use crate::program::service::{LaunchSpec, Service};
use crate::program::write_secret;

/// Name of the path without relays.
pub const DIRECT: &str = "direct";

/// Path setting of the chooser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"auto\", [\"direct\"], or names of relays in order, like [\"a\", \"b\"]")]
pub enum PathSetting {
    /// ekiden selects the path.
    Auto(AutoKeyword),
    /// A fixed path: names of relays in order, or `direct`.
    Fixed(Vec<String>),
}

/// The keyword `auto` in an experiment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoKeyword {
    /// Path selection by ekiden.
    Auto,
}

impl PathSetting {
    /// Returns the name of a fixed path: `direct`, or its relays joined by `-`.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Auto(_) => None,
            Self::Fixed(relays) => Some(relays.join("-")),
        }
    }

    /// Returns whether the path only uses `relays`, each at most once.
    #[must_use]
    pub fn is_valid_for(&self, relays: &[String]) -> bool {
        let Self::Fixed(path) = self else { return true };
        let is_known = |name: &String| relays.contains(name);
        let is_once = |(index, name): (usize, &String)| !path[..index].contains(name);
        path[..] == [DIRECT] || !path.is_empty() && path.iter().all(is_known) && path.iter().enumerate().all(is_once)
    }
}

/// Relays of a run, the chooser first, with their files written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RelayMesh(Vec<SectionRelay>);

/// Returns the path of the chooser's log.
#[must_use]
pub fn log_path(folder: &path::Path, chooser: &str) -> path::PathBuf {
    folder.join(format!("ekiden-{chooser}.log"))
}

/// Starts the relays of `treatment`, the chooser last. Returns them with `via`, the route of the client.
///
/// # Errors
/// A relay does not start, or a host does not exist.
pub fn start_relays(
    treatment: &Treatment,
    context: RelayContext<'_>,
    via: ClientRoute,
) -> anyhow::Result<(Vec<Service>, ClientRoute)> {
    let find = |name: &String| context.network.host(name).with_context(|| format!("there is no host {name}"));
    let hosts = treatment.chain.iter().chain(&treatment.relays).map(find).collect::<anyhow::Result<Vec<_>>>()?;
    let known: Vec<(&str, IpAddr)> = hosts.iter().map(|host| (host.name(), host.address())).collect();
    let ekiden = context.ekiden.context("the path of the ekiden binary is missing")?;
    let mesh = RelayMesh::with_keys(&known, || RelayKeys::generate(ekiden), context.folder)?;
    let mut services = Vec::new();
    for (index, host) in hosts.iter().enumerate().rev() {
        let file = context.folder.join(format!("ekiden-{}.conf", host.name()));
        std::fs::write(&file, mesh.configuration(index, treatment, context.server))?;
        let port = if index > 0 { section::PORT } else { treatment.mode.port() };
        let arguments = vec!["run".into(), "-c".into(), file.display().to_string()];
        let launch = LaunchSpec { name: "ekiden".into(), executable: ekiden.to_owned(), arguments, port: Some(port) };
        services.push(Service::start(host, launch, context.folder)?);
    }
    Ok((services, via))
}

impl RelayMesh {
    fn with_keys(
        hosts: &[(&str, IpAddr)],
        mut keys: impl FnMut() -> anyhow::Result<RelayKeys>,
        folder: &path::Path,
    ) -> anyhow::Result<Self> {
        let mut relays = Vec::new();
        for (name, address) in hosts {
            let file = |what: &str| folder.join(format!("{name}.{what}"));
            let RelayKeys { key_file: text, public } = keys()?;
            let (key, peers) = (file("key"), file("peers"));
            write_secret(&key, &text)?;
            relays.push(SectionRelay { name: (*name).to_owned(), address: *address, public, key, peers });
        }
        for own in &relays {
            let others = relays.iter().filter(|other| other.name != own.name);
            let admitted: String = others.map(|other| format!("{} {}\n", other.public, other.name)).collect();
            std::fs::write(&own.peers, admitted)?;
        }
        Ok(Self(relays))
    }

    /// Returns the configuration of the relay at `index`; the chooser is at 0.
    fn configuration(&self, index: usize, treatment: &Treatment, server: SocketAddr) -> String {
        let relay = &self.0[index];
        let listener = if index == 0 {
            section::client_listener(treatment, server)
        } else {
            section::section_listener(relay, treatment)
        };
        let mut text = relay.config_header() + &listener;
        // The chooser is not a next hop: it only accepts clients.
        let others = self.0.iter().skip(1).filter(|other| other.name != relay.name);
        others.for_each(|other| text.push_str(&other.relay_table(treatment)));
        if index == 0 {
            text.push_str(&path_configuration(treatment.path.as_ref()));
        }
        text.push_str("[admin]\nbind = \"off\"\n[log]\nformat = \"json\"\n");
        text + &treatment.profile.as_ref().map_or_else(String::new, ProfileChoice::definition)
    }
}

fn path_configuration(path: Option<&PathSetting>) -> String {
    let mut text = String::new();
    match path {
        None | Some(PathSetting::Auto(_)) => text.push_str("[[route]]\npath = \"auto\"\n"),
        Some(PathSetting::Fixed(relays)) => {
            let name = relays.join("-");
            if name != DIRECT {
                let _ = writeln!(text, "[[path]]\nname = \"{name}\"\nrelays = {relays:?}");
            }
            let _ = writeln!(text, "[[route]]\npath = [\"{name}\"]");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::section::tests::{numbered_keys, read};

    fn treatment(path: &str) -> Treatment {
        let text = format!("program = \"ekiden\"\nchain = [\"client\"]\nrelays = [\"a\", \"b\"]\npath = {path}");
        toml::from_str(&text).unwrap()
    }

    fn mesh(folder: &path::Path) -> RelayMesh {
        let address = |last| IpAddr::from([10, 100, 0, last]);
        let hosts = [("client", address(1)), ("a", address(2)), ("b", address(3))];
        RelayMesh::with_keys(&hosts, numbered_keys(), folder).unwrap()
    }

    fn known(table: &toml::Table) -> Vec<&str> {
        table["relay"].as_array().unwrap().iter().map(|relay| relay["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn relays_admit_all_peers_and_only_the_client_has_a_route() {
        let folder = crate::temp_dir::TempDir::for_test();
        let mesh = mesh(folder.path());
        let server = SocketAddr::new(IpAddr::from([10, 100, 9, 1]), 80);
        let of = |place, path: &str| read(&mesh.configuration(place, &treatment(path), server));
        let client = of(0, "\"auto\"");
        assert_eq!(known(&client), ["a", "b"]);
        assert_eq!(client["route"][0]["path"].as_str(), Some("auto"));
        assert_eq!(
            (client["listener"][0]["kind"].as_str(), client["log"]["format"].as_str()),
            (Some("socks"), Some("json"))
        );
        let a = of(1, "\"auto\"");
        assert_eq!(known(&a), ["b"]);
        assert_eq!(a["listener"][0]["kind"].as_str(), Some("section"));
        assert!(!a.contains_key("route"));
        assert_eq!(std::fs::read_to_string(&mesh.0[1].peers).unwrap(), "public-0 client\npublic-2 b\n");

        let pair = of(0, "[\"a\", \"b\"]");
        assert_eq!(pair["path"][0]["relays"], toml::Value::from(vec!["a", "b"]));
        assert_eq!(pair["route"][0]["path"][0].as_str(), Some("a-b"));
        let direct = of(0, "[\"direct\"]");
        assert!(!direct.contains_key("path"));
        assert_eq!(direct["route"][0]["path"][0].as_str(), Some("direct"));
    }

    #[test]
    fn path_has_known_relays_at_most_once_each() {
        let relays = ["a", "b"].map(str::to_owned);
        let is_valid = |path: &str| treatment(path).path.unwrap().is_valid_for(&relays);
        for right in ["\"auto\"", "[\"direct\"]", "[\"b\"]", "[\"b\", \"a\"]"] {
            assert!(is_valid(right), "{right}");
        }
        for wrong in ["[]", "[\"c\"]", "[\"a\", \"a\"]", "[\"a\", \"direct\"]"] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
