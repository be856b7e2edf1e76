//! How much of a wrong value a mistake shows: all of it, unless a private key or a password may have been written there.

use toml::de::DeValue;

use super::mistake::Found;
use super::place::shown;
use super::url;

/// How much of a wrong value a mistake shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// All of it.
    All,
    /// A path. A secret that was written instead of the path of its file is hidden.
    Path,
    /// The beginning of a key: a private key may have been written instead of the public one.
    PublicKey,
    /// A URL without user, password and query.
    Url,
}

impl Shows {
    /// What a mistake says was found.
    pub fn found(self, value: &DeValue<'_>) -> Found {
        match value {
            DeValue::String(text) => self.found_text(text),
            _ if self == Self::Url => Found::Hidden,
            _ => Found::Value(shown(value)),
        }
    }

    /// The same of a text.
    pub fn found_text(self, text: &str) -> Found {
        let all = || Found::Value(shown(&DeValue::String(text.into())));
        match self {
            Self::Path if is_secret(text) => Found::Hidden,
            Self::PublicKey if is_key(text) => {
                let beginning = text.get(..KEY_BEGINNING).unwrap_or_default();
                Found::Value(format!("\"{beginning}...\" ({} characters)", text.len()))
            }
            Self::Url => url::public(text).map_or(Found::Hidden, |text| Self::All.found_text(&text)),
            Self::All | Self::Path | Self::PublicKey => all(),
        }
    }
}

/// 36 of the 256 bits of a key: enough to recognise the key, and too few to use it.
const KEY_BEGINNING: usize = 6;

/// Whether it may be a key, whole or cut off: base64 (RFC 4648, 4) of about 32 bytes.
fn is_key(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// Whether it may be a private key or a token, and not the path of a file.
fn is_secret(text: &str) -> bool {
    const SHORTEST: usize = 16;
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    let is_path = text.starts_with(['/', '.', '~']) && !text.contains(['+', '=']);
    is_key(text) && !is_path || text.len() >= SHORTEST && is_word && !is_path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_and_secrets_are_not() {
        for (text, hidden) in [
            ("/etc/ekiden/keys/of-the-relay-in-osaka.key", false),
            ("./relay.key", false),
            ("relay.key", false),
            ("a key with spaces", false),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", true),
            ("/SDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", true),
            ("8d1f5c0e9b7a4f36", true),
        ] {
            assert_eq!(Shows::Path.found_text(text) == Found::Hidden, hidden, "{text}");
        }
    }

    #[test]
    fn a_public_key_is_recognised_by_its_beginning() {
        let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        assert_eq!(Shows::PublicKey.found_text(key), Found::Value("\"hSDwCY...\" (44 characters)".to_owned()));
        assert_eq!(Shows::PublicKey.found_text("osaka"), Found::Value("\"osaka\"".to_owned()));
    }

    #[test]
    fn urls_are_shown_without_what_may_be_a_password() {
        for (text, shows) in [
            ("socks5://host", Some("socks5://host")),
            ("socks5://u:p@ss@host:1/x?password=y", Some("socks5://...@host:1/x")),
            ("http://[2001:db8::1]:80", Some("http://[2001:db8::1]:80")),
            ("http://[2001:db8::1]", Some("http://[2001:db8::1]")),
            ("u:p@h:1", Some("...@h:1")),
            ("u:p@h:1?x=a://", Some("...@h:1")),
            ("osaka", Some("osaka")),
            ("socks5://u:password", None),
            ("socks5://u:", None),
            ("u:password", None),
        ] {
            let found = shows.map_or(Found::Hidden, |shows| Found::Value(format!("{shows:?}")));
            assert_eq!(Shows::Url.found_text(text), found, "{text}");
        }
    }
}
