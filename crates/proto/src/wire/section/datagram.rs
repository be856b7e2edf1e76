//! A record of an association: an address, and the payload of one datagram.
//!
//! The address is the destination of a datagram to the server, and the source of a datagram to the client. As in OPEN,
//! an address has one encoding.

use std::net::SocketAddr;

use super::open::UNKNOWN_ADDRESS;
use crate::addr::{Host, Target};
use crate::wire::WireError;
use crate::wire::address::{self, WireAddress};
use crate::wire::cursor::Cursor;

/// Appends the destination of a datagram.
pub fn write_destination(target: &Target, out: &mut Vec<u8>) {
    address::write(&target.host, target.port, out);
}

/// Splits a record into the destination and the payload.
///
/// # Errors
/// [`WireError::Invalid`] for a record that does not begin with a valid target in its canonical form.
pub fn read_destination(record: &[u8]) -> Result<(Target, &[u8]), WireError> {
    let (address, payload) = split(record)?;
    let target = address.to_target()?;
    if address.is_canonical(&target.host) { Ok((target, payload)) } else { Err(ANOTHER_FORM) }
}

/// Splits a record into the source and the payload.
///
/// # Errors
/// [`WireError::Invalid`] for another record, and for a name as the source.
pub fn read_source(record: &[u8]) -> Result<(SocketAddr, &[u8]), WireError> {
    let (address, payload) = split(record)?;
    let source = address.to_socket_addr().ok_or(WireError::Invalid("a source that is a name"))?;
    if address.is_canonical(&Host::Ip(source.ip())) { Ok((source, payload)) } else { Err(ANOTHER_FORM) }
}

const ANOTHER_FORM: WireError = WireError::Invalid("an address in non-canonical form");

fn split(record: &[u8]) -> Result<(WireAddress<'_>, &[u8]), WireError> {
    let mut cursor = Cursor::new(record);
    // A record is complete, so missing bytes are an error.
    let address = WireAddress::read(&mut cursor).map_err(|_| WireError::Invalid("cut short"))?;
    Ok((address.ok_or(UNKNOWN_ADDRESS)?, &record[cursor.position()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::socks5::DatagramHeader;

    fn record_up(target: &str, payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        write_destination(&target.parse().unwrap(), &mut record);
        [&record, payload].concat()
    }

    #[test]
    fn datagram_records_round_trip() {
        for (target, length) in [("192.0.2.1:53", 7), ("[2001:db8::1]:53", 19), ("example.com:443", 15)] {
            for payload in [&b""[..], b"query"] {
                let record = record_up(target, payload);
                assert_eq!(record.len(), length + payload.len());
                assert_eq!(read_destination(&record), Ok((target.parse().unwrap(), payload)));
            }
        }
        for source in ["192.0.2.1:53", "[2001:db8::1]:0"] {
            let (mut datagram, source) = (Vec::new(), source.parse().unwrap());
            DatagramHeader::write(source, &mut datagram);
            datagram.extend(b"answer");
            assert_eq!(
                read_source(&datagram[3..]),
                Ok((source, b"answer".as_slice())),
                "a header of SOCKS5 without its prefix"
            );
        }
    }

    #[test]
    fn datagram_records_have_the_specified_encoding() {
        assert_eq!(record_up("192.0.2.1:53", b"query"), b"\x01\xc0\0\x02\x01\0\x35query");
        assert_eq!(record_up("a.example:53", b"query"), b"\x03\x09a.example\0\x35query");
    }

    #[test]
    fn malformed_datagram_records_are_refused() {
        let whole = record_up("example.com:443", b"");
        for record in (0..whole.len()).map(|end| &whole[..end]).chain([
            b"\x02a\0\x35".as_slice(),
            b"\x01\xc0\0\x02\x01\0\0",
            b"\x03\x00\0\x35",
            b"\x03\x01A\0\x35",
            b"\x03\x02a.\0\x35",
            b"\x03\x09192.0.2.1\0\x35",
            b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\x35",
        ]) {
            assert!(matches!(read_destination(record), Err(WireError::Invalid(_))), "{record:?}");
            assert!(matches!(read_source(record), Err(WireError::Invalid(_))) || record[0] == 1, "{record:?}");
        }
        assert!(matches!(read_source(&whole), Err(WireError::Invalid(_))), "a name as the source");
    }
}
