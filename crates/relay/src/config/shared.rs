//! Context shared by the tables of a configuration, and tables that others reference by name.

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

/// State that is shared while listeners and hops are read.
pub(super) struct ReadContext {
    /// All profiles by name.
    pub profiles: Profiles,
    /// The key of `private_key` or `--key`, if configured.
    pub private_key: Option<Arc<PrivateKey>>,
    /// The names of all `[[relay]]` tables, also of those with mistakes.
    pub relay_names: Vec<String>,
    /// Whether `[fleet]` is configured.
    pub has_fleet: bool,
    /// The prefixes of NAT64 translators.
    pub nat64: Arc<[Nat64Prefix]>,
    /// The public keys of this relay that have been read so far.
    own_keys: RefCell<Vec<PublicKey>>,
    /// The files of users, each read once, so that listeners also share verified passwords; `None` for a file with
    /// mistakes.
    users: RefCell<BTreeMap<PathBuf, Option<Arc<Users>>>>,
    /// Whether a listener gets the names of users from client certificates.
    has_certified_users: Cell<bool>,
}

impl ReadContext {
    /// Creates the context before any listener is read.
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

    /// Returns the key with which this relay dials other relays.
    pub fn dialling_key(&self) -> Arc<PrivateKey> {
        self.private_key.clone().unwrap_or_else(key::temporary_key)
    }

    /// Whether `key` is a public key of this relay.
    pub fn is_own_key(&self, key: &PublicKey) -> bool {
        self.own_keys.borrow().contains(key)
    }

    /// Reads the file of peers of a listener.
    pub fn read_peers(&self, reader: &TableReader<'_>) -> Option<Arc<Peers>> {
        let path: PathBuf = reader.optional("peers")?;
        let own_keys = self.own_keys.borrow();
        reader.accept_file("peers", &path, Peers::load(&path, &own_keys, &self.relay_names)).map(Arc::new)
    }

    /// Accepts any user name from now on, because client certificates contain user names.
    pub fn accept_any_user(&self) {
        self.has_certified_users.set(true);
    }

    /// Whether a user of this name may exist: in a file of users, also one with mistakes, or in a client certificate.
    pub fn may_have_user(&self, name: &str) -> bool {
        self.has_certified_users.get()
            || self.users.borrow().values().any(|users| users.as_ref().is_none_or(|users| users.has(name)))
    }

    /// Whether any listener has users.
    pub fn may_have_users(&self) -> bool {
        self.has_certified_users.get() || !self.users.borrow().is_empty()
    }

    /// Reads the file of users of a listener.
    pub fn read_users(&self, reader: &TableReader<'_>) -> Option<Arc<Users>> {
        let path: PathBuf = reader.optional("users")?;
        key::warn_if_world_readable(reader, "users", &path);
        let load = |path: &PathBuf| reader.accept_file("users", path, Users::load(path)).map(Arc::new);
        self.users.borrow_mut().entry(path).or_insert_with_key(load).clone()
    }
}

/// Tables by name. The name of a table with mistakes stays known, so that references to it are not reported as well.
pub(super) struct NamedTables<T> {
    /// The noun for one of the tables in mistakes.
    noun: &'static str,
    entries: Vec<(String, Option<T>)>,
    /// Creates the value for an unknown name, if unknown names are permitted.
    placeholder: Option<fn(&str) -> T>,
}

impl<T: Clone> NamedTables<T> {
    /// Creates an empty set of tables.
    pub fn new(noun: &'static str) -> Self {
        Self { noun, entries: Vec::new(), placeholder: None }
    }

    /// Permits unknown names from now on, and uses the value that `make` returns for them.
    pub fn set_placeholder(&mut self, make: fn(&str) -> T) {
        self.placeholder = Some(make);
    }

    /// Adds a table; `value` is `None` for one with mistakes.
    pub fn add(&mut self, name: &str, value: Option<T>) {
        self.entries.push((name.to_owned(), value));
    }

    /// Returns these tables, and values that `make` creates from those of `others` with other names.
    pub fn with_others<U>(&self, noun: &'static str, others: &NamedTables<U>, make: impl Fn(&U) -> T) -> Self {
        let missing = others.entries.iter().filter(|(name, _)| self.get(name).is_none());
        let converted = missing.map(|(name, value)| (name.clone(), value.as_ref().map(&make)));
        Self { noun, entries: self.entries.iter().cloned().chain(converted).collect(), placeholder: self.placeholder }
    }

    /// Returns the values of tables without mistakes, in the order of the file.
    pub fn valid(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// Returns the table with this name; `Some(&None)` for one with mistakes.
    pub fn get(&self, name: &str) -> Option<&Option<T>> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the expected text for the unknown `name`.
    pub fn expected(&self, name: &str) -> String {
        expected_one_of(self.noun, name, self.entries.iter().map(|(known, _)| known.as_str()))
    }

    /// Reads a list of at least one name, without duplicates, and returns the values.
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

/// Reads the name of each table; `None` if it is missing or invalid. Names must be unique.
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
