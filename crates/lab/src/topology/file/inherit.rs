//! How one table takes over what another says: key by key, and not the parts of another kind.

use toml::{Table, Value};

/// What names the variant of a table: a queue's kind, a loss's model. With another one, other keys mean something.
const VARIANT_KEYS: [&str; 2] = ["kind", "model"];

/// `base`, changed to what `over` says. A table inside is merged in the same way, unless it says its own kind or model: then
/// it stands for itself.
#[must_use]
pub fn merge_tables(mut base: Table, over: &Table) -> Table {
    for (key, value) in over {
        let value = match (base.remove(key), value) {
            (Some(Value::Table(old)), Value::Table(new)) if !VARIANT_KEYS.iter().any(|tag| new.contains_key(*tag)) => {
                Value::Table(merge_tables(old, new))
            }
            _ => value.clone(),
        };
        base.insert(key.clone(), value);
    }
    base
}

/// Without what is switched off by `false`: so a link does without what it would inherit. (`down = false` is a value.)
#[must_use]
pub fn remove_disabled_keys(mut table: Table) -> Table {
    table.retain(|key, value| key == "down" || *value != Value::Boolean(false));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(base: &str, over: &str) -> Table {
        merge_tables(base.parse().unwrap(), &over.parse().unwrap())
    }

    #[test]
    fn tables_merge_key_by_key() {
        let expected: Table = r#"a = 1
            loss = { model = "bernoulli", p = 0, at = "ingress" }"#
            .parse()
            .unwrap();
        assert_eq!(
            merge(r#"loss = { model = "bernoulli", p = 1, at = "ingress" }"#, "a = 1\nloss = { p = 0 }"),
            expected
        );
    }

    #[test]
    fn another_kind_starts_anew() {
        let codel = r#"queue = { kind = "codel", limit = "9pkt" }"#;
        assert_eq!(merge(r#"queue = { kind = "red", min = "5pkt" }"#, codel), codel.parse().unwrap());
    }
}
