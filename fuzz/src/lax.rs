//! A lenient HTTP head parser, as permissive as the most permissive server or proxy. It checks that heads are safe from
//! request smuggling.
//!
//! A line ends at any CR or LF, and white space around a name is ignored. If this parser finds exactly the framing that
//! ekiden has chosen, no stricter parser finds a different framing. This must hold for accepted heads, because a proxy
//! in front of ekiden may be lenient, and for written heads.

use ekiden_proto::wire::http::BodyFraming;

/// Checks that a head permits no other framing than `body`.
///
/// # Panics
/// Panics if the lenient parser finds another framing or a second head.
pub fn assert_same_framing(head: &[u8], body: BodyFraming) {
    assert!(head.ends_with(b"\r\n\r\n"), "the head has no end");
    let inner = &head[..head.len() - 4];
    assert!(!inner.windows(2).any(|pair| matches!(pair, b"\n\n" | b"\n\r" | b"\r\r")), "a head within the head");
    let lengths = fields(inner, b"content-length");
    let codings = fields(inner, b"transfer-encoding");
    assert!(lengths.len() + codings.len() <= 1, "two framings");
    match body {
        BodyFraming::Empty => {}
        BodyFraming::UntilClose => assert!(lengths.is_empty() && codings.is_empty()),
        BodyFraming::Chunked => assert!(codings[0].eq_ignore_ascii_case(b"chunked")),
        BodyFraming::Length(length) => {
            let digits = lengths[0].iter().skip_while(|byte| **byte == b'0').copied().collect::<Vec<_>>();
            assert_eq!(String::from_utf8(digits).as_deref(), Ok(length.to_string().trim_start_matches('0')));
        }
    }
}

/// Returns the values of all lines that a lenient parser accepts as a field called `name`.
fn fields(head: &[u8], name: &[u8]) -> Vec<Vec<u8>> {
    let lines = head.split(|byte| matches!(byte, b'\r' | b'\n' | b'\0' | 0x0b | 0x0c));
    let pairs = lines.filter_map(|line| Some((line, line.iter().position(|byte| *byte == b':')?)));
    let same = |found: &[u8]| found.trim_ascii().eq_ignore_ascii_case(name);
    pairs
        .filter(|(line, colon)| same(&line[..*colon]))
        .map(|(line, colon)| line[colon + 1..].trim_ascii().to_vec())
        .collect()
}
