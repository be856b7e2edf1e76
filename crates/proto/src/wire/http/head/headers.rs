//! Header fields in the order received; names compare without case (RFC 9110, 5).
//!
//! A field that would make a head malformed is refused or corrected on insertion, so every written head is well-formed.

use std::fmt;

use super::scan;

/// An ordered list of header fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// Creates a header section without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn from_parsed(fields: &[httparse::Header<'_>]) -> Self {
        let mut headers = Self(Vec::with_capacity(fields.len() + 2));
        for field in fields {
            headers.push(field.name, field.value);
        }
        headers
    }

    /// The value of the first field called `name`; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The values of all fields called `name`.
    pub fn get_all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }

    /// The elements of a comma-separated list, over all fields called `name` (RFC 9110, 5.6.1). Empty elements are
    /// omitted, and a comma within quotes is no separator.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.get_all(name).flat_map(|value| split_list(value, b','))
    }

    /// Whether the list in the fields called `name` has `token`, ignoring case.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Appends a field. White space around the value is removed, and each control byte in it is replaced by SP, as
    /// required by RFC 9110, 5.5. A field whose name is no token is omitted, since no message can contain it.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) {
        let position = self.0.len();
        self.insert(position, name.into(), value.into());
    }

    /// Replaces all fields called `name` with one, at the position of the first of them, or else after the last field.
    pub fn set(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        let first = self.0.iter().position(|(known, _)| known.eq_ignore_ascii_case(name)).unwrap_or(self.0.len());
        self.remove(name);
        self.insert(first, name.to_owned(), value.into());
    }

    /// Removes all fields called `name`.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, at: usize, name: String, mut value: Vec<u8>) {
        if name.is_empty() || !name.bytes().all(scan::is_token_byte) {
            return;
        }
        for byte in &mut value {
            if !scan::is_text_byte(*byte) {
                *byte = b' ';
            }
        }
        let value = value.trim_ascii().to_vec();
        self.0.insert(at, (name, value));
    }

    /// The number of bytes that [`Self::write`] appends.
    pub(crate) fn written_length(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len()).sum::<usize>() + "\r\n".len()
    }

    /// Appends the fields and the empty line after them.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            out.extend(name.as_bytes());
            out.extend(b": ");
            out.extend(value);
            out.extend(b"\r\n");
        }
        out.extend(b"\r\n");
    }
}

/// `Debug` does not print the values of fields that contain secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];
        let shown = |name: &str, value: &[u8]| match SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            true => "(secret)".to_owned(),
            false => String::from_utf8_lossy(value).into_owned(),
        };
        f.debug_list().entries(self.iter().map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

/// Splits at separators outside of quoted strings (RFC 9110, 5.6.4). White space around the parts is removed, and empty
/// parts are omitted.
pub(in crate::wire::http) fn split_list(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let ends_part = move |byte: &u8| {
        let literal = std::mem::take(&mut escaped);
        match *byte {
            _ if literal => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            byte => return byte == separator && !quoted,
        }
        false
    };
    text.split(ends_part).map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}
