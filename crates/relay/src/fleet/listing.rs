//! Everything under the prefix at one moment, page by page, and how keys in etcd are named.

use std::collections::BTreeSet;

use ekiden_proto::fleet::{Change, Refused};
use ekiden_proto::key::PublicKey;
use etcd_client::GetOptions;

use super::Trouble;
use super::directory::{Inner, unix};
use super::etcd::{Connection, Failure, answered};
use crate::config::Fleet;

/// Entries of a page; and where somebody has put huge values there, of a small page.
const PAGES: [i64; 2] = [128, 8];

/// Most keys that are looked at.
const MOST_KEYS: usize = 20_000;

/// The key of a relay's entry.
pub fn key_of(prefix: &str, relay: &PublicKey) -> String {
    relay.0.iter().fold(prefix.to_owned(), |key, byte| format!("{key}{byte:02x}"))
}

/// The relay whose entry stands at `key`.
pub fn relay_at(prefix: &str, key: &[u8]) -> Option<PublicKey> {
    let digits = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    let good = digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let byte = |at| good.then(|| u8::from_str_radix(&digits[at..at + 2], 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes?.try_into().ok().map(PublicKey)
}

/// Reads all entries; the revision that they are of.
pub async fn read_all(connection: &mut Connection, inner: &Inner, fleet: &Fleet) -> Result<i64, Failure> {
    let (mut begin, mut revision) = (fleet.prefix.clone().into_bytes(), 0);
    let end = behind(&fleet.prefix);
    let (mut listed, mut looked_at) = (BTreeSet::new(), 0);
    let mut changed = false;
    loop {
        let (at, page, more) = page(connection, (&begin, &end), revision).await?;
        revision = at;
        for (key, value) in &page {
            let relay = relay_at(&fleet.prefix, key);
            let (heard, known) = relay.map_or((false, false), |relay| inner.hear(&relay, value));
            changed |= heard;
            listed.extend(relay.filter(|_| known));
        }
        looked_at += page.len();
        let Some((last, _)) = page.last().filter(|_| more && looked_at < MOST_KEYS) else { break };
        begin = [last.as_slice(), b"\0"].concat();
    }
    changed |= inner.roster().as_mut().is_some_and(|roster| roster.listed(&listed, inner.now()));
    if changed {
        inner.has_changed();
    }
    Ok(revision)
}

/// The first key that does not begin with `prefix`.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // It ends with a slash, and there is a byte behind that.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

type Page = (i64, Vec<(Vec<u8>, Vec<u8>)>, bool);

/// One page: its revision, the entries, and whether there are more.
async fn page(connection: &mut Connection, (begin, end): (&[u8], &[u8]), revision: i64) -> Result<Page, Failure> {
    for limit in PAGES {
        let options = GetOptions::new().with_range(end).with_limit(limit).with_revision(revision);
        match answered(connection.kv.get(begin, Some(options))).await {
            Ok(mut answer) => {
                let at = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                let more = answer.more();
                let pairs = answer.take_kvs().into_iter().map(etcd_client::KeyValue::into_key_value).collect();
                return Ok((if revision == 0 { at } else { revision }, pairs, more));
            }
            Err(Failure::TooLarge) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::TooLarge)
}

impl Inner {
    /// Takes what stands at the place of `relay`; whether somebody has come, moved or begun to drain by it, and whether
    /// it counts as being listed.
    pub fn hear(&self, relay: &PublicKey, value: &[u8]) -> (bool, bool) {
        let (now, unix) = (self.now(), unix());
        let mut roster = self.roster();
        let Some(roster) = roster.as_mut() else { return (false, false) };
        let verdict = roster.accept(relay, value, now, unix);
        match verdict {
            Ok(Change::None) => (false, true),
            Ok(change) => {
                self.etcd().version += 1;
                let member = roster.member(relay);
                self.look_at_clock(member, unix);
                member.into_iter().for_each(|member| self.learn(member));
                (change == Change::Members, true)
            }
            Err(why) => {
                self.etcd().refused += 1;
                self.doubt(relay, why);
                // An old one, after etcd was restored from a copy: whoever it is of will write a new one.
                (false, matches!(why, Refused::Replayed { .. }))
            }
        }
    }

    /// Notes that nothing stands there any more; whether somebody is gone by it.
    pub fn hear_nothing(&self, relay: &PublicKey) -> bool {
        let now = self.now();
        self.roster().as_mut().is_some_and(|roster| roster.unlisted(relay, now))
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        failure.trouble()
    }
}
