//! Errors of a configuration: every mistake with its location, key, value, and the expected value.
//!
//! Mistakes are collected, so that `ekiden check` can show all of them at once. The wrong value is shown unless it may
//! contain a private key or a password; in that case, no part of it is stored.

use std::cell::RefCell;
use std::fmt;

use toml::de::DeValue;

use super::place::display_value;
use super::url;

/// All mistakes of a configuration, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file, or `command line`.
    pub source: String,
    /// Line number, from 1; `None` if the mistake has no line.
    pub line: Option<usize>,
    /// The path of the key, like `listener[1].bind` (the first listener is number 1); empty for a whole line.
    pub key: String,
    /// The value in the configuration.
    pub found: FoundValue,
    /// Description of the expected value.
    pub expected: String,
}

/// The wrong value, as far as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundValue {
    /// A value, as TOML writes it.
    Value(String),
    /// A value that may contain a secret.
    Hidden,
    /// No value: the key is required.
    Missing,
    /// A key that no option has.
    Unknown,
    /// A key that is also set in another file.
    Duplicate,
    /// A text with an environment variable that cannot be replaced.
    Unexpanded,
    /// Text that is not valid TOML.
    Syntax,
    /// A whole line or file, without a key.
    WholeText,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source: place, line, key, found, expected } = self;
        write!(f, "{place}:")?;
        if let Some(line) = line {
            write!(f, "{line}:")?;
        }
        match found {
            FoundValue::Value(value) => write!(f, " {key} = {value}: expected {expected}"),
            FoundValue::Hidden => write!(f, " {key} (value not shown): expected {expected}"),
            FoundValue::Missing => write!(f, " {key} is missing: expected {expected}"),
            FoundValue::Unknown => write!(f, " {key} is not a key: expected {expected}"),
            FoundValue::Duplicate => write!(f, " {key} is set in two files: expected {expected}"),
            FoundValue::Unexpanded => write!(f, " {key}: expected {expected}"),
            FoundValue::Syntax => write!(f, " not TOML: {expected}"),
            FoundValue::WholeText => write!(f, " expected {expected}"),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The mistakes and warnings collected while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    errors: RefCell<Vec<ConfigError>>,
    warnings: RefCell<Vec<ConfigError>>,
    congestion_names: RefCell<Vec<NameUse>>,
}

/// A name in a configuration, with its location. Whether it exists is checked by the caller that has the list of such
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameUse {
    /// The name as the configuration has it.
    pub name: String,
    /// The location of the name, as a mistake with an empty `expected`.
    pub location: ConfigError,
}

impl Diagnostics {
    /// Adds a mistake to the collected ones.
    pub fn add_error(&self, mistake: ConfigError) {
        self.errors.borrow_mut().push(mistake);
    }

    /// Adds a warning about a value that is valid, but not recommended.
    pub fn add_warning(&self, warning: ConfigError) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Adds the use of the name of a congestion control.
    pub fn add_congestion_name(&self, name_use: NameUse) {
        self.congestion_names.borrow_mut().push(name_use);
    }

    /// Takes all warnings, in the order of files and lines.
    pub fn take_warnings(&self) -> Vec<ConfigError> {
        sorted(self.warnings.take())
    }

    /// Takes all uses of congestion controls, in the order of the file.
    pub fn take_congestion_names(&self) -> Vec<NameUse> {
        self.congestion_names.take()
    }

    /// Returns all mistakes, in the order of files and lines; `Ok` if there are none.
    ///
    /// Consequences of other mistakes are left out: after a line that is not TOML, the missing key; and for a text
    /// whose variable is not set, the invalid value.
    pub fn into_result(self) -> Result<(), ConfigErrors> {
        let mut mistakes = self.errors.into_inner();
        let is_cause = |m: &ConfigError| matches!(m.found, FoundValue::Syntax | FoundValue::Unexpanded);
        let has_syntax_errors = mistakes.iter().any(|m| m.found == FoundValue::Syntax);
        let place = |m: &ConfigError| (m.source.clone(), m.line);
        let broken: Vec<_> = mistakes.iter().filter(|m| is_cause(m)).map(place).collect();
        let is_echo =
            |m: &ConfigError| has_syntax_errors && m.found == FoundValue::Missing || broken.contains(&place(m));
        mistakes.retain(|m| is_cause(m) || !is_echo(m));
        let mistakes = sorted(mistakes);
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigErrors(mistakes)) }
    }
}

fn sorted(mut mistakes: Vec<ConfigError>) -> Vec<ConfigError> {
    // A stable sort: mistakes without a line, such as those of the command line, keep their order.
    let places: Vec<String> = mistakes.iter().map(|m| m.source.clone()).collect();
    mistakes.sort_by_key(|m| (places.iter().position(|p| *p == m.source), m.line));
    // A file that several options name is read once for each of them.
    mistakes.dedup();
    mistakes
}

/// Returns the expected text for a `name` that is not in `names`; `noun` is the noun for these names.
pub fn expected_one_of<'n>(noun: &str, name: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.collect();
    match closest(name, names.iter().copied()) {
        Some(suggestion) => format!("{noun}: {suggestion:?}, perhaps"),
        None if names.is_empty() => format!("{noun}, but none is defined"),
        None => format!("{noun}, one of {}", names.join(", ")),
    }
}

/// Returns the candidate closest to `word`, if it is similar enough to be a misspelling.
pub(super) fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // A third of the letters, so that a word of one letter matches only itself.
    let max_distance = (word.chars().count() + 1) / 3;
    candidates
        .into_iter()
        .map(|c| (edit_distance(word, c), c))
        .filter(|(d, _)| *d <= max_distance)
        .min()
        .map(|(_, c)| c)
}

/// Number of letters to insert, delete, substitute or swap with the next one to turn one word into the other (optimal
/// string alignment, row by row).
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut previous_row = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, from_letter) in from.iter().enumerate() {
        let mut next_row = vec![i + 1];
        for (j, to_letter) in to.iter().enumerate() {
            let substituted = row[j] + usize::from(from_letter != to_letter);
            let mut distance = substituted.min(row[j + 1] + 1).min(next_row[j] + 1);
            if i > 0 && j > 0 && from[i - 1] == *to_letter && *from_letter == to[j - 1] {
                distance = distance.min(previous_row[j - 1] + 1);
            }
            next_row.push(distance);
        }
        previous_row = std::mem::replace(&mut row, next_row);
    }
    row[to.len()]
}

/// The part of a wrong value that a mistake may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disclosure {
    All,
    /// The whole value if it is a path. A secret in the place of the path is hidden.
    Path,
    /// The first characters of a key: it may be a private key in the place of the public one.
    PublicKey,
    /// The URL without user, password and query.
    Url,
}

impl Disclosure {
    /// Returns the part of the wrong value that a mistake may show.
    pub fn disclose(self, value: &DeValue<'_>) -> FoundValue {
        match value {
            DeValue::String(text) => self.disclose_text(text),
            _ if self == Self::Url => FoundValue::Hidden,
            _ => FoundValue::Value(display_value(value)),
        }
    }

    /// Like `disclose`, for a plain text.
    pub fn disclose_text(self, text: &str) -> FoundValue {
        let full = || FoundValue::Value(display_value(&DeValue::String(text.into())));
        match self {
            Self::Path if is_secret(text) => FoundValue::Hidden,
            Self::PublicKey if is_key(text) => {
                let beginning = text.get(..KEY_PREFIX).unwrap_or_default();
                FoundValue::Value(format!("\"{beginning}...\" ({} characters)", text.len()))
            }
            Self::Url => url::without_secrets(text).map_or(FoundValue::Hidden, |text| Self::All.disclose_text(&text)),
            Self::All | Self::Path | Self::PublicKey => full(),
        }
    }
}

/// Number of characters shown: 36 of the 256 bits of a key, enough to recognise the key, and too few to use it.
const KEY_PREFIX: usize = 6;

/// Whether the text may be a key, possibly truncated: base64 (RFC 4648, 4) of about 32 bytes.
fn is_key(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// Whether the text may be a private key or a token, and not a path.
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
    fn closest_key_is_suggested_for_a_misspelt_word() {
        let keys = ["bind", "kind", "allow", "allow_open", "profile"];
        for (word, suggestion) in [
            ("bnd", Some("bind")),
            ("profil", Some("profile")),
            ("alow_open", Some("allow_open")),
            ("bind", Some("bind")),
            ("xyzzy", None),
        ] {
            assert_eq!(closest(word, keys), suggestion, "{word}");
        }
        assert_eq!((edit_distance("", "abc"), edit_distance("kitten", "sitting")), (3, 3));
        assert_eq!((edit_distance("rneo", "reno"), edit_distance("ab", "ba"), edit_distance("ca", "abc")), (1, 1, 3));
    }

    #[test]
    fn errors_name_place_value_and_expected_value() {
        let mistake = |found| ConfigError {
            source: "a.toml".into(),
            line: Some(3),
            key: "listener[1].bind".into(),
            found,
            expected: "an address".into(),
        };
        for (found, shown) in [
            (FoundValue::Value("\"x\"".into()), "a.toml:3: listener[1].bind = \"x\": expected an address"),
            (FoundValue::Hidden, "a.toml:3: listener[1].bind (value not shown): expected an address"),
            (FoundValue::Missing, "a.toml:3: listener[1].bind is missing: expected an address"),
            (FoundValue::Unknown, "a.toml:3: listener[1].bind is not a key: expected an address"),
        ] {
            assert_eq!(mistake(found).to_string(), shown);
        }
    }

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
    fn public_key_is_abbreviated_in_errors() {
        let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        assert_eq!(
            Disclosure::PublicKey.disclose_text(key),
            FoundValue::Value("\"hSDwCY...\" (44 characters)".to_owned())
        );
        assert_eq!(Disclosure::PublicKey.disclose_text("osaka"), FoundValue::Value("\"osaka\"".to_owned()));
    }

    #[test]
    fn possible_passwords_are_removed_from_urls() {
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
