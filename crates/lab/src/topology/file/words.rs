//! Reads a table key by key, and reports every wrong key in plain words.
//!
//! serde stops at the first error, and reports Rust type names.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Path of a wrong key, and description of the problem.
pub type KeyProblem = (String, String);

/// Reads the value at the key `at`.
///
/// # Errors
/// Every wrong key in the value, and the first missing key.
pub fn read_value<T: DeserializeOwned>(at: &str, value: &Value) -> Result<T, Vec<KeyProblem>> {
    let error = match value.clone().try_into() {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let (mut problems, mut good) = (Vec::new(), Table::new());
    let table = value.as_table().cloned().unwrap_or_default();
    for (key, value) in &table {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        match alone.try_into::<T>() {
            // Other keys are missing in this table of one key.
            Err(error) if missing_key(&error).is_none() => problems.push(key_problem(at, key, &error)),
            _ => drop(good.insert(key.clone(), value.clone())),
        }
    }
    let rest =
        good.try_into::<T>().err().filter(|error| missing_key(error).is_some_and(|key| !table.contains_key(key)));
    match rest {
        Some(rest) => problems.push(key_problem(at, "", &rest)),
        None if problems.is_empty() => problems.push(key_problem(at, "", &error)),
        None => {}
    }
    Err(problems)
}

/// Returns the missing key, if the error is about one.
fn missing_key(error: &toml::de::Error) -> Option<&str> {
    error.message().strip_prefix("missing field `")?.strip_suffix('`')
}

/// Returns the path of the key that an error is about, and the error in plain words. The key is below `at`, in `key`.
fn key_problem(at: &str, key: &str, error: &toml::de::Error) -> KeyProblem {
    let shown = error.to_string();
    // toml appends the path, where known, to the message.
    let inside = shown.rsplit_once("\nin `").map_or(key, |(_, path)| path.trim_end().trim_end_matches('`'));
    let at = [at, inside].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
    match error.message().strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((field, rest)) if at.rsplit('.').next() != Some(field) => {
            (format!("{at}.{field}"), unknown_key_message(rest))
        }
        Some((_, rest)) => (at, unknown_key_message(rest)),
        None => (at, plain_message(error.message())),
    }
}

/// Describes an unknown key. `rest` is the remainder of serde's message.
fn unknown_key_message(rest: &str) -> String {
    format!("is not a key; {}", rest.trim_start_matches(", ").replace('`', ""))
}

/// Rewrites a message of serde in plain words.
#[must_use]
pub fn plain_message(message: &str) -> String {
    let mismatch = ["invalid type: ", "invalid value: "].iter().find_map(|begin| message.strip_prefix(begin));
    if let Some((found, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("expected {}, not {}", describe_type(expected), describe_value(found));
    }
    if let Some((field, rest)) = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        return format!("{field} {}", unknown_key_message(rest));
    }
    if let Some(field) = message.strip_prefix("missing field `") {
        return format!("{} is missing", field.trim_end_matches('`'));
    }
    if let Some((found, names)) =
        message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "))
    {
        return format!("expected {}, not \"{found}\"", names.replace('`', "\""));
    }
    message.to_owned()
}

fn describe_type(name: &str) -> &str {
    match name {
        "a string" | "str" | "a borrowed string" | "string" => "a text in quotes",
        "a boolean" | "bool" => "true or false",
        "a map" | "map" => "a table",
        "a sequence" | "sequence" => "a list in [ ]",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "string or table" => "a text in quotes, or a table",
        _ if name.starts_with("struct ") || name.starts_with("internally tagged enum ") => "a table",
        _ if name.starts_with("an array") || name.starts_with("a tuple") => "a list in [ ]",
        _ if name.starts_with("enum ") || name == "variant identifier" => "one of its names, in quotes",
        _ => name,
    }
}

fn describe_value(found: &str) -> String {
    let bare = |rest: &str| rest.trim_matches('`').to_owned();
    match found.split_once(' ') {
        Some(("integer" | "boolean", rest)) => bare(rest),
        Some(("floating", rest)) => bare(rest.trim_start_matches("point ")),
        Some(("string", rest)) => rest.to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        _ => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only deserialized")]
    struct Outer {
        name: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        inner: Vec<Inner>,
        #[serde(default)]
        kind: Option<Variant>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only deserialized")]
    struct Inner {
        at: f64,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Variant {
        One,
        Two,
    }

    fn problems(text: &str) -> Vec<String> {
        let table: Table = text.parse().unwrap();
        let problems = read_value::<Outer>("outer", &Value::Table(table)).unwrap_err();
        problems.into_iter().map(|(key, problem)| format!("{key}: {problem}")).collect()
    }

    #[test]
    fn every_wrong_key_is_explained() {
        assert_eq!(
            problems("count = \"3\"\nkind = \"three\"\ncolour = 1\ninner = [{ at = \"x\" }]"),
            [
                "outer.colour: is not a key; expected one of name, count, inner, kind",
                "outer.count: expected a whole number, not negative, not \"3\"",
                "outer.inner.at: expected a number, not \"x\"",
                "outer.kind: expected \"one\" or \"two\", not \"three\"",
                "outer: name is missing",
            ]
        );
        assert_eq!(
            problems("name = true\ncount = -1"),
            [
                "outer.count: expected a whole number, not negative, not -1",
                "outer.name: expected a text in quotes, not true",
            ]
        );
        assert_eq!(problems("name = \"x\"\ninner = [{}]"), ["outer.inner: at is missing"]);
        assert_eq!(problems("name = \"x\"\ninner = 5"), ["outer.inner: expected a list in [ ], not 5"]);
    }
}
