//! The file of peers: the relays that may connect to a section listener, and the targets, next relays and packet
//! sources permitted to each.
//!
//! ```text
//! # public key                                 name     targets                  next relays     sources of packets
//! hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo= laptop
//! 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08= office   to=*.example.jp:443      through=osaka   from=192.168.2.0/24
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_proto::key::PublicKey;

use super::access;
use super::error::expected_one_of;
use super::value::{ConfigValue, Name};
use super::{AccessRules, Peer, Peers, TargetPattern};

const LINE_FORMAT: &str = "a line PUBLIC-KEY NAME [to=PATTERN,...] [through=RELAY,...] [from=NETWORK,...]";

impl Peers {
    /// Reads a file of peers. `own_keys` are the keys of this relay, `relays` the names of its next hops. A file
    /// without peers is valid and accepts no peer.
    ///
    /// # Errors
    /// Every mistake with its line, from 1, and the expected text; line 0 stands for the whole file.
    pub fn load(path: &Path, own_keys: &[PublicKey], relays: &[String]) -> Result<Self, Vec<(usize, String)>> {
        let text =
            fs::read_to_string(path).map_err(|error| vec![(0, format!("a readable file of peers ({error})"))])?;
        Self::from_text(&text, own_keys, relays)
    }

    /// Parses the text of a file of peers.
    ///
    /// # Errors
    /// Line numbers, and the expected texts. The line itself is not shown, because it may contain a private key.
    pub fn from_text(text: &str, own_keys: &[PublicKey], relays: &[String]) -> Result<Self, Vec<(usize, String)>> {
        let mut peers = BTreeMap::new();
        let mut mistakes = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<_> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            if words.is_empty() {
                continue;
            }
            let mut report = |expected| mistakes.push((number, expected));
            let Some((key, peer)) = parse_line(&words, relays, &mut report) else { continue };
            if own_keys.contains(&key) {
                report("the key of another relay, not of this relay".to_owned());
            }
            if peers.values().any(|other: &Arc<Peer>| other.name == peer.name) {
                report(format!("each name once; {:?} is on an earlier line", peer.name));
            }
            match peers.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(Arc::new(peer));
                }
                Entry::Occupied(_) => report("each key once; this key is on an earlier line".to_owned()),
            }
        }
        if mistakes.is_empty() { Ok(Self(peers)) } else { Err(mistakes) }
    }
}

/// Parses the words of a line; `None` after reporting a mistake.
fn parse_line(words: &[&str], relays: &[String], report: &mut impl FnMut(String)) -> Option<(PublicKey, Peer)> {
    let [key, name, options @ ..] = words else {
        report(LINE_FORMAT.to_owned());
        return None;
    };
    let mut peer = Peer { name: (*name).into(), access: AccessRules::default(), next_hops: None, from: None };
    // The `allow` list of the peer restricts its targets; private addresses are judged by the rules of the listener.
    peer.access.allow_private = true;
    for option in options {
        match option.split_once('=') {
            Some(("to", list)) if peer.access.allow.is_empty() => peer.access.allow = parse_patterns(list, report),
            Some(("through", list)) if peer.next_hops.is_none() => {
                peer.next_hops = Some(parse_names(list, relays, report))
            }
            Some(("from", list)) if peer.from.is_none() => peer.from = Some(parse_networks(list, report)),
            _ => report(LINE_FORMAT.to_owned()),
        }
    }
    let name = Name::read(name).map_err(|expected| report(expected.to_owned()));
    let key = key.parse().map_err(|_| report(format!("at the beginning of the line {}", PublicKey::EXPECTED)));
    name.ok().and(key.ok()).map(|key| (key, peer))
}

fn parse_patterns(list: &str, report: &mut impl FnMut(String)) -> Vec<TargetPattern> {
    let read = |text: &str| TargetPattern::read(text).map_err(|expected| report(format!("after to= {expected}"))).ok();
    list.split(',').filter_map(read).collect()
}

/// Parses the source networks of packets that a peer may send.
fn parse_networks(list: &str, report: &mut impl FnMut(String)) -> Vec<Network> {
    let mut nets: Vec<Network> = Vec::new();
    for text in list.split(',') {
        let Ok(net) = access::parse_network(text) else {
            report("after from= networks like 192.168.2.0/24 or 2001:db8::/32, or addresses".to_owned());
            continue;
        };
        if nets.iter().any(|other| other.overlaps(&net)) {
            report(format!("after from= networks that do not overlap: {net} overlaps an earlier network"));
        }
        nets.push(net);
    }
    nets
}

fn parse_names(list: &str, relays: &[String], report: &mut impl FnMut(String)) -> Vec<Box<str>> {
    let is_known = |name: &&str| {
        let is_known = relays.iter().any(|relay| relay == name);
        if !is_known {
            report(expected_one_of("after through= the name of a [[relay]]", name, relays.iter().map(String::as_str)));
        }
        is_known
    };
    list.split(',').filter(is_known).map(Into::into).collect()
}
