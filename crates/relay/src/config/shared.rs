//! What the tables of a configuration have in common.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ekiden_proto::addr::Nat64;
use ekiden_proto::key::{PrivateKey, PublicKey};

use super::profiles::Profiles;
use super::reader::Reader;
use super::{Peers, key};
use crate::users::Users;

/// What listeners and hops share.
pub(super) struct Shared {
    /// All profiles.
    pub profiles: Profiles,
    /// `private_key` or `--key`.
    pub private_key: Option<Arc<PrivateKey>>,
    /// The names of all `[[relay]]`s, also of those with mistakes.
    pub relays: Vec<String>,
    /// Whether there is a fleet.
    pub fleet: bool,
    /// The prefixes of NAT64 translators.
    pub nat64: Arc<[Nat64]>,
    /// Our own public keys, as far as they are read.
    own: RefCell<Vec<PublicKey>>,
    /// Each file of users once, so that listeners also share what was verified; `None` for a file with mistakes.
    users: RefCell<BTreeMap<PathBuf, Option<Arc<Users>>>>,
}

impl Shared {
    /// Before any listener is read.
    pub fn new(
        profiles: Profiles,
        private_key: Option<Arc<PrivateKey>>,
        relays: Vec<String>,
        fleet: bool,
        nat64: Arc<[Nat64]>,
    ) -> Self {
        let own = private_key.iter().map(|key| key.public()).collect();
        Self { profiles, private_key, relays, fleet, nat64, own: RefCell::new(own), users: RefCell::default() }
    }

    /// Reads the key file of a listener.
    pub fn key(&self, reader: &Reader<'_>) -> Option<Arc<PrivateKey>> {
        let key = key::read(reader, "key")?;
        self.own.borrow_mut().push(key.public());
        Some(key)
    }

    /// The key with which we call other relays.
    pub fn calling_key(&self) -> Arc<PrivateKey> {
        self.private_key.clone().unwrap_or_else(key::made_at_start)
    }

    /// Whether it is one of our own keys.
    pub fn is_own(&self, key: &PublicKey) -> bool {
        self.own.borrow().contains(key)
    }

    /// Reads the file of peers that a listener names.
    pub fn peers(&self, reader: &Reader<'_>) -> Option<Arc<Peers>> {
        let path: PathBuf = reader.optional("peers")?;
        let own = self.own.borrow();
        reader.file("peers", &path, Peers::load(&path, &own, &self.relays)).map(Arc::new)
    }

    /// Whether somebody of this name is in one of the files of users, or would be, had one no mistakes.
    pub fn may_have_user(&self, name: &str) -> bool {
        self.users.borrow().values().any(|users| users.as_ref().is_none_or(|users| users.has(name)))
    }

    /// Reads the file of users that a listener names.
    pub fn users(&self, reader: &Reader<'_>) -> Option<Arc<Users>> {
        let path: PathBuf = reader.optional("users")?;
        key::warn_of_open(reader, "users", &path);
        let load = |path: &PathBuf| reader.file("users", path, Users::load(path)).map(Arc::new);
        self.users.borrow_mut().entry(path).or_insert_with_key(load).clone()
    }
}
