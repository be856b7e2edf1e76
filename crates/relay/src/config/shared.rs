//! What the tables of a configuration have in common.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ekiden_proto::addr::Nat64Prefix;
use ekiden_proto::key::{PrivateKey, PublicKey};

use super::profiles::Profiles;
use super::reader::TableReader;
use super::users::Users;
use super::{Peers, key};

/// What listeners and hops share.
pub(super) struct ReadContext {
    /// All profiles.
    pub profiles: Profiles,
    /// `private_key` or `--key`.
    pub private_key: Option<Arc<PrivateKey>>,
    /// The names of all `[[relay]]`s, also of those with mistakes.
    pub relay_names: Vec<String>,
    /// Whether there is a fleet.
    pub has_fleet: bool,
    /// The prefixes of NAT64 translators.
    pub nat64: Arc<[Nat64Prefix]>,
    /// Our own public keys, as far as they are read.
    own_keys: RefCell<Vec<PublicKey>>,
    /// Each file of users once, so that listeners also share what was verified; `None` for a file with mistakes.
    users: RefCell<BTreeMap<PathBuf, Option<Arc<Users>>>>,
}

impl ReadContext {
    /// Before any listener is read.
    pub fn new(
        profiles: Profiles,
        private_key: Option<Arc<PrivateKey>>,
        relay_names: Vec<String>,
        has_fleet: bool,
        nat64: Arc<[Nat64Prefix]>,
    ) -> Self {
        let own = private_key.iter().map(|key| key.public_key()).collect();
        Self {
            profiles,
            private_key,
            relay_names,
            has_fleet,
            nat64,
            own_keys: RefCell::new(own),
            users: RefCell::default(),
        }
    }

    /// Reads the key file of a listener.
    pub fn read_key(&self, reader: &TableReader<'_>) -> Option<Arc<PrivateKey>> {
        let key = key::read(reader, "key")?;
        self.own_keys.borrow_mut().push(key.public_key());
        Some(key)
    }

    /// The key with which we call other relays.
    pub fn dialling_key(&self) -> Arc<PrivateKey> {
        self.private_key.clone().unwrap_or_else(key::temporary_key)
    }

    /// Whether it is one of our own keys.
    pub fn is_own_key(&self, key: &PublicKey) -> bool {
        self.own_keys.borrow().contains(key)
    }

    /// Reads the file of peers that a listener names.
    pub fn read_peers(&self, reader: &TableReader<'_>) -> Option<Arc<Peers>> {
        let path: PathBuf = reader.optional("peers")?;
        let own = self.own_keys.borrow();
        reader.accept_file("peers", &path, Peers::load(&path, &own, &self.relay_names)).map(Arc::new)
    }

    /// Whether somebody of this name is in one of the files of users, or would be, had one no mistakes.
    pub fn may_have_user(&self, name: &str) -> bool {
        self.users.borrow().values().any(|users| users.as_ref().is_none_or(|users| users.has(name)))
    }

    /// Reads the file of users that a listener names.
    pub fn read_users(&self, reader: &TableReader<'_>) -> Option<Arc<Users>> {
        let path: PathBuf = reader.optional("users")?;
        key::warn_if_world_readable(reader, "users", &path);
        let load = |path: &PathBuf| reader.accept_file("users", path, Users::load(path)).map(Arc::new);
        self.users.borrow_mut().entry(path).or_insert_with_key(load).clone()
    }
}
