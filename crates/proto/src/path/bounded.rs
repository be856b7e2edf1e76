//! A bounded table that drops the entries that have not been used for the longest time.

use std::collections::HashMap;
use std::hash::Hash;

/// A table of at most `capacity` entries in two generations, so that no eviction has to search for an entry. New and
/// used entries are put into the young generation; when that is full it becomes the old generation, and the former old
/// one is dropped.
#[derive(Debug, Clone)]
pub struct BoundedMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    capacity: usize,
}

impl<K: Eq + Hash + Copy, V> BoundedMap<K, V> {
    /// An empty table for at most `capacity` entries; a bound below two counts as two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity: capacity.max(2) }
    }

    /// The value of `key`; does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// The value of `key`; counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.insert_young(key, value);
        }
        self.young.get_mut(key)
    }

    /// The value of `key`, or else a new one from `make`.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_else(make);
            self.insert_young(key, value);
        }
        self.young.get_mut(&key).expect("invariant: the value was inserted")
    }

    /// Inserts `value`, or replaces the value of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.insert_young(key, value);
    }

    /// Removes the entry of `key` and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    /// The number of entries in both halves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries of both halves.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn insert_young(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_stays_within_its_bound_and_keeps_used_entries() {
        let mut table = BoundedMap::new(100);
        table.insert(0, "kept");
        for key in 1..1000 {
            table.insert(key, "passing");
            assert!(table.len() <= 100, "{} after {key}", table.len());
            assert_eq!(table.get(&0), Some(&mut "kept"), "after {key}");
        }
        assert_eq!(table.peek(&1), None);
        assert_eq!(table.peek(&999), Some(&"passing"));
    }

    #[test]
    fn each_key_has_a_single_value() {
        let mut table = BoundedMap::new(4);
        table.insert(1, 'a');
        table.insert(2, 'b');
        table.insert(3, 'c');
        table.insert(1, 'd');
        assert_eq!(table.iter().filter(|(key, _)| **key == 1).count(), 1);
        assert_eq!(*table.get_or_insert_with(1, || 'x'), 'd');
        assert_eq!(table.remove(&1), Some('d'));
        assert_eq!(*table.get_or_insert_with(1, || 'x'), 'x');
    }
}
