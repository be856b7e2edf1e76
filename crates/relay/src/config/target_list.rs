//! Lists of targets in files, such as domains or the networks of a country. They are read again when the files change.
//!
//! Each line has a pattern as in `to`; `#` starts a comment. A list may have a hundred thousand patterns, so targets
//! are looked up in hash tables, not compared with each pattern.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ekiden_proto::addr::{Host, Network};

use super::file_stamp::FileStamp;
use super::reader::TableReader;
use super::{HostPattern, TargetPattern};

/// Maximum size of a file, in bytes.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// Maximum number of reported mistakes of one file.
const MAX_MISTAKES: usize = 10;

/// The targets in a file.
#[derive(Debug)]
pub struct TargetList {
    /// The file with the patterns.
    pub path: PathBuf,
    targets: RwLock<Arc<TargetSet>>,
    stamps: Mutex<ListStamps>,
}

/// States of the file that decide when to read it again.
#[derive(Debug)]
struct ListStamps {
    /// State when the file was last read, with or without mistakes.
    read: Option<FileStamp>,
    /// State at the last check.
    seen: Option<FileStamp>,
}

/// Mistakes in a file, with their lines; line 0 stands for the whole file.
type Mistakes = Vec<(usize, String)>;

impl TargetList {
    fn load(path: PathBuf) -> Result<Self, Mistakes> {
        let stamp = FileStamp::of(&path);
        let targets = read_file(&path)?;
        let stamps = Mutex::new(ListStamps { read: stamp, seen: stamp });
        Ok(Self { path, targets: RwLock::new(Arc::new(targets)), stamps })
    }

    /// Reads the file again if it has changed since it was read, but not since the last check: it may still be being
    /// written. Returns `None` if the file is not read. A file with mistakes leaves the list unchanged. Blocks.
    pub fn refresh(&self) -> Option<Result<(), String>> {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        // Before reading: a change in between is detected at the next check.
        let stamp = FileStamp::of(&self.path);
        let previous = std::mem::replace(&mut stamps.seen, stamp);
        if stamp == stamps.read || stamp != previous {
            return None;
        }
        stamps.read = stamp;
        Some(match read_file(&self.path) {
            Ok(targets) => {
                *self.targets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(targets);
                Ok(())
            }
            Err(mistakes) => {
                let (line, expected) = &mistakes[0];
                Err(format!("{}:{line}: expected {expected}", self.path.display()))
            }
        })
    }

    /// Whether the list contains `host` with `port`. `address` is the address of the host, if known.
    pub fn matches(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        self.current().matches(host, address, port)
    }

    /// Whether a network in the list contains all of `net`, for all ports.
    pub fn covers(&self, net: &Network) -> bool {
        let targets = self.current();
        targets.any_host.all || targets.networks_around(net.address(), net.prefix_len()).any(|ports| ports.all)
    }

    /// Whether a network in the list overlaps `net`.
    pub fn overlaps(&self, net: &Network) -> bool {
        let targets = self.current();
        let is_within = || targets.networks.keys().any(|listed| net.covers(listed));
        let is_around = targets.networks_around(net.address(), net.prefix_len()).next().is_some();
        is_around || !targets.any_host.is_empty() || targets.prefixes.last() > Some(&net.prefix_len()) && is_within()
    }

    fn current(&self) -> Arc<TargetSet> {
        Arc::clone(&self.targets.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the lists of a route.
pub(super) fn read(reader: &TableReader<'_>, key: &'static str) -> Vec<Arc<TargetList>> {
    if !reader.has(key) {
        return Vec::new();
    }
    let paths = reader.non_empty_list::<PathBuf>(key).into_iter().map(|(_, path)| path);
    paths.filter_map(|path| reader.accept_file(key, &path.clone(), TargetList::load(path)).map(Arc::new)).collect()
}

/// Patterns, indexed for lookups.
#[derive(Debug, Default)]
struct TargetSet {
    /// The ports of patterns for all hosts, `*`.
    any_host: Ports,
    names: HashMap<Box<str>, Ports>,
    /// Ports by domain, without the leading dot.
    subdomains: HashMap<Box<str>, Ports>,
    networks: HashMap<Network, Ports>,
    /// The prefix lengths of `networks`.
    prefixes: BTreeSet<u8>,
}

/// The ports of the patterns for a host.
#[derive(Debug, Default)]
struct Ports {
    all: bool,
    listed: Vec<u16>,
}

impl Ports {
    fn add(&mut self, port: Option<u16>) {
        match port {
            Some(port) => self.listed.push(port),
            None => self.all = true,
        }
    }

    fn is_empty(&self) -> bool {
        !self.all && self.listed.is_empty()
    }

    fn has(&self, port: u16) -> bool {
        self.all || self.listed.contains(&port)
    }
}

impl TargetSet {
    fn add(&mut self, pattern: TargetPattern) {
        let ports = match pattern.hosts {
            HostPattern::Any => &mut self.any_host,
            HostPattern::Name(name) => self.names.entry(name.into()).or_default(),
            HostPattern::Subdomains(domain) => self.subdomains.entry(domain[1..].into()).or_default(),
            HostPattern::Network(network) => {
                self.prefixes.insert(network.prefix_len());
                self.networks.entry(network).or_default()
            }
        };
        ports.add(pattern.port);
    }

    fn matches(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        let is_named = match host {
            Host::Ip(_) => false,
            Host::Name(name) => {
                let domains = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
                let has = |ports: Option<&Ports>| ports.is_some_and(|ports| ports.has(port));
                has(self.names.get(name.as_str())) || domains.into_iter().any(|domain| has(self.subdomains.get(domain)))
            }
        };
        let has_network = |address| self.networks_around(address, u8::MAX).any(|ports| ports.has(port));
        self.any_host.has(port) || is_named || address.is_some_and(has_network)
    }

    /// Returns the ports of the networks that contain `address`, with prefixes of at most `longest` bits.
    fn networks_around(&self, address: IpAddr, longest: u8) -> impl Iterator<Item = &Ports> {
        let networks = self.prefixes.range(..=longest).filter_map(move |prefix| Network::around(address, *prefix));
        networks.filter_map(|network| self.networks.get(&network))
    }
}

fn read_file(path: &Path) -> Result<TargetSet, Mistakes> {
    let file_mistake = |expected: String| vec![(0, expected)];
    let unreadable = |error: std::io::Error| file_mistake(format!("a readable file with patterns ({error})"));
    match fs::metadata(path).map_err(unreadable)?.len() {
        // An empty file is more likely the result of a failed download than an intended list.
        0 => return Err(file_mistake("a file with patterns or comments: this file is empty".to_owned())),
        1..=MAX_FILE_SIZE => {}
        _ => return Err(file_mistake(format!("a file of at most {} MiB", MAX_FILE_SIZE >> 20))),
    }
    parse(&fs::read_to_string(path).map_err(unreadable)?)
}

fn parse(text: &str) -> Result<TargetSet, Mistakes> {
    let (mut targets, mut mistakes) = (TargetSet::default(), Mistakes::new());
    for (number, line) in (1..).zip(text.lines()) {
        let pattern = line.split('#').next().unwrap_or_default().trim();
        if pattern.is_empty() {
            continue;
        }
        match pattern.parse() {
            Ok(pattern) => targets.add(pattern),
            Err(_) if mistakes.len() < MAX_MISTAKES => mistakes.push((number, expected_pattern(pattern))),
            Err(_) => {}
        }
    }
    if mistakes.is_empty() { Ok(targets) } else { Err(mistakes) }
}

fn expected_pattern(found: &str) -> String {
    format!(r#"a pattern like "*.example.com", "203.0.113.0/24" or "example.com:443", not {found:?}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(targets: &TargetSet, host: &str, address: Option<&str>, port: u16) -> bool {
        let host = Host::parse(host).unwrap();
        let address = address.map(|address| address.parse().unwrap()).or(match host {
            Host::Ip(ip) => Some(ip),
            Host::Name(_) => None,
        });
        targets.matches(&host, address, port)
    }

    /// The list and the patterns of `to` match the same targets.
    #[test]
    fn list_matches_like_separate_patterns() {
        let text = "# streaming\nexample.com\n*.example.org:443  # and below\n\n198.51.100.0/24\n2001:db8::/32\n10.0.0.1:80\n10.0.0.1:81\n";
        let targets = parse(text).unwrap();
        let patterns: Vec<TargetPattern> =
            text.lines().filter_map(|line| line.split('#').next()?.trim().parse().ok()).collect();
        assert_eq!(patterns.len(), 6);
        let mut found = 0;
        for host in [
            "example.com",
            "a.example.com",
            "example.org",
            "a.b.example.org",
            "xexample.org",
            "198.51.100.7",
            "10.0.0.1",
            "2001:db8::1",
        ] {
            for (address, port) in [(None, 443), (None, 81), (Some("198.51.100.9"), 443), (Some("10.0.0.2"), 80)] {
                let address = if host.parse::<IpAddr>().is_ok() { None } else { address };
                let expected = patterns.iter().any(|pattern| {
                    let ip = address.or(Some(host)).and_then(|ip| ip.parse().ok());
                    pattern.matches(&Host::parse(host).unwrap(), ip, port)
                });
                assert_eq!(has(&targets, host, address, port), expected, "{host} {address:?} {port}");
                found += u32::from(expected);
            }
        }
        assert!((10..25).contains(&found), "{found} matches");
        assert!(has(&parse("*:25").unwrap(), "any.example", None, 25));
    }

    #[test]
    fn list_networks_cover_and_overlap_other_networks() {
        let path = std::env::temp_dir().join(format!("ekiden-list-{}", std::process::id()));
        fs::write(&path, "198.51.100.0/24\n203.0.113.0/24:443\n").unwrap();
        let list = TargetList::load(path.clone()).unwrap();
        fs::remove_file(path).unwrap();
        for (net, covers, overlaps) in [
            ("198.51.100.7/32", true, true),
            ("198.51.100.0/24", true, true),
            ("198.51.0.0/16", false, true),
            ("203.0.113.7/32", false, true),
            ("192.0.2.0/24", false, false),
        ] {
            let net: Network = net.parse().unwrap();
            assert_eq!((list.covers(&net), list.overlaps(&net)), (covers, overlaps), "{net}");
        }
    }

    #[test]
    fn list_errors_name_their_lines() {
        let mistakes = parse("example.com\nno name\n10.0.0.1/24\n").unwrap_err();
        assert_eq!(mistakes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3]);
        assert!(mistakes[0].1.contains("\"no name\""), "{mistakes:?}");
    }
}
