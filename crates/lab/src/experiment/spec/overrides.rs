//! Dotted keys that change a document: `"link.wan.delay" = "20ms"`.

use toml::{Table, Value};

/// Sets the keys of `set` in `document`.
///
/// # Errors
/// A text for every key whose parent does not exist. The last part of a key may be new; the reader of the document
/// validates that part.
pub fn apply(document: &mut Table, set: &Table) -> Vec<String> {
    set.iter().filter_map(|(key, value)| set_key(document, key, value).err()).collect()
}

fn set_key(document: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let parts = split_key(key).ok_or_else(|| format!("set: {key:?} is not a dotted key"))?;
    let Some((last, parents)) = parts.split_last() else { return Err("set: an empty key".into()) };
    let mut table = document;
    for (depth, part) in parents.iter().enumerate() {
        let next = table.get_mut(part).and_then(Value::as_table_mut);
        table = next.ok_or_else(|| format!("set: {key:?}: there is no {}", parents[..=depth].join(".")))?;
    }
    table.insert(last.clone(), value.clone());
    Ok(())
}

/// Splits a dotted key into its parts; a part in double quotes may contain dots. `None` if the key is malformed.
fn split_key(key: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = key;
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part.to_owned());
        match after.strip_prefix('.') {
            Some(more) => rest = more,
            None => return after.is_empty().then_some(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(set: &str) -> Result<Table, Vec<String>> {
        let mut document: Table = "[link.wan]\ndelay = \"1ms\"\n[host.a.sysctl]\n".parse().unwrap();
        let mistakes = apply(&mut document, &set.parse().unwrap());
        if mistakes.is_empty() { Ok(document) } else { Err(mistakes) }
    }

    #[test]
    fn a_key_is_replaced_or_added() {
        let document = changed("\"link.wan.delay\" = \"2ms\"\n'host.a.sysctl.\"net.ipv4.tcp_rmem\"' = \"1\"").unwrap();
        assert_eq!(document["link"]["wan"]["delay"].as_str(), Some("2ms"));
        assert_eq!(document["host"]["a"]["sysctl"]["net.ipv4.tcp_rmem"].as_str(), Some("1"));
    }

    #[test]
    fn override_without_a_valid_target_is_rejected() {
        let mistakes = changed("\"link.lan.delay\" = 1\n\"link..x\" = 1\n\"link.wan.delay.x\" = 1").unwrap_err();
        assert_eq!(
            mistakes,
            [
                "set: \"link..x\" is not a dotted key",
                "set: \"link.lan.delay\": there is no link.lan",
                "set: \"link.wan.delay.x\": there is no link.wan.delay"
            ]
        );
    }
}
