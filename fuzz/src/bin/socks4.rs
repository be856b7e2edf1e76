//! SOCKS4 and SOCKS4a requests: a parsed request survives a round trip.
#![no_main]

use std::net::IpAddr;

use ekiden_fuzz::check_prefixes;
use ekiden_proto::addr::Host;
use ekiden_proto::wire::socks4::{Command, Socks4Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((request, _)) = check_prefixes(bytes, Socks4Request::parse) {
        assert_ne!(request.target.port, 0);
        assert!(request.user.len() <= 255);
        if let Some(written) = write(&request) {
            assert_eq!(Socks4Request::parse(&written), Ok((request, written.len())));
        }
    }
});

/// Writes the request as a client does; `None` for an address that SOCKS4 cannot express.
fn write(request: &Socks4Request) -> Option<Vec<u8>> {
    let mut out = vec![4, if request.command == Command::Connect { 1 } else { 2 }];
    out.extend(request.target.port.to_be_bytes());
    let (address, name) = match &request.target.host {
        Host::Ip(IpAddr::V4(v4)) if v4.octets()[..3] != [0, 0, 0] => (v4.octets(), None),
        Host::Ip(IpAddr::V4(v4)) if v4.is_unspecified() => (v4.octets(), None),
        Host::Ip(_) => return None,
        Host::Name(name) => ([0, 0, 0, 7], Some(name)),
    };
    out.extend(address);
    out.extend(&request.user);
    out.push(0);
    if let Some(name) = name {
        out.extend(name.bytes());
        out.push(0);
    }
    Some(out)
}
