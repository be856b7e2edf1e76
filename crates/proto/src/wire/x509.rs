//! The name in a client's certificate and the end of a certificate (RFC 5280), in DER (X.690).
//!
//! TLS has already verified the certificate, so only values are located here. Every length is checked. Indefinite
//! lengths and tags of several bytes do not occur in these parts of DER certificates, and are treated as missing
//! values.

/// Longest name, in bytes.
const MAX_NAME: usize = 255;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]` of TBSCertificate: the version.
const VERSION: u8 = 0xa0;
/// `[3]` of TBSCertificate: the extensions.
const EXTENSIONS: u8 = 0xa3;
/// The choice `rfc822Name` of GeneralName.
const EMAIL: u8 = 0x81;
/// The choice `dNSName` of GeneralName.
const DNS_NAME: u8 = 0x82;

/// The attribute type `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The extension `id-ce-subjectAltName`, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The common name of the subject, or else the first DNS name or email address of its alternative names. `None` for a certificate
/// without such a name, and for bytes that are no certificate.
#[must_use]
pub fn subject_name(certificate: &[u8]) -> Option<&str> {
    let (subject, rest) = subject(certificate)?;
    attribute_common_name(subject).or_else(|| alternative_name(rest))
}

/// The common name of the subject. `None` for a certificate without one, and for bytes that are no certificate.
#[must_use]
pub fn common_name(certificate: &[u8]) -> Option<&str> {
    attribute_common_name(subject(certificate)?.0)
}

/// The last second in which a certificate is valid, in seconds since 1970 (UTC). `None` for bytes that are no certificate, and for
/// an end before 1970.
#[must_use]
pub fn not_after(certificate: &[u8]) -> Option<u64> {
    let (mut validity, _) = validity(certificate)?;
    let (_not_before, (tag, time)) = (validity.next()?, validity.next()?);
    let time = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    // A year of two digits is from 1950 to 2049 (RFC 5280, 4.1.2.5.1).
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = time.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = time.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let field = |at: usize, within: std::ops::RangeInclusive<i64>| {
        number(rest.get(at..at + 2)?).filter(|value| within.contains(value))
    };
    let days = days_since_1970(year, field(0, 1..=12)?, field(2, 1..=31)?);
    let seconds = field(4, 0..=23)? * 3600 + field(6, 0..=59)? * 60 + field(8, 0..=59)?;
    u64::try_from(days * 86_400 + seconds).ok()
}

/// Parses an unsigned number of digits only.
fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the leap day is the
/// last day.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The validity of a certificate, and a reader of the fields after the validity.
fn validity(certificate: &[u8]) -> Option<(Reader<'_>, Reader<'_>)> {
    let mut certificate = Reader(certificate);
    let mut body = Reader(Reader(certificate.expect(SEQUENCE)?).expect(SEQUENCE)?);
    body.skip(VERSION);
    body.expect(INTEGER)?;
    let (_signature, _issuer) = (body.expect(SEQUENCE)?, body.expect(SEQUENCE)?);
    let validity = Reader(body.expect(SEQUENCE)?);
    Some((validity, body))
}

/// The subject of a certificate, and a reader of the fields after the subject.
fn subject(certificate: &[u8]) -> Option<(Reader<'_>, Reader<'_>)> {
    let (_validity, mut rest) = validity(certificate)?;
    Some((Reader(rest.expect(SEQUENCE)?), rest))
}

fn attribute_common_name(mut subject: Reader<'_>) -> Option<&str> {
    while let Some((tag, set)) = subject.next() {
        let mut set = Reader(if tag == SET { set } else { return None });
        while let Some((SEQUENCE, attribute)) = set.next() {
            let mut attribute = Reader(attribute);
            if attribute.expect(OBJECT_IDENTIFIER)? != COMMON_NAME {
                continue;
            }
            return match attribute.next()? {
                (UTF8_STRING | PRINTABLE_STRING | IA5_STRING, name) => text(name),
                _ => None,
            };
        }
    }
    None
}

/// The first DNS name or email address of the alternative names; `body` begins after the subject.
fn alternative_name(mut body: Reader<'_>) -> Option<&str> {
    let mut extensions = loop {
        if let (EXTENSIONS, extensions) = body.next()? {
            break Reader(Reader(extensions).expect(SEQUENCE)?);
        }
    };
    loop {
        let mut extension = Reader(extensions.expect(SEQUENCE)?);
        if extension.expect(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
            continue;
        }
        // A BOOLEAN may precede the value: whether the extension is critical.
        let mut value = extension.next()?;
        if value.0 != OCTET_STRING {
            value = extension.next()?;
        }
        let mut names = Reader(Reader(value.1).expect(SEQUENCE)?);
        return std::iter::from_fn(|| names.next())
            .find(|(tag, _)| matches!(*tag, EMAIL | DNS_NAME))
            .and_then(|(_, name)| text(name));
    }
}

/// The name as text, if it is not empty and has no control characters, so that it can be logged.
fn text(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let is_shown = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    is_shown.then_some(name)
}

/// A reader of the elements of a constructed value.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, which has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(actual, _)| *actual == tag).map(|(_, content)| content)
    }

    /// Skips the next element if it has this tag.
    fn skip(&mut self, tag: u8) {
        let mut reader = *self;
        if reader.expect(tag).is_some() {
            *self = reader;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let head =
            if length < 0x80 { vec![tag, length as u8] } else { vec![tag, 0x82, (length >> 8) as u8, length as u8] };
        [head, content.to_vec()].concat()
    }

    /// A certificate with these attributes of the subject, each a type, a tag and a value, and these alternative names.
    fn certificate(subject: &[(&[u8], u8, &[u8])], names: &[(u8, &[u8])]) -> Vec<u8> {
        certificate_until(&[], subject, names)
    }

    /// A certificate with this validity.
    fn certificate_until(validity: &[u8], subject: &[(&[u8], u8, &[u8])], names: &[(u8, &[u8])]) -> Vec<u8> {
        let attribute = |(kind, tag, value): &(&[u8], u8, &[u8])| {
            let pair = [element(OBJECT_IDENTIFIER, kind), element(*tag, value)].concat();
            element(SET, &element(SEQUENCE, &pair))
        };
        let subject: Vec<u8> = subject.iter().flat_map(attribute).collect();
        let names: Vec<u8> = names.iter().flat_map(|(tag, name)| element(*tag, name)).collect();
        let names = [
            element(OBJECT_IDENTIFIER, SUBJECT_ALT_NAME),
            element(1, &[255]),
            element(OCTET_STRING, &element(SEQUENCE, &names)),
        ];
        let usage = [element(OBJECT_IDENTIFIER, &[0x55, 0x1d, 0x0f]), element(OCTET_STRING, &[3, 2, 7, 128])].concat();
        let extensions = [element(SEQUENCE, &usage), element(SEQUENCE, &names.concat())].concat();
        let empty = element(SEQUENCE, &[]);
        let body = [
            element(VERSION, &element(INTEGER, &[2])),
            element(INTEGER, &[7; 200]),
            [empty.clone(), empty.clone(), element(SEQUENCE, validity)].concat(),
            element(SEQUENCE, &subject),
            empty.clone(),
            element(EXTENSIONS, &element(SEQUENCE, &extensions)),
        ];
        element(SEQUENCE, &[element(SEQUENCE, &body.concat()), empty].concat())
    }

    #[test]
    fn common_name_has_priority_over_alternative_names() {
        let organization: &[u8] = &[0x55, 0x04, 0x0a];
        let alice: (&[u8], u8, &[u8]) = (COMMON_NAME, UTF8_STRING, b"alice");
        let emails: &[(u8, &[u8])] = &[(0x86, b"https://example.com"), (EMAIL, b"bob@example.com"), (DNS_NAME, b"bob")];
        for (subject, names, expected) in [
            (&[(organization, UTF8_STRING, &b"ACME"[..]), alice][..], emails, Some("alice")),
            (&[(organization, UTF8_STRING, b"ACME")], emails, Some("bob@example.com")),
            (&[], &[(DNS_NAME, b"laptop.example")], Some("laptop.example")),
            (&[], &[(0x87, &[192, 0, 2, 1])], None),
            // A name in UTF-16, and names that a log cannot show.
            (&[(COMMON_NAME, 0x1e, b"\0a")], &[], None),
            (&[(COMMON_NAME, UTF8_STRING, b"a\nb")], &[], None),
            (&[(COMMON_NAME, UTF8_STRING, b"")], &[(DNS_NAME, b"laptop")], Some("laptop")),
        ] {
            let certificate = certificate(subject, names);
            assert_eq!(subject_name(&certificate), expected);
            assert_eq!(common_name(&certificate), expected.filter(|name| *name == "alice"));
        }
    }

    #[test]
    fn not_after_is_parsed_from_valid_times_only() {
        let end = |tag, time: &[u8]| {
            let validity = [element(UTC_TIME, b"200101000000Z"), element(tag, time)].concat();
            not_after(&certificate_until(&validity, &[], &[]))
        };
        for (tag, time, expected) in [
            (UTC_TIME, &b"700101000000Z"[..], Some(0)),
            (UTC_TIME, b"261125235959Z", Some(1_795_651_199)),
            (UTC_TIME, b"240229000000Z", Some(1_709_164_800)),
            (GENERALIZED_TIME, b"20500301120000Z", Some(2_529_748_800)),
            (GENERALIZED_TIME, b"99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, b"500101000000Z", None),
            (UTC_TIME, b"261325235959Z", None),
            (UTC_TIME, b"261125246000Z", None),
            (UTC_TIME, b"2611252359Z", None),
            (UTC_TIME, b"261125235959", None),
            (UTC_TIME, b"+61125235959Z", None),
            (GENERALIZED_TIME, "2026112523595\u{e9}Z".as_bytes(), None),
            (INTEGER, b"261125235959Z", None),
        ] {
            assert_eq!(end(tag, time), expected, "{}", String::from_utf8_lossy(time));
        }
        assert_eq!(not_after(b""), None);
    }

    #[test]
    fn truncated_certificate_has_no_name() {
        let whole = certificate(&[(COMMON_NAME, PRINTABLE_STRING, b"alice")], &[]);
        assert_eq!(subject_name(&whole), Some("alice"));
        for length in 0..whole.len() {
            assert_eq!(subject_name(&whole[..length]), None, "{length}");
        }
    }
}
