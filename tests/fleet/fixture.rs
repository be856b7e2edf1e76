//! Fleets of the tests: keys, certificates, configurations and relays, and entries with other clocks or states.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ekiden_proto::fleet::{Certificate, CertificateRequest, FleetEntry, RelayState, SignedCertificate, SigningKey};
use ekiden_proto::key::PrivateKey;
use serde_json::Value;

use super::etcd::Etcd;
use super::harness::*;

/// The public and private key of a fleet.
pub struct Fleet {
    pub public: String,
    pub file: PathBuf,
    _folder: Folder,
}

/// The identity and files of a member relay.
pub struct Site {
    pub name: String,
    pub key: Key,
    pub address: SocketAddr,
    pub certificate: PathBuf,
    pub state: PathBuf,
    folder: Folder,
    pub fleet: String,
}

/// Runs `ekiden fleet ARGUMENTS`. Returns the standard output.
pub fn fleet(arguments: &[&str]) -> String {
    let output = ekiden().arg("fleet").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `ekiden check CONFIG`. Returns the exit code and the standard error.
pub fn check(config: &Path) -> (Option<i32>, String) {
    let output = ekiden().arg("check").arg(config).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

impl Fleet {
    pub fn new() -> Self {
        let folder = Folder::new();
        let text = fleet(&["keygen"]);
        let file = folder.write_with_mode("fleet", &text, 0o600);
        let public = text.lines().find_map(|line| line.strip_prefix("fleet-public-key: ")).unwrap().to_owned();
        Self { public, file, _folder: folder }
    }

    /// Creates the identity of a relay with a certificate of this fleet, and an unused address.
    pub fn site(&self, name: &str) -> Site {
        let (key, folder) = (Key::new(), Folder::new());
        let address = unused_address();
        let request = fleet(&["request", "--key", key.file.to_str().unwrap()]);
        let sign = ["sign", "--key", self.file.to_str().unwrap(), "--name", name];
        let certificate = fleet(&[&sign[..], &["--address", &address.to_string(), request.trim()]].concat());
        let certificate = folder.write("certificate", certificate);
        let (state, fleet) = (folder.0.join("state"), self.public.clone());
        Site { name: name.to_owned(), key, address, certificate, state, folder, fleet }
    }

    /// The prefix of the keys in etcd that all fleets of a test share.
    pub const SHARED: &'static str = "/shared/";
}

impl Site {
    /// Writes the configuration: a listener for relays, a listener for clients, and `more`.
    pub fn config(&self, etcd: &Etcd, more: &str) -> PathBuf {
        self.config_at(&etcd.url(), "", more)
    }

    /// Like `config`, with another URL of etcd and further lines in `[fleet]`.
    pub fn config_at(&self, etcd: &str, settings: &str, more: &str) -> PathBuf {
        self.write_config(etcd, &format!("lease = \"5s\"\nevery = \"1s\"\n{settings}"), more)
    }

    /// Like `config`, with these values of `lease` and `every`.
    pub fn config_with_times(&self, etcd: &Etcd, lease: &str, every: &str, more: &str) -> PathBuf {
        self.write_config(&etcd.url(), &format!("lease = \"{lease}\"\nevery = \"{every}\""), more)
    }

    fn write_config(&self, etcd: &str, settings: &str, more: &str) -> PathBuf {
        let (key, certificate, state) = (&self.key.file, &self.certificate, &self.state);
        let text = format!(
            "version = 1\nprivate_key = {key:?}\n\
             [[listener]]\nname = \"sections\"\nkind = \"section\"\nbind = \"{}\"\nfleet = true\n\
             [[listener]]\nname = \"clients\"\nkind = \"socks\"\nbind = \"127.0.0.1:0\"\n\
             [fleet]\netcd = [\"{etcd}\"]\nkey = \"{}\"\ncertificate = {certificate:?}\nstate = {state:?}\n\
             prefix = \"{}\"\n{settings}\n{more}",
            self.address,
            self.fleet,
            Fleet::SHARED,
        );
        self.folder.write("ekiden.toml", text)
    }

    /// Writes the configuration without the line of `option` in `[fleet]`.
    pub fn config_without(&self, etcd: &Etcd, option: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.config(etcd, "")).unwrap();
        let (option, lines) = (format!("{option} = "), text.lines());
        let left: String = lines.filter(|line| !line.starts_with(&option)).map(|line| format!("{line}\n")).collect();
        self.folder.write("ekiden.toml", left)
    }

    /// Creates a folder beside the relay's files.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.folder.0.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    pub fn start(&self, etcd: &Etcd, more: &str) -> Relay {
        self.run(&self.config(etcd, more))
    }

    pub fn run(&self, config: &Path) -> Relay {
        Relay::run(&["-c", config.to_str().unwrap()], 2)
    }

    /// Waits for the relay's entry in etcd, and returns its key.
    pub fn entry_key(&self, etcd: &Etcd) -> String {
        eventually("the relay's entry in etcd", || {
            let line = format!("\nname: {}\n", self.name);
            let is_own = |(key, value): &(String, String)| key.starts_with(Fleet::SHARED) && value.contains(&line);
            etcd.entries().into_iter().find(is_own).map(|(key, _)| key)
        })
    }

    /// Waits until the relay's state file has the member `name`.
    pub fn wait_stored(&self, name: &str) {
        let line = format!("name: {name}");
        let stored = || fs::read_to_string(&self.state).ok().filter(|text| text.contains(&line));
        eventually(&format!("{name} in the state file"), stored);
    }
}

/// Starts home and osaka, and waits until each relay reports the other as a member. Sessions of home use the path by
/// osaka.
pub fn pair(etcd: &Etcd, fleet: &Fleet) -> (Site, Relay, Site, Relay) {
    pair_with(etcd, fleet, |osaka| osaka.config(etcd, ""))
}

/// Like `pair`; `configure` writes the configuration of osaka.
pub fn pair_with(etcd: &Etcd, fleet: &Fleet, configure: impl FnOnce(&Site) -> PathBuf) -> (Site, Relay, Site, Relay) {
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(etcd, BY_OSAKA);
    // home has an entry before osaka starts: two relays that join at the same time may reject each other at first.
    home.entry_key(etcd);
    let mut at_osaka = osaka.run(&configure(&osaka));
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_fleet_change(&mut at_osaka, "joined", "home");
    (home, at_home, osaka, at_osaka)
}

/// Configuration: sessions use the path by osaka, and the direct path as the fallback.
pub const BY_OSAKA: &str =
    "[[path]]\nname = \"by-osaka\"\nrelays = [\"osaka\"]\n[[route]]\npath = [\"by-osaka\", \"direct\"]\n";

/// Waits until `relay` reports this change of the member `name`: `joined`, `draining` or `left`.
pub fn wait_fleet_change(relay: &mut Relay, change: &str, name: &str) -> Value {
    let listed = |event: &Value| event[change].as_array().is_some_and(|names| names.iter().any(|entry| entry == name));
    relay.next(|event| event["event"] == "fleet_changed" && listed(event))
}

/// Waits for the relay's event about etcd: `etcd_reachable` or `etcd_unreachable`.
pub fn wait_etcd_event(relay: &mut Relay, word: &str) -> Value {
    relay.next(|event| event["event"] == word)
}

/// Returns the number of remaining warnings with these words; the relay must be ending.
pub fn count_warnings(relay: &mut Relay, words: &str) -> usize {
    relay.remaining_events().iter().filter(|event| is_warning(event, words)).count()
}

/// Waits for a warning that has these words.
pub fn wait_warning(relay: &mut Relay, words: &str) -> Value {
    relay.next(|event| is_warning(event, words))
}

fn is_warning(event: &Value, words: &str) -> bool {
    event["event"] == "warning" && event["message"].as_str().is_some_and(|message| message.contains(words))
}

/// Returns the members of the fleet in `/api/fleet` of a relay.
pub fn members(relay: &Relay) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&relay.ask("/api/fleet")).expect("JSON");
    answer["members"].as_array().cloned().unwrap_or_default()
}

/// Returns the member `name` in `/api/fleet` of a relay; `None` if the relay does not list it.
pub fn member(relay: &Relay, name: &str) -> Option<Value> {
    members(relay).into_iter().find(|member| member["name"] == name)
}

/// Waits until a relay lists the member `name` as missing in etcd.
pub fn wait_missing(relay: &Relay, name: &str) {
    let missing = || member(relay, name)?["missing_seconds"].is_number().then_some(());
    eventually(&format!("{name} as a missing member"), missing);
}

/// Opens a session through the relay's client listener, and asserts one echo of the target.
pub fn session(relay: &Relay, target: SocketAddr) -> TcpStream {
    let mut stream = socks5(relay.address_of(1), target).unwrap_or_else(|code| panic!("refused: {code}"));
    assert_echo(&mut stream);
    stream
}

/// Waits for the closing event of a client's session.
pub fn closed(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "closed" && event["listener"] == "clients")
}

/// Opens sessions until one uses this path: relays that have just joined must first admit each other.
pub fn wait_path(relay: &mut Relay, target: SocketAddr, path: &str) {
    eventually(path, || (path_of_a_session(relay, target) == path).then_some(()));
}

/// Opens and closes a session. Returns the path of its closing event.
pub fn path_of_a_session(relay: &mut Relay, target: SocketAddr) -> String {
    drop(session(relay, target));
    closed(relay)["path"].as_str().unwrap().to_owned()
}

/// Returns the seconds since 1970 of a clock that is `ahead` seconds ahead.
fn unix_time(ahead: i64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs().checked_add_signed(ahead).unwrap()
}

impl Site {
    pub fn private(&self) -> PrivateKey {
        PrivateKey::from_file(&fs::read_to_string(&self.key.file).unwrap()).unwrap()
    }

    /// Returns a certificate of the fleet for this relay, valid in this window, in seconds from now.
    pub fn issue_certificate(&self, fleet: &Fleet, window: Range<i64>) -> SignedCertificate {
        let CertificateRequest { key, verify_key: signing } = CertificateRequest::for_relay(&self.private());
        let fleet_key = SigningKey::from_file(&fs::read_to_string(&fleet.file).unwrap()).unwrap();
        let certificate = Certificate {
            fleet: fleet_key.verify_key(),
            name: self.name.clone(),
            address: self.address.to_string().parse().unwrap(),
            key,
            verify_key: signing,
            not_before: unix_time(window.start),
            not_after: unix_time(window.end),
        };
        certificate.sign(&fleet_key)
    }

    /// Returns an entry of this relay with a certificate that is valid in `window`. The clock of the entry is `ahead`
    /// seconds ahead.
    pub fn entry(&self, fleet: &Fleet, window: Range<i64>, ahead: i64) -> FleetEntry {
        let (issued, at) = (self.issue_certificate(fleet, window), unix_time(ahead));
        FleetEntry {
            signed_certificate: issued,
            sequence: at * 1000,
            created_at: at,
            state: RelayState::Serving,
            neighbours: Vec::new(),
        }
    }

    /// Signs the entry, and puts it into etcd.
    pub fn publish(&self, etcd: &Etcd, entry: &FleetEntry) {
        let key = self.private();
        let place =
            key.public_key().0.iter().fold(Fleet::SHARED.to_owned(), |place, byte| format!("{place}{byte:02x}"));
        etcd.put(&place, &entry.sign(&SigningKey::derive_for_relay(&key)));
    }
}
