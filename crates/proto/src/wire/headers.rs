//! The headers between the IP header and the transport header: IPv4 options (RFC 791) and IPv6 extension headers (RFC 8200).
//!
//! A packet with an IPv4 source route, or with an IPv6 routing header that has segments left, is refused: rules apply
//! to the address in the IP header, and such a packet may continue to addresses to which no rule has been applied (RFC
//! 7126 sections 4.3 and 4.4, RFC 5095).

use super::WireError;
use super::cursor::Cursor;

/// Protocol number of TCP.
pub(super) const TCP: u8 = 6;

/// Protocol numbers of extension headers.
pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const AUTHENTICATION: u8 = 51;
pub(super) const DESTINATION_OPTIONS: u8 = 60;

/// Length of the fixed IPv4 header, in bytes.
const IPV4_HEADER: usize = 20;

/// Masks of the fragment offset: the last 13 bits of the field in IPv4, the first 13 bits in IPv6.
pub(super) const IPV4_OFFSET: u16 = 0x1fff;
const IPV6_OFFSET: u16 = 0xfff8;

/// IPv4 options (RFC 791 section 3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

const SOURCE_ROUTE: WireError = WireError::Invalid("a packet with a source route");

/// Returns the length of the options in an IPv4 header of `header` bytes, in bytes.
///
/// # Errors
/// [`WireError::Invalid`] when the header is shorter than its fixed part.
pub(super) fn options_length(header: usize) -> Result<usize, WireError> {
    header.checked_sub(IPV4_HEADER).ok_or(WireError::Invalid("an IPv4 header shorter than 20 bytes"))
}

/// Reads the options of an IPv4 header, which are `length` bytes long.
///
/// # Errors
/// [`WireError::Invalid`] for a source route, completed or not, and for an option that is longer than the header.
pub(super) fn options(cursor: &mut Cursor<'_>, length: usize) -> Result<(), WireError> {
    let mut rest = cursor.take(length)?;
    loop {
        let option = match *rest {
            [] | [END_OF_OPTIONS, ..] => return Ok(()),
            [NO_OPERATION, ..] => 1,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return Err(SOURCE_ROUTE),
            [_, length, ..] if length >= 2 => usize::from(length),
            _ => 0,
        };
        rest =
            rest.get(option..).filter(|_| option > 0).ok_or(WireError::Invalid("an IPv4 option of a wrong length"))?;
    }
}

/// An IPv6 extension header.
pub(super) struct Extension {
    /// Protocol number of the next header.
    pub(super) next: u8,
    /// Whether the packet is a fragment other than the first one, so that data follows and no header.
    pub(super) is_later_fragment: bool,
}

/// Reads the extension header with protocol number `kind`; `None` if `kind` is no extension header.
///
/// # Errors
/// [`WireError::Invalid`] for a routing header with segments left.
pub(super) fn extension(cursor: &mut Cursor<'_>, kind: u8) -> Result<Option<Extension>, WireError> {
    if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS) {
        return Ok(None);
    }
    let [next, length] = cursor.array()?;
    let [a, b, _, _, _, _] = cursor.array()?;
    let is_later_fragment = kind == FRAGMENT && u16::from_be_bytes([a, b]) & IPV6_OFFSET != 0;
    let rest = match kind {
        // The second byte is the number of segments left.
        ROUTING if b != 0 => return Err(SOURCE_ROUTE),
        // The length byte is reserved.
        FRAGMENT => 0,
        // In units of 4 bytes, less 2 (RFC 4302 section 2.2).
        AUTHENTICATION => usize::from(length) * 4,
        _ => usize::from(length) * 8,
    };
    cursor.take(rest)?;
    Ok(Some(Extension { next, is_later_fragment }))
}

#[cfg(test)]
pub(super) mod packets {
    //! Packets that the tests of several modules share.

    /// Length of the fixed IPv6 header, and the positions of its fields, in bytes.
    const IPV6_HEADER: usize = 40;
    const PAYLOAD_LENGTH: usize = 4;
    const NEXT_HEADER: usize = 6;

    /// Returns an IPv6 packet with extension headers before its content. Each pair is the type of a header and its
    /// bytes after the next-header byte.
    pub(in crate::wire) fn extended(packet: &[u8], extensions: &[(u8, &[u8])]) -> Vec<u8> {
        let (header, content) = packet.split_at(IPV6_HEADER);
        let mut extended = header.to_vec();
        let mut next_at = NEXT_HEADER;
        for (kind, rest) in extensions {
            extended[next_at] = *kind;
            next_at = extended.len();
            extended.push(header[NEXT_HEADER]);
            extended.extend(*rest);
        }
        extended.extend(content);
        let length = u16::try_from(extended.len() - IPV6_HEADER).unwrap();
        extended[PAYLOAD_LENGTH..NEXT_HEADER].copy_from_slice(&length.to_be_bytes());
        extended
    }
}
