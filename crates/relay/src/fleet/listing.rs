//! Reads all entries under the prefix at one revision, in pages, and maps relays to keys in etcd.

use std::collections::BTreeSet;

use ekiden_proto::fleet::{EntryError, MembershipChange};
use ekiden_proto::key::PublicKey;

use super::EtcdErrorMessage;
use super::directory::{FleetShared, unix_seconds};
use super::etcd::{EtcdClient, EtcdError};
use crate::config::FleetConfig;

/// Entries in a page, and in a page for huge values.
const PAGE_SIZES: [i64; 2] = [128, 8];

/// Largest number of keys that are read.
const MAX_KEYS: usize = 20_000;

/// Returns the key of a relay's entry.
pub fn entry_key(prefix: &str, relay: &PublicKey) -> String {
    relay.0.iter().fold(prefix.to_owned(), |key, byte| format!("{key}{byte:02x}"))
}

/// Parses the key of an entry. Returns the relay; `None` for any other key.
pub fn parse_entry_key(prefix: &str, key: &[u8]) -> Option<PublicKey> {
    let digits = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    let is_valid = digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let byte = |at| is_valid.then(|| u8::from_str_radix(&digits[at..at + 2], 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes?.try_into().ok().map(PublicKey)
}

/// Reads all entries. Returns their revision.
pub async fn read_all(client: &mut EtcdClient<'_>, inner: &FleetShared, fleet: &FleetConfig) -> Result<i64, EtcdError> {
    let (mut begin, mut revision) = (fleet.prefix.clone().into_bytes(), 0);
    let end = range_end(&fleet.prefix);
    let (mut listed, mut read_count) = (BTreeSet::new(), 0);
    let mut changed = false;
    loop {
        let (page_revision, page, has_more) = read_page(client, &begin, &end, revision).await?;
        revision = page_revision;
        for (key, value) in &page {
            let relay = parse_entry_key(&fleet.prefix, key);
            let (is_change, is_listed) = relay.map_or((false, false), |relay| inner.on_entry(&relay, value));
            changed |= is_change;
            listed.extend(relay.filter(|_| is_listed));
        }
        read_count += page.len();
        let Some((last, _)) = page.last().filter(|_| has_more && read_count < MAX_KEYS) else { break };
        begin = [last.as_slice(), b"\0"].concat();
    }
    changed |= inner.roster().as_mut().is_some_and(|roster| roster.reconcile_listed(&listed, inner.now()));
    if changed {
        inner.notify_changed();
    }
    Ok(revision)
}

/// Returns the first key after all keys that begin with `prefix`.
pub fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // The prefix ends with a slash, which has a successor byte.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

type EntryPage = (i64, Vec<(Vec<u8>, Vec<u8>)>, bool);

/// Reads one page. Returns its revision, its entries, and whether more entries follow.
async fn read_page(
    client: &mut EtcdClient<'_>,
    begin: &[u8],
    end: &[u8],
    revision: i64,
) -> Result<EntryPage, EtcdError> {
    for limit in PAGE_SIZES {
        match client.read_range(begin, end, limit, revision).await {
            Ok(response) => {
                let page_revision = if revision == 0 { response.header.revision } else { revision };
                let pairs = response.kvs.into_iter().map(|kv| (kv.key, kv.value)).collect();
                return Ok((page_revision, pairs, response.more));
            }
            Err(EtcdError::TooLarge) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(EtcdError::TooLarge)
}

impl FleetShared {
    /// Processes the entry of `relay`. Returns whether a member has joined, moved or begun to drain, and whether the
    /// entry counts as listed.
    pub fn on_entry(&self, relay: &PublicKey, value: &[u8]) -> (bool, bool) {
        let (now, unix) = (self.now(), unix_seconds());
        let mut roster = self.roster();
        let Some(roster) = roster.as_mut() else { return (false, false) };
        let verdict = roster.apply_entry(relay, value, now, unix);
        match verdict {
            Ok(change) => {
                let (member, is_new) = (roster.member(relay), change != MembershipChange::Unchanged);
                if is_new {
                    self.etcd().version += 1;
                    self.check_clock(member, unix);
                }
                // An unchanged entry may be from the state file, whose measurements are not recorded: they may be old.
                if let Some(member) = member.filter(|_| is_new || !self.has_learned(relay)) {
                    self.record_measurements(member);
                }
                (change == MembershipChange::Members, true)
            }
            Err(error) => {
                self.etcd().refused += 1;
                self.reject(relay, error);
                // An old entry, after etcd was restored from a copy: its relay will write a new one.
                (false, matches!(error, EntryError::Replayed { .. }))
            }
        }
    }

    /// Processes the removal of an entry. Returns whether a member has left.
    pub fn on_entry_removed(&self, relay: &PublicKey) -> bool {
        let now = self.now();
        self.roster().as_mut().is_some_and(|roster| roster.mark_missing(relay, now))
    }
}

impl From<EtcdError> for EtcdErrorMessage {
    fn from(failure: EtcdError) -> Self {
        failure.into_message()
    }
}
