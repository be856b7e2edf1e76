//! Context that the tables of a configuration share, and tables that others reference by name.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use ekiden_proto::addr::Nat64Prefix;
use ekiden_proto::key::{PrivateKey, PublicKey};

use super::error::{FoundValue, expected_one_of};
use super::place::KeyLocation;
use super::profiles::Profiles;
use super::reader::TableReader;
use super::users::Users;
use super::value::Name;
use super::{Peers, key};

/// State that listeners and hops share while they are read.
pub(super) struct ReadContext {
    /// All profiles by name.
    pub profiles: Profiles,
    /// The key of `private_key` or `--key`.
    pub private_key: Option<Arc<PrivateKey>>,
    /// The names of all `[[relay]]`s, also of those with mistakes.
    pub relay_names: Vec<String>,
    /// Whether there is a fleet.
    pub has_fleet: bool,
    /// The prefixes of NAT64 translators.
    pub nat64: Arc<[Nat64Prefix]>,
    /// Our own public keys, as far as they are read.
    own_keys: RefCell<Vec<PublicKey>>,
    /// Each users file is read once, so that listeners also share verified passwords; `None` for a file with mistakes.
    users: RefCell<BTreeMap<PathBuf, Option<Arc<Users>>>>,
    /// Whether users of some listener have certificates.
    has_certified_users: Cell<bool>,
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
        let keys = private_key.iter().map(|key| key.public_key()).collect();
        Self {
            profiles,
            private_key,
            relay_names,
            has_fleet,
            nat64,
            own_keys: RefCell::new(keys),
            users: RefCell::default(),
            has_certified_users: Cell::new(false),
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
        let own_keys = self.own_keys.borrow();
        reader.accept_file("peers", &path, Peers::load(&path, &own_keys, &self.relay_names)).map(Arc::new)
    }

    /// Accepts every name of a user from now on: the names are in certificates of clients.
    pub fn accept_any_user(&self) {
        self.has_certified_users.set(true);
    }

    /// Whether a users file has a user of this name, or could have one if it had no mistakes.
    pub fn may_have_user(&self, name: &str) -> bool {
        self.has_certified_users.get()
            || self.users.borrow().values().any(|users| users.as_ref().is_none_or(|users| users.has(name)))
    }

    /// Whether some listener has users.
    pub fn may_have_users(&self) -> bool {
        self.has_certified_users.get() || !self.users.borrow().is_empty()
    }

    /// Reads the file of users that a listener names.
    pub fn read_users(&self, reader: &TableReader<'_>) -> Option<Arc<Users>> {
        let path: PathBuf = reader.optional("users")?;
        key::warn_if_world_readable(reader, "users", &path);
        let load = |path: &PathBuf| reader.accept_file("users", path, Users::load(path)).map(Arc::new);
        self.users.borrow_mut().entry(path).or_insert_with_key(load).clone()
    }
}

/// Tables by name. A table with a mistake keeps its name, so that references to it are not reported as well.
pub(super) struct NamedTables<T> {
    /// The noun for one of them in mistakes.
    noun: &'static str,
    entries: Vec<(String, Option<T>)>,
    /// Makes one for a name that is not known yet.
    placeholder: Option<fn(&str) -> T>,
}

impl<T: Clone> NamedTables<T> {
    /// Tables without an entry.
    pub fn new(noun: &'static str) -> Self {
        Self { noun, entries: Vec::new(), placeholder: None }
    }

    /// From now on, an unknown name resolves to the value that `make` returns.
    pub fn set_placeholder(&mut self, make: fn(&str) -> T) {
        self.placeholder = Some(make);
    }

    /// Adds one; `value` is `None` for one with mistakes.
    pub fn add(&mut self, name: &str, value: Option<T>) {
        self.entries.push((name.to_owned(), value));
    }

    /// These values, and a value made from each of `others` whose name no value has.
    pub fn with_others<U>(&self, noun: &'static str, others: &NamedTables<U>, make: impl Fn(&U) -> T) -> Self {
        let missing = others.entries.iter().filter(|(name, _)| self.get(name).is_none());
        let converted = missing.map(|(name, value)| (name.clone(), value.as_ref().map(&make)));
        Self { noun, entries: self.entries.iter().cloned().chain(converted).collect(), placeholder: self.placeholder }
    }

    /// Those without mistakes, in their order.
    pub fn valid(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// The one with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Option<T>> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The expected text, where `name` is unknown.
    pub fn expected(&self, name: &str) -> String {
        expected_one_of(self.noun, name, self.entries.iter().map(|(known, _)| known.as_str()))
    }

    /// Reads a list of names: at least one, and each once.
    pub fn read_list(&self, reader: &TableReader<'_>, key: &'static str) -> Vec<T> {
        let mut seen = Vec::new();
        let mut values = Vec::new();
        for (place, Name(name)) in reader.non_empty_list(key) {
            let placeholder = self.placeholder.map(|make| Some(make(&name)));
            let value = self.get(&name).or(placeholder.as_ref());
            if value.is_none() {
                name_error(&place, &name, self.expected(&name));
            }
            if seen.contains(&name) {
                let noun = self.noun.split(" or ").next().unwrap_or_default();
                name_error(&place, &name, format!("each {} once", noun.trim_start_matches("a ")));
            }
            values.extend(value.cloned().flatten());
            seen.push(name);
        }
        values
    }
}

fn name_error(place: &KeyLocation<'_>, name: &(impl Debug + ?Sized), expected: String) {
    place.error(FoundValue::Value(format!("{name:?}")), expected);
}

/// The name of each table, `None` for one without. Each has to have one that no other has.
pub(super) fn read_names(readers: &[TableReader<'_>]) -> Vec<Option<String>> {
    let mut names = Vec::new();
    for reader in readers {
        let name = reader.required("name").map(|Name(name)| name);
        if name.is_some() && names.contains(&name) {
            reader.error("name", "a name that no other table has");
        }
        names.push(name);
    }
    names
}
