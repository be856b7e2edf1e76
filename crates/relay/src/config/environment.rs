//! Environment variables in texts: `${NAME}` is replaced by the value of NAME, and `$${` by `${`.

use std::env::VarError;

/// Returns the text with all variables replaced; `None` if there is nothing to replace.
///
/// # Errors
/// The expected text for a variable that cannot be replaced. It contains no value of a variable.
pub(super) fn expand(text: &str, get: impl Fn(&str) -> Result<String, VarError>) -> Result<Option<String>, String> {
    const UNFINISHED: &str = "${NAME} with the name of an environment variable, or $${ for the characters ${";
    if !text.contains("${") {
        return Ok(None);
    }
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.extend([before, "${"]);
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').filter(|(name, _)| is_name(name)).ok_or(UNFINISHED)?;
        let value = get(name).map_err(|error| match error {
            VarError::NotPresent => format!("the environment variable {name} to be set"),
            VarError::NotUnicode(_) => format!("UTF-8 text in the environment variable {name}"),
        })?;
        expanded.extend([before, &value]);
        rest = after;
    }
    Ok(Some(expanded + rest))
}

/// Whether the text is a valid name of a shell variable (POSIX.1-2017, 3.235).
fn is_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<Option<String>, String> {
        expand(text, |name| match name {
            "HOST" => Ok("osaka".to_owned()),
            "NESTED" => Ok("${HOST}".to_owned()),
            "EMPTY" => Ok(String::new()),
            "BYTES" => Err(VarError::NotUnicode("s3cret".into())),
            _ => Err(VarError::NotPresent),
        })
    }

    #[test]
    fn variables_are_expanded_once_and_dollar_signs_can_be_escaped() {
        for (text, expected) in [
            ("plain $HOST {HOST} $$", None),
            ("${HOST}", Some("osaka")),
            ("a${HOST}b${EMPTY}c${HOST}", Some("aosakabcosaka")),
            ("$${HOST}", Some("${HOST}")),
            ("$$${HOST}", Some("$${HOST}")),
            ("$$ ${HOST}", Some("$$ osaka")),
            ("${NESTED}", Some("${HOST}")),
        ] {
            assert_eq!(expanded(text).unwrap().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_variable_and_hide_its_value() {
        assert_eq!(expanded("x${HOST}${ABSENT}").unwrap_err(), "the environment variable ABSENT to be set");
        assert_eq!(expanded("${BYTES}").unwrap_err(), "UTF-8 text in the environment variable BYTES");
        for text in ["${", "p${", "${}", "${1A}", "${a-b}", "${HOST", "${ HOST}"] {
            assert!(expanded(text).unwrap_err().starts_with("${NAME} with"), "{text}");
        }
    }
}
