//! How much of a wrong value a mistake shows: all of it, unless a private key or a password may have been written there.

use toml::de::DeValue;

use super::error::FoundValue;
use super::place::display_value;
use super::url;

/// How much of a wrong value a mistake shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disclosure {
    /// All of it.
    All,
    /// A path. A secret that was written instead of the path of its file is hidden.
    Path,
    /// The beginning of a key: a private key may have been written instead of the public one.
    PublicKey,
    /// A URL without user, password and query.
    Url,
}

impl Disclosure {
    /// What a mistake says was found.
    pub fn disclose(self, value: &DeValue<'_>) -> FoundValue {
        match value {
            DeValue::String(text) => self.disclose_text(text),
            _ if self == Self::Url => FoundValue::Hidden,
            _ => FoundValue::Value(display_value(value)),
        }
    }

    /// The same of a text.
    pub fn disclose_text(self, text: &str) -> FoundValue {
        let all = || FoundValue::Value(display_value(&DeValue::String(text.into())));
        match self {
            Self::Path if is_secret(text) => FoundValue::Hidden,
            Self::PublicKey if is_key(text) => {
                let beginning = text.get(..KEY_PREFIX).unwrap_or_default();
                FoundValue::Value(format!("\"{beginning}...\" ({} characters)", text.len()))
            }
            Self::Url => url::without_secrets(text).map_or(FoundValue::Hidden, |text| Self::All.disclose_text(&text)),
            Self::All | Self::Path | Self::PublicKey => all(),
        }
    }
}

/// 36 of the 256 bits of a key: enough to recognise the key, and too few to use it.
const KEY_PREFIX: usize = 6;

/// Whether it may be a key, whole or cut off: base64 (RFC 4648, 4) of about 32 bytes.
fn is_key(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// Whether it may be a private key or a token, and not the path of a file.
fn is_secret(text: &str) -> bool {
    const MIN_LENGTH: usize = 16;
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    let is_path = text.starts_with(['/', '.', '~']) && !text.contains(['+', '=']);
    is_key(text) && !is_path || text.len() >= MIN_LENGTH && is_word && !is_path
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
            assert_eq!(Disclosure::Path.disclose_text(text) == FoundValue::Hidden, hidden, "{text}");
        }
    }

    #[test]
    fn a_public_key_is_recognised_by_its_beginning() {
        let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        assert_eq!(
            Disclosure::PublicKey.disclose_text(key),
            FoundValue::Value("\"hSDwCY...\" (44 characters)".to_owned())
        );
        assert_eq!(Disclosure::PublicKey.disclose_text("osaka"), FoundValue::Value("\"osaka\"".to_owned()));
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
            let found = shows.map_or(FoundValue::Hidden, |shows| FoundValue::Value(format!("{shows:?}")));
            assert_eq!(Disclosure::Url.disclose_text(text), found, "{text}");
        }
    }
}
