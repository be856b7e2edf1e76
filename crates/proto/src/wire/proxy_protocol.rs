//! The PROXY protocol, versions 1 and 2: a header before the first byte of a connection, in which a load balancer reports
//! the addresses of the client's connection (haproxy, doc/proxy-protocol.txt).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::cursor::Cursor;
use super::{Parsed, WireError};

/// Longest header that is read, in bytes. Version 2 permits 65,551 bytes; headers with TLVs have some hundred.
pub const MAX_HEADER: usize = 4096;

/// The first bytes of version 1.
const V1_PREFIX: &[u8] = b"PROXY ";

/// Longest header of version 1 with its CRLF.
const MAX_V1_LINE: usize = 107;

/// Longest port in version 1, in digits.
const MAX_PORT_DIGITS: usize = 5;

/// The first bytes of version 2.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 before the addresses.
const V2_FIXED_LENGTH: usize = 16;

/// Version 2 with the command LOCAL: the load balancer's own connection, such as a health check.
const LOCAL: u8 = 0x20;

/// Version 2 with the command PROXY.
const PROXY: u8 = 0x21;

/// Family and transport of TCP over IPv4.
const TCP4: u8 = 0x11;

/// Family and transport of TCP over IPv6.
const TCP6: u8 = 0x21;

/// Families and transports that are valid but have no TCP addresses: UNSPEC, UDP over IPv4 and IPv6, unix sockets.
const WITHOUT_TCP: [u8; 5] = [0x00, 0x12, 0x22, 0x31, 0x32];

/// The type of the TLV with the checksum of the header.
const CRC32C: u8 = 0x03;

/// The type of the TLV with an identifier of the connection.
const UNIQUE_ID: u8 = 0x05;

/// The type of the TLV that describes TLS, and of the values within it (proxy-protocol.txt, 2.2.6).
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
const SSL_COMMON_NAME: u8 = 0x22;
const SSL_CIPHER: u8 = 0x23;

/// Flag: the client's connection uses TLS.
const CLIENT_SSL: u8 = 0x01;

/// Flags: the client has presented a certificate on this connection, and at least once in the TLS session.
const CLIENT_CERTIFICATE: u8 = 0x02 | 0x04;

/// The addresses of the connection that a header reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxiedConnection {
    /// The address of the client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// The data that version 2 can report beside the addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// An identifier of the connection, of at most 128 bytes.
    pub unique_id: Option<&'a str>,
    /// TLS parameters of the client's connection; `None` without TLS.
    pub tls: Option<&'a ClientTls>,
}

/// TLS parameters of the client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    /// The version as named by OpenSSL, such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite as named by OpenSSL, such as `ECDHE-RSA-AES128-GCM-SHA256`.
    pub cipher: &'static str,
    /// Whether the client has presented a certificate, which has been verified.
    pub has_certificate: bool,
    /// The common name in the certificate, of at most 255 bytes.
    pub common_name: Option<Box<str>>,
}

/// The format of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary, with extensions (TLVs).
    V2,
}

/// Reads a header of either version. `None` for a header that reports no TCP addresses (UNKNOWN, LOCAL, UNSPEC, UDP and
/// unix sockets): then the addresses of the connection itself apply.
///
/// # Errors
/// [`WireError::Invalid`] for bytes that are no header, and for a header that violates the specification;
/// [`WireError::TooLarge`] for a header of more than 107 bytes in version 1, or [`MAX_HEADER`] in version 2.
pub fn parse(bytes: &[u8]) -> Parsed<Option<ProxiedConnection>> {
    let begins_with = |start: &[u8]| bytes.iter().zip(start).all(|(byte, expected)| byte == expected);
    if begins_with(V1_PREFIX) {
        parse_v1(bytes)
    } else if begins_with(&V2_SIGNATURE) {
        parse_v2(bytes)
    } else {
        Err(WireError::Invalid("no PROXY header"))
    }
}

/// Writes a header. Addresses of different families are written as UNKNOWN in version 1, and as IPv6 with an
/// IPv4-mapped address in version 2. The extensions are only written in version 2.
#[must_use]
pub fn write(version: ProxyVersion, connection: &ProxiedConnection, extensions: Extensions<'_>) -> Vec<u8> {
    match version {
        ProxyVersion::V1 => write_v1(connection),
        ProxyVersion::V2 => write_v2(connection, extensions),
    }
}

fn parse_v1(bytes: &[u8]) -> Parsed<Option<ProxiedConnection>> {
    let within = &bytes[..bytes.len().min(MAX_V1_LINE)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return Err(if within.len() < MAX_V1_LINE { WireError::Incomplete } else { WireError::TooLarge });
    };
    Ok((parse_v1_line(&within[V1_PREFIX.len()..end])?, end + 2))
}

fn parse_v1_line(line: &[u8]) -> Result<Option<ProxiedConnection>, WireError> {
    let invalid = WireError::Invalid("malformed PROXY header of version 1");
    // "The receiver must ignore anything presented before the CRLF" after UNKNOWN.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(None);
    }
    let line = std::str::from_utf8(line).map_err(|_| invalid)?;
    let fields: Vec<&str> = line.split(' ').collect();
    let &[family, source, destination, source_port, destination_port] = fields.as_slice() else { return Err(invalid) };
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let endpoint = |ip: &str, port: &str| Some(SocketAddr::new(address(ip)?, parse_port(port)?));
    let source = endpoint(source, source_port).ok_or(invalid)?;
    let destination = endpoint(destination, destination_port).ok_or(invalid)?;
    Ok(Some(ProxiedConnection { source, destination }))
}

/// Reads a decimal number from 0 to 65535 without a sign and without leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let is_decimal = (1..=MAX_PORT_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if is_decimal && !has_leading_zero { text.parse().ok() } else { None }
}

fn write_v1(connection: &ProxiedConnection) -> Vec<u8> {
    let ProxiedConnection { source, destination } = connection;
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let family = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => "TCP4",
        (IpAddr::V6(_), IpAddr::V6(_)) => "TCP6",
        _ => return b"PROXY UNKNOWN\r\n".to_vec(),
    };
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes()
}

fn parse_v2(bytes: &[u8]) -> Parsed<Option<ProxiedConnection>> {
    let mut cursor = Cursor::new(bytes);
    cursor.take(V2_SIGNATURE.len())?;
    let command = cursor.byte()?;
    if ![LOCAL, PROXY].contains(&command) {
        return Err(WireError::Invalid("unknown version or command in PROXY header"));
    }
    let family = cursor.byte()?;
    let length = usize::from(cursor.port()?);
    if V2_FIXED_LENGTH + length > MAX_HEADER {
        return Err(WireError::TooLarge);
    }
    // "The receiver must discard the protocol block" of LOCAL, "including the family".
    if command == LOCAL || WITHOUT_TCP.contains(&family) {
        cursor.take(length)?;
        return Ok((None, cursor.position()));
    }
    let addresses_length = match family {
        TCP4 => 12,
        TCP6 => 36,
        _ => return Err(WireError::Invalid("unknown address family in PROXY header")),
    };
    if length < addresses_length {
        return Err(WireError::Invalid("PROXY header too short for its addresses"));
    }
    let block = cursor.take(length)?;
    let connection = parse_addresses(&mut Cursor::new(block), family)?;
    check_tlvs(&bytes[..cursor.position()], V2_FIXED_LENGTH + addresses_length)?;
    Ok((Some(connection), cursor.position()))
}

fn parse_addresses(cursor: &mut Cursor<'_>, family: u8) -> Result<ProxiedConnection, WireError> {
    let mut address = || -> Result<IpAddr, WireError> {
        if family == TCP4 {
            Ok(Ipv4Addr::from(cursor.array::<4>()?).into())
        } else {
            Ok(Ipv6Addr::from(cursor.array::<16>()?).into())
        }
    };
    let (source, destination) = (address()?, address()?);
    let source = SocketAddr::new(source, cursor.port()?);
    Ok(ProxiedConnection { source, destination: SocketAddr::new(destination, cursor.port()?) })
}

/// Checks that the TLVs from `at` on fill the header exactly, and verifies the checksum if there is one.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), WireError> {
    while at < header.len() {
        let [kind, high, low] =
            *header[at..].first_chunk().ok_or(WireError::Invalid("truncated TLV in PROXY header"))?;
        let (value, end) = (at + 3, at + 3 + usize::from(u16::from_be_bytes([high, low])));
        let bytes = header.get(value..end).ok_or(WireError::Invalid("truncated TLV in PROXY header"))?;
        if kind == CRC32C && !has_checksum(header, value, bytes) {
            return Err(WireError::Invalid("wrong checksum of PROXY header"));
        }
        at = end;
    }
    Ok(())
}

/// Whether `checksum`, which is at `at`, is that of the header with zeros in place of the checksum.
fn has_checksum(header: &[u8], at: usize, checksum: &[u8]) -> bool {
    let Ok(checksum) = checksum.try_into() else { return false };
    let zeroed = header.iter().enumerate().map(|(index, byte)| if (at..at + 4).contains(&index) { 0 } else { *byte });
    crc32c(zeroed) == u32::from_be_bytes(checksum)
}

/// CRC-32C (RFC 4960, appendix B): reflected, with the polynomial 0x1EDC6F41.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), step))
}

fn write_v2(connection: &ProxiedConnection, extensions: Extensions<'_>) -> Vec<u8> {
    let ProxiedConnection { source, destination } = connection;
    let mut block = Vec::new();
    let family =
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (source.ip().to_canonical(), destination.ip().to_canonical()) {
            block.extend([from.octets(), to.octets()].as_flattened());
            TCP4
        } else {
            block.extend([source.ip(), destination.ip()].map(ipv6_octets).as_flattened());
            TCP6
        };
    block.extend([source.port(), destination.port()].map(u16::to_be_bytes).as_flattened());
    if let Some(unique_id) = extensions.unique_id {
        block.extend(tlv(UNIQUE_ID, unique_id.as_bytes()));
    }
    if let Some(tls) = extensions.tls {
        block.extend(tls_tlv(tls));
    }
    [V2_SIGNATURE.as_slice(), &[PROXY, family], &length_bytes(&block), &block].concat()
}

/// Encodes the TLV that describes TLS, with the values in the order of haproxy.
fn tls_tlv(tls: &ClientTls) -> Vec<u8> {
    let client = if tls.has_certificate { CLIENT_SSL | CLIENT_CERTIFICATE } else { CLIENT_SSL };
    // "Zero if the client presented a certificate and it was successfully verified, and non-zero otherwise."
    let verify = u32::from(!tls.has_certificate).to_be_bytes();
    let name = tls.common_name.as_ref().map(|name| tlv(SSL_COMMON_NAME, name.as_bytes())).unwrap_or_default();
    let version = tlv(SSL_VERSION, tls.version.as_bytes());
    let cipher = tlv(SSL_CIPHER, tls.cipher.as_bytes());
    tlv(SSL, &[&[client], verify.as_slice(), &version, &name, &cipher].concat())
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], length_bytes(value).as_slice(), value].concat()
}

/// The address as IPv6; an IPv4 address is IPv4-mapped.
fn ipv6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn length_bytes(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("invariant: a header of ours is short").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::feeding::feed;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    const ID: Extensions<'static> = Extensions { unique_id: Some("id"), tls: None };

    /// The addresses of a connection, as text.
    fn texts(parsed: Option<ProxiedConnection>) -> Option<(String, String)> {
        parsed.map(|connection| (connection.source.to_string(), connection.destination.to_string()))
    }

    fn v2(command_and_family: [u8; 2], block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).unwrap().to_be_bytes();
        [SIGNATURE, &command_and_family, &length, block].concat()
    }

    fn connection(source: &str, destination: &str) -> ProxiedConnection {
        ProxiedConnection { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    /// The examples of section 2.1 of the specification.
    #[test]
    fn lines_of_the_specification_are_read() {
        let longest = ["ffff"; 8].join(":");
        let longest_tcp6 = format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n");
        let longest_unknown = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
        assert_eq!((longest_tcp6.len(), longest_unknown.len()), (104, 107));
        let of = |ip: &str, port: u16| format!("[{ip}]:{port}");
        for (line, expected) in [
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                Some(("255.255.255.255:65535".to_owned(), "255.255.255.255:65535".to_owned())),
            ),
            (
                "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
                Some(("192.168.0.1:56324".to_owned(), "192.168.0.11:443".to_owned())),
            ),
            (&longest_tcp6, Some((of(&longest, 65535), of(&longest, 65535)))),
            ("PROXY TCP6 2001:db8::1 ::1 0 1\r\n", Some((of("2001:db8::1", 0), of("::1", 1)))),
            ("PROXY UNKNOWN\r\n", None),
            (&longest_unknown, None),
        ] {
            assert_eq!(texts(feed(line.as_bytes(), parse)), expected, "{line:?}");
        }
    }

    #[test]
    fn bad_lines_of_version_1_are_refused() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "PROXX",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        ] {
            assert!(matches!(parse(line.as_bytes()), Err(WireError::Invalid(_))), "{line:?}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 92], b"\r\n"].concat();
        assert_eq!(parse(&endless), Err(WireError::TooLarge));
        assert_eq!(parse(&endless[..106]), Err(WireError::Incomplete));
    }

    #[test]
    fn headers_of_version_2_are_read() {
        let four = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        let ipv6 = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let six = [&ipv6("2001:db8::1"), ipv6("2001:db8::2").as_slice(), &[0, 1, 0, 2]].concat();
        let expected_four = Some(("192.0.2.1:56324".to_owned(), "198.51.100.2:443".to_owned()));
        let expected_six = Some(("[2001:db8::1]:1".to_owned(), "[2001:db8::2]:2".to_owned()));
        let tlvs = [4, 0, 2, 0, 0, 0xe0, 0, 0, 5, 0, 3, b'a', b'b', b'c'];
        for (header, expected) in [
            (v2([0x21, 0x11], &four), expected_four.clone()),
            (v2([0x21, 0x11], &[four.as_slice(), &tlvs].concat()), expected_four),
            (v2([0x21, 0x21], &six), expected_six),
            // LOCAL, as in a health check: the rest of the header is ignored.
            (v2([0x20, 0x00], &[]), None),
            (v2([0x20, 0x11], &four), None),
            (v2([0x20, 0xff], &[1, 2, 3]), None),
            // UNSPEC, UDP and unix sockets.
            (v2([0x21, 0x00], &[9; 7]), None),
            (v2([0x21, 0x12], &four), None),
            (v2([0x21, 0x31], &[0; 216]), None),
            (v2([0x21, 0x00], &[0; MAX_HEADER - 16]), None),
        ] {
            assert_eq!(texts(feed(&header, parse)), expected, "{header:?}");
        }
    }

    #[test]
    fn bad_headers_of_version_2_are_refused() {
        let four = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        let with_tlvs = |tlvs: &[u8]| v2([0x21, 0x11], &[four.as_slice(), tlvs].concat());
        for header in [
            v2([0x11, 0x11], &four),
            v2([0x22, 0x11], &four),
            v2([0x21, 0x13], &four),
            v2([0x21, 0x41], &four),
            v2([0x21, 0x11], &four[..11]),
            v2([0x21, 0x21], &[0; 35]),
            with_tlvs(&[4]),
            with_tlvs(&[4, 0, 1]),
            with_tlvs(&[3, 0, 4, 0, 0, 0, 0]),
            with_tlvs(&[3, 0, 3, 0, 0, 0]),
        ] {
            assert!(matches!(parse(&header), Err(WireError::Invalid(_))), "{header:?}");
        }
        assert_eq!(parse(&v2([0x20, 0x00], &[0; MAX_HEADER - 15])), Err(WireError::TooLarge));
        assert_eq!(parse(b"\r\n\r\n\0\r\nQUIX"), Err(WireError::Invalid("no PROXY header")));
    }

    /// RFC 3720, B.4, and the check value of the CRC catalogue.
    #[test]
    fn checksums_are_verified() {
        assert_eq!(crc32c([0; 32].into_iter()), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
        let four = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        let mut header = v2([0x21, 0x11], &[four.as_slice(), &[3, 0, 4, 0, 0, 0, 0]].concat());
        let checksum = crc32c(header.iter().copied()).to_be_bytes();
        let at = header.len() - 4;
        header[at..].copy_from_slice(&checksum);
        assert!(feed(&header, parse).is_some());
        header[at - 5] ^= 1;
        assert_eq!(parse(&header), Err(WireError::Invalid("wrong checksum of PROXY header")));
    }

    #[test]
    fn headers_are_written_in_both_versions() {
        let four = connection("192.0.2.1:56324", "198.51.100.2:443");
        let mapped = connection("[::ffff:192.0.2.1]:56324", "198.51.100.2:443");
        let six = connection("[2001:db8::1]:1", "[2001:db8::2]:2");
        let mixed = connection("192.0.2.1:1", "[2001:db8::2]:2");
        for (connection, line) in [
            (four, "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"),
            (mapped, "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"),
            (six, "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"),
            (mixed, "PROXY UNKNOWN\r\n"),
        ] {
            assert_eq!(String::from_utf8(write(ProxyVersion::V1, &connection, ID)).unwrap(), line);
        }
        let expected = v2([0x21, 0x11], &[192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb, 5, 0, 2, b'i', b'd']);
        assert_eq!(write(ProxyVersion::V2, &four, ID), expected);
        for (connection, read) in [(four, four), (mapped, four), (six, six)] {
            assert_eq!(feed(&write(ProxyVersion::V2, &connection, Extensions::default()), parse), Some(read));
        }
        let read = feed(&write(ProxyVersion::V2, &mixed, ID), parse);
        assert_eq!(read, Some(connection("[::ffff:192.0.2.1]:1", "[2001:db8::2]:2")));
    }

    #[test]
    fn tls_extensions_are_written() {
        let four = connection("192.0.2.1:56324", "198.51.100.2:443");
        let certified =
            ClientTls { version: "TLSv1.3", cipher: "SUITE", has_certificate: true, common_name: Some("ann".into()) };
        let nameless = ClientTls { common_name: None, ..certified.clone() };
        let anonymous = ClientTls { has_certificate: false, ..nameless.clone() };
        let (version, cipher) = (b"\x21\0\x07TLSv1.3".as_slice(), b"\x23\0\x05SUITE".as_slice());
        for (tls, start, name) in [
            (certified, b"\x20\0\x1d\x07\0\0\0\0", b"\x22\0\x03ann".as_slice()),
            (nameless, b"\x20\0\x17\x07\0\0\0\0", b""),
            (anonymous, b"\x20\0\x17\x01\0\0\0\x01", b""),
        ] {
            let header = write(ProxyVersion::V2, &four, Extensions { unique_id: None, tls: Some(&tls) });
            assert_eq!(header[28..], [start.as_slice(), version, name, cipher].concat(), "{tls:?}");
            assert_eq!(feed(&header, parse), Some(four));
        }
    }
}
