//! `Basic` credentials (RFC 7617), for `Proxy-Authorization`.
//!
//! Digest and other schemes are not supported: over plain HTTP they protect only the password.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};

/// Accepts missing padding, which some clients omit.
const READER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads user and password from the value of an authorization field; `None` if the scheme is not `Basic`, or the value
/// is malformed.
#[must_use]
pub fn parse_basic(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, token) = value.split_at_checked("Basic".len())?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"Basic") {
        return None;
    }
    let decoded = READER.decode(token).ok()?;
    // A password may contain colons, a user-id may not (RFC 7617, 2).
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// Encodes the value of an authorization field. A user name with a colon would be read as a shorter name and a longer
/// password, so the configuration must refuse such a name.
#[must_use]
pub fn write_basic(user: &[u8], password: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode([user, b":", password].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_round_trip() {
        for (user, password) in
            [("me", "secret"), ("", ""), ("me", ""), ("", "x"), ("me", "a:b:c"), ("\u{fc}", "\u{20ac}")]
        {
            let value = write_basic(user.as_bytes(), password.as_bytes());
            let read = parse_basic(value.as_bytes());
            assert_eq!(read, Some((user.as_bytes().to_vec(), password.as_bytes().to_vec())), "{value}");
        }
        for value in ["basic bWU6eA==", "BASIC bWU6eA", "Basic   bWU6eA== "] {
            assert_eq!(parse_basic(value.as_bytes()), Some((b"me".to_vec(), b"x".to_vec())), "{value}");
        }
    }

    #[test]
    fn malformed_credentials_are_refused() {
        for value in [
            "",
            "Basic",
            "Basic ",
            "Basic bWU=",
            "Basic b*U6eA==",
            "Basicx bWU6eA==",
            "Bearer bWU6eA==",
            "BasicbWU6eA==",
            "\u{20ac}\u{20ac}x y",
            "Basic bWU6eB==",
        ] {
            assert_eq!(parse_basic(value.as_bytes()), None, "{value}");
        }
    }
}
