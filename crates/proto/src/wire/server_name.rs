//! The server name in the first bytes from a client: server_name in a ClientHello (RFC 6066, 3), or Host in an HTTP
//! request (RFC 9112, 3.2).
//!
//! The name is an unverified claim of the client; the stream itself is forwarded unchanged. The name selects a route
//! and authenticates nothing.

use super::cursor::Cursor;
use super::{Parsed, WireError};
use crate::addr::{Host, Target};

/// Maximum number of bytes that are searched for a name. A ClientHello with post-quantum keys has 2 KiB, a request with
/// cookies rarely more than 8 KiB.
pub const MAX_BYTES: usize = 16 * 1024;

/// Content type, and first byte of the version, of a TLS record with handshake messages (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;
const MAJOR_VERSION: u8 = 3;
/// Largest fragment of a record (RFC 8446, 5.1).
const MAX_FRAGMENT: usize = 1 << 14;
const CLIENT_HELLO: u8 = 1;
/// Version and random of a ClientHello (RFC 8446, 4.1.2).
const VERSION_AND_RANDOM: usize = 2 + 32;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const HOST_NAME: u8 = 0;
/// Maximum number of header fields that are searched for Host.
const MAX_FIELDS: usize = 100;

/// The server name from the first bytes of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName {
    /// The name in lower case; never an IP address.
    pub host: String,
    /// Whether the ClientHello may contain another, encrypted name (RFC 9849). Browsers also send this extension
    /// without an encrypted name, and a relay cannot distinguish the two cases.
    pub may_be_outer: bool,
}

/// Reads the server name. `None` if the bytes are neither TLS nor HTTP, or have no name within [`MAX_BYTES`]. The
/// number of bytes read is always 0.
///
/// # Errors
/// [`WireError::Incomplete`] while further bytes may contain a name.
pub fn read(bytes: &[u8]) -> Parsed<Option<ServerName>> {
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let name = match bytes.first() {
        None => Err(WireError::Incomplete),
        Some(&HANDSHAKE_RECORD) => client_hello(bytes),
        Some(byte) if byte.is_ascii_uppercase() => host_field(bytes),
        Some(_) => Ok(None),
    };
    match name {
        Err(WireError::Incomplete) if bytes.len() < MAX_BYTES => Err(WireError::Incomplete),
        name => Ok((name.unwrap_or(None), 0)),
    }
}

/// Reads a ClientHello, which may be split over several records.
fn client_hello(records: &[u8]) -> Result<Option<ServerName>, WireError> {
    let (mut handshake, mut records) = (Vec::new(), Cursor::new(records));
    loop {
        match body(&handshake) {
            // The whole message has arrived, so a field beyond its end is an error and not incomplete.
            Ok(body) => return Ok(body.and_then(|body| extensions(body).unwrap_or(None))),
            Err(_) => match fragment(&mut records)? {
                Some(fragment) => handshake.extend_from_slice(fragment),
                None => return Ok(None),
            },
        }
    }
}

/// Reads a record; `None` if it is not a handshake record.
fn fragment<'a>(records: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, WireError> {
    if records.byte()? != HANDSHAKE_RECORD || records.byte()? != MAJOR_VERSION {
        return Ok(None);
    }
    let _minor_version = records.byte()?;
    let length = usize::from(u16::from_be_bytes(records.array()?));
    if (1..=MAX_FRAGMENT).contains(&length) { records.take(length).map(Some) } else { Ok(None) }
}

/// Returns the body of the message; `None` if the message is not a ClientHello.
fn body(handshake: &[u8]) -> Result<Option<&[u8]>, WireError> {
    let mut message = Cursor::new(handshake);
    if message.byte()? != CLIENT_HELLO {
        return Ok(None);
    }
    let [high, middle, low] = message.array()?;
    message.take(usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)).map(Some)
}

/// Reads the body of a complete ClientHello.
fn extensions(body: &[u8]) -> Result<Option<ServerName>, WireError> {
    let mut body = Cursor::new(body);
    body.take(VERSION_AND_RANDOM)?;
    let _session_id = body.length_prefixed()?;
    let _cipher_suites = long_prefixed(&mut body)?;
    let _compression = body.length_prefixed()?;
    let list = long_prefixed(&mut body)?;
    let (mut extensions, mut host, mut may_be_outer) = (Cursor::new(list), None, false);
    while extensions.position() < list.len() {
        let kind = u16::from_be_bytes(extensions.array()?);
        let content = long_prefixed(&mut extensions)?;
        match kind {
            SERVER_NAME => host = host_name(content)?,
            ENCRYPTED_CLIENT_HELLO => may_be_outer = true,
            _ => {}
        }
    }
    Ok(host.map(|host| ServerName { host, may_be_outer }))
}

/// Reads the list in the extension server_name, for which only one type of name is defined.
fn host_name(content: &[u8]) -> Result<Option<String>, WireError> {
    let mut names = Cursor::new(long_prefixed(&mut Cursor::new(content))?);
    names.expect(HOST_NAME, "a server name of an unknown type")?;
    let name = std::str::from_utf8(long_prefixed(&mut names)?).ok();
    Ok(name.and_then(|name| named(Host::parse(name).ok()?)))
}

/// Reads a length of two bytes, and as many bytes.
fn long_prefixed<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], WireError> {
    let length = u16::from_be_bytes(cursor.array()?);
    cursor.take(usize::from(length))
}

/// Reads the Host field of a request, of which there must be only one.
fn host_field(bytes: &[u8]) -> Result<Option<ServerName>, WireError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Err(WireError::Incomplete),
        Err(_) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Ok(None) };
    let target = std::str::from_utf8(host.value).ok().and_then(|host| Target::parse(host, Some(80)).ok());
    Ok(target.and_then(|target| named(target.host)).map(|host| ServerName { host, may_be_outer: false }))
}

fn named(host: Host) -> Option<String> {
    match host {
        Host::Name(name) => Some(name),
        Host::Ip(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(length: usize, content: &[u8]) -> Vec<u8> {
        [&content.len().to_be_bytes()[8 - length..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &prefixed(2, content)].concat()
    }

    fn server_name(host: &str) -> Vec<u8> {
        extension(SERVER_NAME, &prefixed(2, &[&[HOST_NAME][..], &prefixed(2, host.as_bytes())].concat()))
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let body =
            [&[3; VERSION_AND_RANDOM][..], &[0], &prefixed(2, &[0x13, 1]), &[1, 0], &prefixed(2, extensions)].concat();
        [&[CLIENT_HELLO][..], &prefixed(3, &body)].concat()
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE_RECORD, 3, 1][..], &prefixed(2, fragment)].concat()
    }

    fn assert_server_name(bytes: &[u8], host: &str, may_be_outer: bool) {
        let expected = Ok((Some(ServerName { host: host.to_owned(), may_be_outer }), 0));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Err(WireError::Incomplete), "{end} of {} bytes", bytes.len());
        }
        assert_eq!(read(bytes), expected);
        assert_eq!(read(&[bytes, b"more"].concat()), expected);
    }

    #[test]
    fn server_name_is_found_in_any_fragmentation() {
        let message = hello(&[extension(10, b"\0\x02\0\x1d"), server_name("WWW.Example.com")].concat());
        assert_server_name(&record(&message), "www.example.com", false);
        for cut in [1, 3, 40, message.len() - 1] {
            assert_server_name(&[record(&message[..cut]), record(&message[cut..])].concat(), "www.example.com", false);
        }
        let message = hello(&[server_name("public.example"), extension(ENCRYPTED_CLIENT_HELLO, b"config")].concat());
        assert_server_name(&record(&message), "public.example", true);
        assert_server_name(b"GET / HTTP/1.1\r\nAccept: *\r\nhost: Example.com:8080\r\n\r\n", "example.com", false);
    }

    #[test]
    fn other_protocols_and_malformed_hellos_have_no_name() {
        let none = Ok((None, 0));
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            b"\x13BitTorrent protocol",
            b"\x16\x02",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\x40\x01",
            b"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            &record(&hello(&[])),
            &record(&hello(&server_name("192.0.2.1"))),
            &record(&hello(&server_name("no name"))),
            &record(&[2, 0, 0, 1, 0]),
            // A length of extensions beyond the message.
            &record(&[&[CLIENT_HELLO, 0, 0, 39][..], &[0; 37], &[9, 9]].concat()),
        ] {
            assert_eq!(read(bytes), none, "{:?}", String::from_utf8_lossy(bytes));
        }
        let endless = [b"GET / HTTP/1.1\r\nCookie: ".as_slice(), &[b'x'; MAX_BYTES]].concat();
        assert_eq!(read(&endless[..MAX_BYTES - 1]), Err(WireError::Incomplete));
        assert_eq!(read(&endless), none);
    }
}
