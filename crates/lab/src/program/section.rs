//! Chains of ekiden relays with section listeners: keys, admission of peers, and the path.
//!
//! The first relay listens for clients and determines the whole path. Every other relay admits the previous relay by
//! its key; its configuration has the next relay. The ekiden binary under test generates new keys for each run.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::experiment::spec::treatment::Treatment;
use crate::program::ekiden::ListenerKind;
use crate::program::unspecified_address;

/// Port of section listeners.
pub const PORT: u16 = 7000;

/// Key pair of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelayKeys {
    /// Output of `ekiden keygen`, which is the format of a key file.
    pub(super) key_file: String,
    /// Public key of the relay.
    pub(super) public: String,
}

impl RelayKeys {
    pub(super) fn generate(ekiden: &Path) -> anyhow::Result<Self> {
        let output = Command::new(ekiden).arg("keygen").output().context("cannot run ekiden keygen")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "ekiden keygen, {}: {}", output.status, stderr.trim());
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    pub(super) fn parse(printed: &str) -> anyhow::Result<Self> {
        // Errors do not quote the text, which may have a private key.
        let public = printed.lines().find_map(|line| line.strip_prefix("public-key:")).map(str::trim);
        let public = public.context("ekiden keygen printed no public-key")?.to_owned();
        Ok(Self { key_file: printed.to_owned(), public })
    }
}

/// One relay of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SectionRelay {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) public: String,
    pub(super) key: PathBuf,
    pub(super) peers: PathBuf,
}

impl SectionRelay {
    /// Returns the start of the relay's configuration.
    pub(super) fn config_header(&self) -> String {
        format!("version = 1\nprivate_key = {:?}\n", self.key.display().to_string())
    }

    /// Returns the `[[relay]]` table that describes this relay to others.
    pub(super) fn relay_table(&self, treatment: &Treatment) -> String {
        let Self { name, public, .. } = self;
        let address = SocketAddr::new(self.address, PORT);
        format!(
            "[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{public}\"\nencrypt = {}\n{}",
            treatment.encrypt,
            profile_configuration(treatment)
        )
    }
}

/// Relays of a run, from the client's end, with their files written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionChain(Vec<SectionRelay>);

impl SectionChain {
    /// Generates keys for relays on `hosts`, which are pairs of name and address. Writes each relay's private key, with
    /// mode 0600, and the public key of its peer into `folder`.
    ///
    /// # Errors
    /// The binary generates no keys, or a file cannot be written.
    pub fn create(hosts: &[(&str, IpAddr)], ekiden: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::with_keys(hosts, || RelayKeys::generate(ekiden), folder)
    }

    fn with_keys(
        hosts: &[(&str, IpAddr)],
        mut keys: impl FnMut() -> anyhow::Result<RelayKeys>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut relays: Vec<SectionRelay> = Vec::new();
        for (name, address) in hosts {
            let file = |what: &str| folder.join(format!("{name}.{what}"));
            let RelayKeys { key_file: text, public } = keys()?;
            let (key, peers) = (file("key"), file("peers"));
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key)?.write_all(text.as_bytes())?;
            let admitted = relays.last().map(|before| format!("{} {}\n", before.public, before.name));
            std::fs::write(&peers, admitted.unwrap_or_default())?;
            relays.push(SectionRelay { name: (*name).to_owned(), address: *address, public, key, peers });
        }
        Ok(Self(relays))
    }

    /// Returns the configuration of the relay at `index`, from 0, on the path to `server`.
    #[must_use]
    pub fn configuration(&self, index: usize, treatment: &Treatment, server: SocketAddr) -> String {
        let (relay, others) = (&self.0[index], &self.0[index + 1..]);
        // Only the first relay selects the path; the configuration of the others has the next relay only.
        let next_relays = if index == 0 { others } else { &others[..others.len().min(1)] };
        let mut text = relay.config_header();
        text.push_str(&if index == 0 {
            client_listener(treatment, server)
        } else {
            section_listener(relay, treatment)
        });
        next_relays.iter().for_each(|relay| text.push_str(&relay.relay_table(treatment)));
        if index == 0 && !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|relay| relay.name.as_str()).collect();
            let _ = writeln!(text, "[[path]]\nname = \"chain\"\nrelays = {names:?}\n[[route]]\npath = [\"chain\"]");
        }
        text.push_str("[admin]\nbind = \"off\"\n");
        text
    }
}

/// Returns the listener for clients. Only this listener sets the connect mode, which each session carries to the other
/// relays.
pub(super) fn client_listener(treatment: &Treatment, server: SocketAddr) -> String {
    let (port, kind) = (treatment.mode.port(), treatment.mode.name());
    let bind = SocketAddr::new(unspecified_address(server.ip()), port);
    let mode = if treatment.early { "early" } else { "strict" };
    let target = match treatment.mode {
        ListenerKind::Tcp => format!("target = \"{server}\"\n"),
        ListenerKind::Socks | ListenerKind::Http => String::new(),
    };
    format!(
        "[[listener]]\nbind = \"{bind}\"\nkind = \"{kind}\"\nconnect = \"{mode}\"\nallow_open = true\n\
         allow_private = true\n{target}"
    )
}

/// Returns the listener for the previous relay.
pub(super) fn section_listener(relay: &SectionRelay, treatment: &Treatment) -> String {
    let (peers, encrypt) = (relay.peers.display().to_string(), treatment.encrypt);
    let bind = SocketAddr::new(unspecified_address(relay.address), PORT);
    format!(
        "[[listener]]\nbind = \"{bind}\"\nkind = \"section\"\npeers = {peers:?}\nencrypt = {encrypt}\n\
         allow_private = true\n{}",
        profile_configuration(treatment)
    )
}

fn profile_configuration(treatment: &Treatment) -> String {
    treatment.profile.as_ref().map_or_else(String::new, |profile| format!("profile = \"{}\"\n", profile.name()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn treatment(more: &str) -> Treatment {
        toml::from_str(&format!("program = \"ekiden\"\nsections = true\n{more}")).unwrap()
    }

    fn chain(relays: u8) -> SectionChain {
        let relay = |number: u8| SectionRelay {
            name: format!("r{number}"),
            address: IpAddr::from([10, 100, number, 1]),
            public: format!("public-{number}"),
            key: format!("/run/r{number}.key").into(),
            peers: format!("/run/r{number}.peers").into(),
        };
        SectionChain((1..=relays).map(relay).collect())
    }

    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 100, 9, 1)), 5201);

    /// Reads the configuration of a relay, and panics if it is not TOML.
    pub fn read(text: &str) -> toml::Table {
        text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Makes the keys `secret-0` and `public-0`, then those with the next numbers.
    pub fn numbered_keys() -> impl FnMut() -> anyhow::Result<RelayKeys> {
        let mut numbers = 0..;
        move || {
            let number: u32 = numbers.next().unwrap();
            RelayKeys::parse(&format!("private-key: secret-{number}\npublic-key: public-{number}\n"))
        }
    }

    fn names(table: &toml::Table) -> Vec<&str> {
        let relays = table.get("relay").and_then(toml::Value::as_array);
        relays.into_iter().flatten().filter_map(|relay| relay["name"].as_str()).collect()
    }

    #[test]
    fn first_relay_has_the_path_and_later_relays_the_next_hop() {
        let settings = treatment("mode = \"http\"\nearly = true\nencrypt = true\nprofile = \"longhaul\"");
        let configurations = [0, 1, 2].map(|place| read(&chain(3).configuration(place, &settings, SERVER)));
        assert_eq!(configurations.each_ref().map(|table| names(table)), [vec!["r2", "r3"], vec!["r3"], vec![]]);
        let [first, middle, last] = &configurations;
        assert_eq!(first["path"][0]["relays"], toml::Value::from(vec!["r2", "r3"]));
        assert_eq!(first["route"][0]["path"][0].as_str(), Some("chain"));
        assert!(!middle.contains_key("path") && !last.contains_key("route"));
        assert_eq!(first["relay"][1]["address"].as_str(), Some("10.100.3.1:7000"));
        assert_eq!(first["relay"][1]["key"].as_str(), Some("public-3"));
        assert!([&first["relay"][0], &middle["relay"][0]].iter().all(|relay| relay["encrypt"].as_bool() == Some(true)));
        assert_eq!(first["listener"][0]["connect"].as_str(), Some("early"));
        assert!(first["listener"][0].get("profile").is_none(), "the section of the client has no profile");
        assert_eq!(last["listener"][0]["peers"].as_str(), Some("/run/r3.peers"));
        assert_eq!(last["listener"][0]["profile"].as_str(), Some("longhaul"));
        assert_eq!(last["private_key"].as_str(), Some("/run/r3.key"));
    }

    #[test]
    fn forwarder_targets_the_server() {
        let first = read(&chain(2).configuration(0, &treatment("mode = \"tcp\"\nprofile = { tune = false }"), SERVER));
        let listener = &first["listener"][0];
        assert_eq!((listener["kind"].as_str(), listener["target"].as_str()), (Some("tcp"), Some("10.100.9.1:5201")));
        assert_eq!(listener["bind"].as_str(), Some("0.0.0.0:8000"));
        assert_eq!(first["relay"][0]["profile"].as_str(), Some("own"));
    }

    #[test]
    fn a_single_relay_has_no_path() {
        let only = read(&chain(1).configuration(0, &treatment(""), SERVER));
        assert!(["relay", "path", "route"].iter().all(|key| !only.contains_key(*key)));
        assert_eq!(only["listener"][0]["kind"].as_str(), Some("socks"));
        assert_eq!(only["listener"][0]["connect"].as_str(), Some("strict"));
    }

    #[test]
    fn keys_are_parsed_from_keygen_output() {
        let printed = "private-key: AAAA\npublic-key: BBBB\n";
        assert_eq!(RelayKeys::parse(printed).unwrap(), RelayKeys { key_file: printed.into(), public: "BBBB".into() });
        let error = RelayKeys::parse("private-key: AAAA\n").unwrap_err().to_string();
        assert_eq!(error, "ekiden keygen printed no public-key");
    }

    #[test]
    fn key_files_are_private_and_relays_admit_the_previous_relay() {
        let folder = crate::temp_dir::TempDir::for_test();
        let hosts = [("r1", IpAddr::from([10, 100, 0, 2])), ("r2", IpAddr::from([10, 100, 1, 2]))];
        let SectionChain(relays) = SectionChain::with_keys(&hosts, numbered_keys(), folder.path()).unwrap();
        for relay in &relays {
            let mode = std::fs::metadata(&relay.key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", relay.name);
            let secret = relay.public.replace("public", "secret");
            assert!(std::fs::read_to_string(&relay.key).unwrap().contains(&secret));
        }
        assert_eq!(std::fs::read_to_string(&relays[0].peers).unwrap(), "");
        assert_eq!(std::fs::read_to_string(&relays[1].peers).unwrap(), "public-0 r1\n");
    }

    #[test]
    fn keygen_failure_is_reported() {
        let error = RelayKeys::generate(Path::new("/bin/false")).unwrap_err().to_string();
        assert!(error.starts_with("ekiden keygen, exit status: 1"), "{error}");
    }
}
