//! All messages of SOCKS5, of both sides. Each input is parsed as every kind of message, because they begin alike.
#![no_main]

use ekiden_fuzz::check_prefixes;
use ekiden_proto::addr::Host;
use ekiden_proto::wire::socks5::{
    self, Credentials, DatagramHeader, Greeting, Method, Socks5Request, Socks5RequestError, parse_credentials_reply,
    parse_method, parse_reply, reply_bytes_missing,
};
use ekiden_proto::wire::{Parsed, WireError};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    server_side(bytes);
    client_side(bytes);
});

fn server_side(bytes: &[u8]) {
    if let Some((greeting, used)) = check_prefixes(bytes, Greeting::parse) {
        assert_eq!(greeting.methods.len() + 2, used);
        let _ = greeting.offers(Method::UserPass);
    }
    if let Some((credentials, used)) = check_prefixes(bytes, Credentials::parse)
        && let Ok(written) = credentials.write()
    {
        assert_eq!(written, bytes[..used]);
    }
    if let Some((Socks5Request::Connect(target), _)) = check_prefixes(bytes, parse_request) {
        assert_ne!(target.port, 0);
        let written = socks5::request(&target);
        assert_eq!(Socks5Request::parse(&written), Ok((Socks5Request::Connect(target), written.len())));
    }
    if let Some((header, _)) = check_prefixes(bytes, DatagramHeader::parse)
        && let Host::Ip(ip) = header.target.host
    {
        let mut written = Vec::new();
        DatagramHeader::write((ip, header.target.port).into(), &mut written);
        assert_eq!(DatagramHeader::parse(&written), Ok((DatagramHeader { fragment: 0, ..header }, written.len())));
    }
}

/// Parses a request. Maps errors that have their own reply codes to `Invalid`: they are final, too.
fn parse_request(bytes: &[u8]) -> Parsed<Socks5Request> {
    Socks5Request::parse(bytes).map_err(|error| match error {
        Socks5RequestError::Wire(error) => error,
        Socks5RequestError::CommandNotSupported
        | Socks5RequestError::InvalidTarget
        | Socks5RequestError::AddressTypeNotSupported => WireError::Invalid("told apart"),
    })
}

fn client_side(bytes: &[u8]) {
    check_prefixes(bytes, parse_method);
    check_prefixes(bytes, parse_credentials_reply);
    let reply = check_prefixes(bytes, parse_reply);
    if let Some((reply, _)) = &reply {
        let written = socks5::reply(*reply, None);
        assert_eq!(parse_reply(&written), Ok((*reply, written.len())));
    }
    // Reads of exactly the missing bytes must stop at the end of the reply.
    let mut read = 0;
    while reply_bytes_missing(&bytes[..read]) > 0 && read < bytes.len() {
        read = bytes.len().min(read + reply_bytes_missing(&bytes[..read]));
    }
    assert_eq!(parse_reply(&bytes[..read]).is_ok(), reply.is_some());
    if let Some((_, used)) = reply {
        assert_eq!(read, used, "read too far");
    }
}
