//! The URLs of `-L` and `-F`: `SCHEME://[USER:PASS@]ADDR[/PATH][?key=value&...]`.
//!
//! This module only splits and decodes URLs. The query becomes a table that is read like the tables of a configuration
//! file, so that no option is declared twice. Parts are percent-decoded (RFC 3986, 2.1).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A URL, split into its parts. Not printable, because it may contain a password.
pub(super) struct OptionUrl<'u> {
    /// The text before `://`.
    pub scheme: &'u str,
    /// User name, and password if there is a `:`.
    pub user: Option<(String, Option<String>)>,
    /// Host and port, as written.
    pub address: &'u str,
    /// The text after the slash; empty without a slash.
    pub path: String,
    /// Keys and values of the query, in their order.
    pub query: Vec<(String, String)>,
}

impl<'u> OptionUrl<'u> {
    /// Splits a URL; `None` if it is invalid.
    pub fn parse(text: &'u str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Otherwise a password with an unescaped `?` would become part of the query, and be shown in a mistake about an
        // unknown key.
        if query.contains('@') {
            return None;
        }
        let (user, head) = match head.rsplit_once('@') {
            Some((user, head)) => (Some(user_and_password(user)?), head),
            None => (None, head),
        };
        let (address, path) = head.split_once('/').unwrap_or((head, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(parse_pair).collect::<Option<_>>()?;
        Some(Self { scheme, user, address, path: decode(path)?, query })
    }
}

/// Returns the parts of a valid or invalid URL that can be shown: without user, password and query. `None` if the part
/// for host and port may contain a password.
pub(super) fn without_secrets(text: &str) -> Option<String> {
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (scheme, rest) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", text));
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("...@", rest));
    let rest = rest.split('?').next().unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let after_host = authority.rsplit(']').next().unwrap_or_default();
    let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
    let separator = if scheme.is_empty() { "" } else { "://" };
    after_host.split_once(':').is_none_or(is_port).then(|| format!("{scheme}{separator}{user}{rest}"))
}

fn user_and_password(text: &str) -> Option<(String, Option<String>)> {
    match text.split_once(':') {
        Some((user, password)) => Some((decode(user)?, Some(decode(password)?))),
        None => Some((decode(text)?, None)),
    }
}

fn parse_pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Some((decode(key)?, decode(value)?))
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Creates a table of `pairs`; the values of a repeated key become a list.
pub(super) fn table_from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> DeTable<'static> {
    let mut table = DeTable::new();
    for (key, value) in pairs {
        let value = spanned(DeValue::String(value.into()));
        let value = match table.remove(key.as_str()).map(Spanned::into_inner) {
            None => value,
            Some(DeValue::Array(mut list)) => {
                list.push(value);
                spanned(DeValue::Array(list))
            }
            Some(first) => {
                let mut list = DeArray::new();
                list.push(spanned(first));
                list.push(value);
                spanned(DeValue::Array(list))
            }
        };
        table.insert(spanned(key.into()), value);
    }
    table
}

/// Adds an empty span, because the command line has no lines.
fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split_into_its_parts() {
        let url = OptionUrl::parse("socks5://us%40er:p%2fa:ss@host:1080/a%20b?x=1&y=%26&x=2&z").unwrap();
        assert_eq!((url.scheme, url.address, url.path.as_str()), ("socks5", "host:1080", "a b"));
        assert_eq!(url.user, Some(("us@er".into(), Some("p/a:ss".into()))));
        let pairs: Vec<_> = url.query.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("x", "1"), ("y", "&"), ("x", "2"), ("z", "")]);
    }

    #[test]
    fn plain_urls_have_nothing_but_an_address() {
        for (text, address) in [("auto://:1080", ":1080"), ("http://[::1]:3128/", "[::1]:3128"), ("tcp://", "")] {
            let url = OptionUrl::parse(text).unwrap();
            assert_eq!(url.address, address);
            assert!(url.user.is_none() && url.path.is_empty() && url.query.is_empty());
        }
    }

    #[test]
    fn malformed_urls_are_refused() {
        for text in ["", "127.0.0.1:1080", "socks5:/x", "socks5://u:p?w@host:1", "socks5://u:%ff@host:1"] {
            assert!(OptionUrl::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn repeated_keys_become_a_list() {
        let pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let table = table_from_pairs(pairs);
        let list = table.get("a").unwrap().get_ref().as_array().unwrap();
        let texts: Vec<_> = list.iter().filter_map(|v| v.get_ref().as_str()).collect();
        assert_eq!(texts, ["1", "3", "4"]);
        assert_eq!(table.get("b").unwrap().get_ref().as_str(), Some("2"));
    }
}
